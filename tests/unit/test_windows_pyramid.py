"""The pixel pyramid: kept cells against every ns of every span, and rasters of them against the rule."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.windows import pyramid, pyramid_cells, window
from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.lanes import own_lanes
from musetrace.analysis.windows.pyramid import PyramidMemory, kept_pyramid
from musetrace.analysis.windows.pyramid_cells import as_places, cells_of, keep_pyramid, levels
from musetrace.analysis.windows.rows import block_rows
from musetrace.analysis.windows.window import View
from musetrace.store.pyramid_store import Cells, PyramidStore
from tests.unit import windows_oracle as oracle
from tests.unit.analysis_oracle import aligned
from tests.unit.fake_run import Launch, Span
from tests.unit.windows_oracle import TimelineRun, timelines

NOTHING = [255, 0, 255]
CLASS = {1: 0, 2: 0, 0: 1, 3: 2}  # of a strip, in a row of one


@dataclass
class Pictured:
    """A run in memory with a place for its pyramid."""

    run: TimelineRun
    pyramid_store: PyramidStore

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)


def pictured(run: TimelineRun, folder: str | Path) -> Any:
    return Pictured(run, PyramidStore(Path(folder) / "cubes", 7))


def keep(run: Any, *cell_ns: int) -> Timeline:
    """Keep a pyramid of cells of these lengths, else of those that the run asks for."""
    timeline = Timeline.of(run, LaneMemory(1 << 20))
    with pytest.MonkeyPatch.context() as patch:
        if cell_ns:
            patch.setattr(pyramid_cells, "levels", lambda *_: cell_ns)
        keep_pyramid(timeline)
    return timeline


def lengths(run: TimelineRun) -> Iterator[tuple[int, int, int]]:
    """(rank, step, ns) with the ns at its end."""
    for rank in run.ranks:
        table = run.steps(rank)
        for step, base, end in zip(
            *(table[n].to_pylist() for n in ("step", "base_ns", "end_ns")), strict=True
        ):
            if base > 0:
                yield rank, step, end - base + 1


@given(timelines(), st.sampled_from([1, 2, 3, 7, 16]), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_cell_is_what_a_block_is_drawn_as_in_one_strip(
    drawn: TimelineRun, cell_ns: int, most_columns: int
) -> None:
    run = replace(drawn, alignment={})  # cells are by the rank's own clock
    strips = Timeline.of(run, LaneMemory(1 << 20)).strips
    places = list(zip(*(part.tolist() for part in (strips.by_strip[2], strips.by_strip[1])), strict=True))
    for rank, step, length_ns in lengths(run):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pyramid_cells, "_MOST_COLUMNS", most_columns)
            jobs = as_places(strips)
            found = cells_of(own_lanes(run, rank, step), jobs, run.blocks, length_ns, cell_ns)
        columns = -(-length_ns // cell_ns)
        assert found.place.shape == found.share.shape == (run.blocks, columns)
        begin = run.base_ns(rank, step) - oracle.origin(run)
        mine = [x for x in oracle.shown(run, "blocks", (rank,), range(run.blocks)) if x.step == step]
        asked = (begin, begin + columns * cell_ns, 0, run.blocks)
        expected = [one[0] for one in oracle.raster(run, mine, asked, run.blocks, columns, 1)]
        told = [
            [*places[place], share] if place < 255 else None
            for place, share in zip(found.place.ravel().tolist(), found.share.ravel().tolist(), strict=True)
        ]
        assert told == [None if op == 255 else [op, strip, share] for op, share, strip in expected]


@given(timelines(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_raster_shows_the_columns_whose_middle_lies_in_a_pixel(
    run: TimelineRun, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        of = pictured(run, folder)
        # Short cells: several neighbours in a pixel are alike.
        timeline = keep(of, data.draw(st.sampled_from([1, 2, 5, 40])))
        made = kept_pyramid(timeline, PyramidMemory(1 << 20))
        assert made is not None
        rows = block_rows(run, run.ranks)
        from_ns = data.draw(st.integers(-30, 40))
        to_ns = from_ns + data.draw(st.sampled_from([1, 20, 77, 5_000]))
        pixels = (data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4)))
        view = View(rows, from_ns, to_ns, 0, rows.count, *pixels, 1)
        found = made.raster(view, 0)
        kept = {
            (rank, step): made.file.cells(rank, step, 0)
            for rank in run.ranks
            for step in timeline.axis.ranks[rank].step.tolist()
        }
    groups, bins = view.bins
    told = np.stack([found.op, found.share, found.strip], axis=-1)[:, 0]
    assert told.shape == (groups, bins, 3)
    expected = [
        raster_cell(timeline, kept, made.cell_ns[0], cell_rows, moments)
        for cell_rows, moments in oracle.cells(view.window, groups, bins)
    ]
    assert told.reshape(groups * bins, 3).tolist() == expected


def raster_cell(
    timeline: Timeline,
    kept: Mapping[tuple[int, int], Cells | None],
    cell_ns: int,
    rows: range,
    moments: range,
) -> list[int]:
    """Time by what is drawn, in 1/255 ns."""
    run, strips = timeline.run, timeline.strips
    assert isinstance(run, Pictured)
    time: dict[tuple[int, int], int] = {}
    for (rank, step), cells in kept.items():
        assert cells is not None
        base = run.run.base_ns(rank, step)
        edges = [
            aligned(run.run, rank, base + at * cell_ns) - oracle.origin(run.run)
            for at in range(cells.place.shape[1] + 1)
        ]
        mine = [
            at
            for at, (begin, end) in enumerate(zip(edges, edges[1:], strict=False))
            if begin < end and begin + (end - begin) // 2 in moments
        ]
        inside = max(min(edges[-1], moments.stop) - max(edges[0], moments.start), 0)
        every, before = sum(edges[at + 1] - edges[at] for at in mine), 0
        for at in mine:
            until = before + edges[at + 1] - edges[at]
            dealt = inside * until // every - inside * before // every
            before = until
            for row in rows:
                of_rank, block = divmod(row, run.blocks)
                place = int(cells.place[block, at]) if run.ranks[of_rank] == rank else 255
                if place < 255:
                    key = int(strips.by_strip[3][place]), place
                    time[key] = time.get(key, 0) + dealt * int(cells.share[block, at])
    if not time:
        return NOTHING
    first = min(CLASS[strip] for strip, _ in time)
    of_class = {key: ns for key, ns in time.items() if CLASS[key[0]] == first}
    _, place = min(of_class, key=lambda one: (-of_class[one], one[1]))
    share = -(-sum(of_class.values()) // (len(rows) * len(moments)))
    return [int(strips.by_strip[2][place]), max(share, 1), int(strips.by_strip[3][place])]


@given(timelines(), st.integers(1, 5), st.sampled_from([1, 2, 5, 40]))
@settings(max_examples=30, deadline=None)
def test_where_pixels_are_whole_columns_the_raster_is_that_of_the_spans(
    drawn: TimelineRun, columns: int, cell_ns: int
) -> None:
    run = replace(drawn, alignment={})
    with tempfile.TemporaryDirectory() as folder:
        timeline = keep(pictured(run, folder), cell_ns)
        made = kept_pyramid(timeline, PyramidMemory(1 << 20))
        assert made is not None
        for rank, step, length_ns in lengths(run):
            pixel_ns = columns * made.cell_ns[0]
            pixels = -(-length_ns // made.cell_ns[0]) // columns
            begin = run.base_ns(rank, step) - oracle.origin(run)
            view = View(
                block_rows(run, (rank,)), begin, begin + pixels * pixel_ns, 0, run.blocks, pixels, 99, 1
            )
            others = [
                at for at in lengths(run) if at[0] == rank and at[1] != step and overlaps(run, rank, at, view)
            ]
            if not pixels or others:
                continue
            told = made.raster(view, 0)
            spans = window.raster(timeline, view, window.near(timeline, view))
            # Of which class: its op is that of the most columns' time, which another may take more of.
            assert [classes(one) for one in (told, spans)] == [classes(spans)] * 2
            # Each column's share was rounded up, and the pixel's.
            more = told.share.astype(int) - spans.share
            assert more.min() >= 0
            assert more.max() <= 1


def classes(raster: window.Raster) -> list[int | None]:
    return [CLASS.get(strip) for strip in raster.strip.ravel().tolist()]


def overlaps(run: TimelineRun, rank: int, at: tuple[int, int, int], view: View) -> bool:
    begin = run.base_ns(rank, at[1]) - oracle.origin(run)
    return begin < view.to_ns and begin + at[2] > view.from_ns


def test_cells_are_as_many_as_spans_at_most_and_four_times_as_long_at_each_level() -> None:
    # Two steps of 1,000,000 ns, 3 blocks: of 512 ns there are 2 * 3 * 1,954 cells.
    steps = {(0, 0): 1_000_000, (0, 1): 1_000_000}
    assert levels(steps, 3, 11_724) == (512, 2_048, 8_192)
    assert levels(steps, 3, 11_723)[0] == 1_024
    # 1,000,000 / 8,192 is more than 64 columns, a quarter of it less.
    assert levels({(0, 0): 3}, 1, 10) == (2,)
    assert levels({}, 1, 10) == (2,)


def test_a_view_is_made_of_the_longest_cells_that_are_half_a_pixel_at_most() -> None:
    run = run_of_one_step()
    nobody_reads: Any = None
    timeline = Timeline.of(run, LaneMemory(1 << 20))
    made = pyramid.Pyramid(timeline, nobody_reads, (512, 2_048, 8_192), PyramidMemory(1))

    def level_of(pixel_ns: int) -> int | None:
        return made.level_of(View(block_rows(run, (0,)), 0, 100 * pixel_ns, 0, 1, 100, 1, 1))

    assert [level_of(ns) for ns in (1_023, 1_024, 4_095, 4_096, 1 << 30)] == [None, 0, 0, 1, 2]


def run_of_one_step() -> TimelineRun:
    spans = [Span(0, 0, 0, 0, 2, 10 * at, 5) for at in range(40)]
    return TimelineRun([Launch(0, 0, 0, 0, "sliding", 0, 400, 1)], spans, 1, (0,))


def test_what_is_kept_is_not_made_again_and_what_does_not_fit_is_as_good_as_absent(tmp_path: Path) -> None:
    run = pictured(run_of_one_step(), tmp_path)
    timeline = Timeline.of(run, LaneMemory(1 << 20))
    memory = PyramidMemory(1 << 20)
    assert kept_pyramid(timeline, memory) is None
    keep(run)
    kept = tmp_path / "cubes" / "pyramid.arrow"
    first = kept.stat().st_mtime_ns
    keep(run)
    assert kept.stat().st_mtime_ns == first
    assert run.pyramid_store.read(pyramid.VERSION + 1) is None
    assert PyramidStore(tmp_path / "cubes", 8).read(pyramid.VERSION) is None
    made = kept_pyramid(timeline, memory)
    assert made is not None
    view = View(block_rows(run, (0,)), 0, 400, 0, 1, 4, 1, 1)
    assert made.raster(view, 0).share.max() > 0
    assert made.file.cells(0, 1, 0) is None
    assert made.file.cells(1, 0, 0) is None


def test_cells_that_were_changed_are_refused_and_a_file_of_another_length_too(tmp_path: Path) -> None:
    run = pictured(run_of_one_step(), tmp_path)
    timeline = keep(run)
    kept = tmp_path / "cubes" / "pyramid.arrow"
    whole = kept.read_bytes()
    made = kept_pyramid(timeline, PyramidMemory(1 << 20))
    assert made is not None
    cells = made.file.cells(0, 0, 0)
    assert cells is not None
    values = cells.share.tobytes()
    assert whole.count(values) == 1
    kept.write_bytes(whole.replace(values, bytes(len(values))))
    damaged = kept_pyramid(timeline, PyramidMemory(1 << 20))
    assert damaged is not None
    with pytest.raises(pyramid.DamagedPyramidError):
        damaged.raster(View(block_rows(run, (0,)), 0, 400, 0, 1, 4, 1, 1), 0)
    kept.write_bytes(whole[:-1])
    assert run.pyramid_store.read(pyramid.VERSION) is None


def test_where_it_cannot_be_written_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "cubes").write_text("in the way")
    run = pictured(run_of_one_step(), tmp_path)
    assert kept_pyramid(keep(run), PyramidMemory(1 << 20)) is None
    in_memory: Any = run_of_one_step()
    assert kept_pyramid(keep(in_memory), PyramidMemory(1 << 20)) is None
