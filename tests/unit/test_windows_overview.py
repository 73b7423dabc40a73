"""Pictures of many steps: what is kept of each block of a launch, and the raster that is made of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.windows.overview import kept_overview, overview_of_spans
from musetrace.analysis.windows.rows import SMS, Rows, block_rows
from musetrace.analysis.windows.window import View
from musetrace.errors import AnalysisError
from musetrace.store.cube_store import CubeStore
from tests.unit import windows_oracle as oracle
from tests.unit.analysis_oracle import aligned
from tests.unit.fake_run import Launch, Span
from tests.unit.test_cubes import Cubed
from tests.unit.test_windows import COMPUTE, MERGE
from tests.unit.windows_oracle import TimelineRun, timelines

Cover = dict[int, tuple[int, int]]  # by strip: op and share in 1/255


def cover(run: TimelineRun, launch: Launch, block: int) -> Cover:
    """What a block of a launch does most, each ns on its own."""
    at = (launch.rank, launch.step, launch.launch)
    mine = [x for x in run.all_spans if (x.rank, x.step, x.launch) == at and x.block == block and x.flag == 0]
    found: Cover = {}
    for strip in range(4):
        time: dict[int, int] = {}
        covered: set[int] = set()
        for x in mine:
            if oracle.strip_of(run, x.job) == strip:
                within = range(max(x.begin, launch.begin), min(x.begin + x.dur, launch.end))
                op = oracle.op_of(run, x.job)
                time[op] = time.get(op, 0) + len(within)
                covered |= set(within)
        if time:
            op = min(time, key=lambda one: (-time[one], one))
            wall = launch.end - launch.begin
            found[strip] = op, max(-(-255 * len(covered) // wall) if wall else 1, 1)
    return found


@given(timelines())
@settings(max_examples=30, deadline=None)
def test_what_is_kept_of_each_block_of_a_launch(run: TimelineRun) -> None:
    overview = overview_of_spans(run, RunAxis.of(run))
    for rank in run.ranks:
        launches = [x for x in run.all_launches if x.rank == rank and x.stamped and x.end >= x.begin]
        launches.sort(key=lambda x: (run.base_ns(rank, x.step) + x.begin, x.step, x.launch))
        covers = overview.ranks[rank]
        assert len(covers.begin) == len(launches)
        for place, launch in enumerate(launches):
            times = [
                aligned(run, rank, run.base_ns(rank, launch.step) + t) for t in (launch.begin, launch.end)
            ]
            assert [covers.begin[place], covers.end[place]] == [t - oracle.origin(run) for t in times]
            for block in range(run.blocks):
                assert unpacked(int(covers.packed[block, place])) == cover(run, launch, block)


def unpacked(packed: int) -> Cover:
    found = {}
    for strip in range(4) if packed else ():
        op, share = packed >> 16 * strip & 0xFF, packed >> 16 * strip + 8 & 0xFF
        assert (op == 255) == (share == 0)
        if share:
            found[strip] = op, share
    return found


@given(timelines(), st.data())
@settings(max_examples=30, deadline=None)
def test_far_out_a_launch_is_filled_evenly_with_what_its_blocks_do_most(
    run: TimelineRun, data: st.DataObject
) -> None:
    rows = block_rows(run, run.ranks)
    from_ns = data.draw(st.integers(-30, 40))
    to_ns = from_ns + data.draw(st.sampled_from([1, 20, 5_000]))
    strips = data.draw(st.sampled_from([1, 4]))
    view = View(
        rows,
        from_ns,
        to_ns,
        0,
        rows.count,
        data.draw(st.integers(1, 20)),
        data.draw(st.integers(1, 4)),
        strips,
    )
    found = overview_of_spans(run, RunAxis.of(run)).raster(view)
    groups, bins = view.bins
    told = np.stack([found.op, found.share, found.strip], axis=-1).transpose(0, 2, 1, 3)
    expected = [
        far_cell(run, cell_rows, moments, strips)
        for cell_rows, moments in oracle.cells(view.window, groups, bins)
    ]
    assert told.reshape(groups * bins, strips, 3).tolist() == expected


def far_cell(run: TimelineRun, rows: range, moments: range, strips: int) -> list[list[int]]:
    sums: dict[int, dict[int, int]] = {strip: {} for strip in range(4)}
    for row in rows:
        rank, block = run.ranks[row // run.blocks], row % run.blocks
        for launch in (x for x in run.all_launches if x.rank == rank and x.stamped):
            base = run.base_ns(rank, launch.step)
            begin, end = (
                aligned(run, rank, base + t) - oracle.origin(run) for t in (launch.begin, launch.end)
            )
            inside = max(min(end, moments.stop) - max(begin, moments.start), 0)
            for strip, (op, share) in cover(run, launch, block).items() if inside else ():
                sums[strip][op] = sums[strip].get(op, 0) + inside * share
    classes = oracle.FIRST_SHOWN if strips == 1 else tuple((strip,) for strip in range(4))
    told = [shown(sums, of, 255 * len(rows) * len(moments)) for of in classes]
    return [next((one for one in told if one[0] != 255), told[-1])] if strips == 1 else told


def shown(sums: dict[int, dict[int, int]], strips: tuple[int, ...], whole: int) -> list[int]:
    every = {(strip, op): time for strip in strips for op, time in sums[strip].items()}
    if not every:
        return [255, 0, 255]
    strip, op = min(every, key=lambda one: (-every[one], one))
    return [op, min(max(-(-255 * sum(every.values()) // whole), 1), 255), strip]


@given(timelines())
@settings(max_examples=10, deadline=None)
def test_the_index_keeps_the_same_picture(run: TimelineRun) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cubed = Cubed(run, CubeStore(Path(folder) / "cubes", 7))
        assert kept_overview(cubed, RunAxis.of(run)) is None  # type: ignore[arg-type]
        keep_cubes(cubed)  # type: ignore[arg-type]
        cubed.readable = False
        kept = kept_overview(cubed, RunAxis.of(run))  # type: ignore[arg-type]
    kinds = [{(x.step, x.launch, x.kind) for x in run.all_launches if x.stamped}]
    if len({(step, launch) for step, launch, _ in kinds[0]}) < len(kinds[0]):
        assert kept is None  # ranks disagree: there are no cubes
        return
    assert kept is not None
    made = overview_of_spans(run, RunAxis.of(run))
    for rank in run.ranks:
        assert kept.ranks[rank].packed.tolist() == made.ranks[rank].packed.tolist()


def test_so_long_a_time_is_shown_by_block_only() -> None:
    spans = [Span(0, 0, 0, 0, MERGE, 0, 5), Span(0, 0, 0, 0, COMPUTE, 5, 5)]
    run = TimelineRun([Launch(0, 0, 0, 0, "sliding", 0, 10, 1)], spans, 1, (0,))
    overview = overview_of_spans(run, RunAxis.of(run))
    with pytest.raises(AnalysisError, match="show blocks"):
        overview.raster(View(Rows(SMS, (0,), (0,)), 0, 10, 0, 1, 5, 1))
