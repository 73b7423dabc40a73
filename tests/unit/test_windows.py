"""Windows of a timeline: spans one by one and rasters, against every ns of every span."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.windows import window
from musetrace.analysis.windows.job_strips import JobStrips
from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.rows import Rows, block_rows, sm_rows, warp_rows
from musetrace.analysis.windows.window import View
from musetrace.errors import AnalysisError
from musetrace.job_table import Job, JobTable
from tests.unit import windows_oracle as oracle
from tests.unit.fake_run import Launch, Span
from tests.unit.windows_oracle import Shown, TimelineRun, timelines

LOAD, WAIT, COMPUTE, MERGE, SEND = 0, 1, 2, 3, 7


def timeline_of(run: TimelineRun) -> Timeline:
    return Timeline.of(run, LaneMemory(1 << 20))


@st.composite
def rows_of(draw: st.DrawFn, run: TimelineRun) -> tuple[Rows, list[Shown]]:
    """Rows of some kind, and the spans that they show."""
    ranks = draw(st.sampled_from([run.ranks, run.ranks[-1:]]))
    kind = draw(st.sampled_from(["blocks", "blocks", "sms", "warps"]))
    if kind == "warps":
        block = draw(st.integers(0, run.blocks - 1))
        rows = warp_rows(run, ranks[0], block)
        return rows, oracle.shown(run, kind, ranks[:1], rows.numbers, block)
    try:
        rows = sm_rows(run, ranks) if kind == "sms" else block_rows(run, ranks)
    except AnalysisError:
        rows, kind = block_rows(run, ranks), "blocks"
    return rows, oracle.shown(run, kind, rows.ranks, rows.numbers)


@st.composite
def views(draw: st.DrawFn) -> tuple[TimelineRun, View, list[Shown]]:
    """A run and a view of it: often of where its spans are, sometimes of nothing."""
    run = draw(timelines())
    rows, spans = draw(rows_of(run))
    at = draw(st.sampled_from([x.begin for x in spans] or [0]))
    from_ns = at + draw(st.sampled_from([0, 0, -1, 1, 3, -20, 10]))
    length = draw(st.sampled_from([30, 7, 80, 2, 1, 4_200]))
    row_from = draw(st.integers(0, max(rows.count - 1, 0)))
    row_to = draw(st.integers(min(row_from + 1, rows.count), rows.count))
    pixels = (draw(st.integers(1, 25)), draw(st.integers(1, 5)))
    view = View(rows, from_ns, from_ns + length, row_from, row_to, *pixels, draw(st.sampled_from([4, 1])))
    return run, view, spans


@given(views())
@settings(max_examples=100, deadline=None)
def test_a_window_has_the_spans_that_lie_in_it(asked: tuple[TimelineRun, View, list[Shown]]) -> None:
    run, view, spans = asked
    found = window.near(timeline_of(run), view)
    expected = sorted(x for x in spans if oracle.inside(x, view.window))
    assert (found.count, found.flagged) == (len(expected), sum(x.flag != 0 for x in expected))
    told = window.spans(view, found)
    names = ("rank", "step", "id", "row", "begin", "dur", "job", "warp", "flag", "iteration")
    rows = zip(*(getattr(told, name).tolist() for name in names), strict=True)
    assert sorted(rows) == [tuple(x)[:-1] for x in expected]


@given(views())
@settings(max_examples=100, deadline=None)
def test_a_raster_shows_the_op_of_most_time_and_how_much_is_covered(
    asked: tuple[TimelineRun, View, list[Shown]],
) -> None:
    run, view, spans = asked
    if view.row_from == view.row_to:
        return
    timeline = timeline_of(run)
    groups, bins = view.bins
    assert groups == min(view.height, view.row_to - view.row_from)
    assert bins == min(view.width, view.to_ns - view.from_ns)
    found = window.raster(timeline, view, window.near(timeline, view))
    near = [x for x in spans if oracle.inside(x, view.window)]
    expected = oracle.raster(run, near, view.window, groups, bins, view.strips)
    told = np.stack([found.op, found.share, found.strip], axis=-1)
    assert told.shape == (groups, view.strips, bins, 3)
    by_cell = told.transpose(0, 2, 1, 3).reshape(groups * bins, view.strips, 3)
    assert by_cell.tolist() == [[list(one) for one in of] for of in expected]


def run_of(*spans: Span, blocks: int = 1, end: int = 0) -> TimelineRun:
    ends = max([end, *(x.begin + x.dur for x in spans)])
    return TimelineRun([Launch(0, 0, 0, 0, "sliding", 0, ends, blocks)], spans, blocks, (0,))


def test_many_short_spans_outweigh_the_longest() -> None:
    short = [Span(0, 0, 0, 0, MERGE, 10 * at, 4) for at in range(5)]  # 20 ns of op a
    run = run_of(*short, Span(0, 0, 0, 0, 6, 60, 15), end=80)  # 15 ns of op b, one span
    view = View(block_rows(run, (0,)), 0, 80, 0, 1, 1, 1)
    timeline = timeline_of(run)
    found = window.raster(timeline, view, window.near(timeline, view))
    ops = timeline.strips.ops
    assert ops[found.op[0, 1, 0]] == "a"
    assert found.share[0, 1, 0] == -(-255 * 35 // 80)


def test_of_ops_that_take_as_much_of_a_cell_the_first_in_the_table_is_shown() -> None:
    spans = [Span(0, 0, 0, 0, job, 0, 10) for job in (6, COMPUTE)]
    run = run_of(*spans, end=20)
    timeline = timeline_of(run)
    view = View(block_rows(run, (0,)), 0, 20, 0, 1, 4, 1)
    found = window.raster(timeline, view, window.near(timeline, view))
    assert [timeline.strips.ops[op] if op < 255 else "" for op in found.op[0, 1].tolist()] == [
        "a",
        "a",
        "",
        "",
    ]


def test_one_instant_in_a_long_window_is_seen() -> None:
    run = run_of(Span(0, 0, 0, 0, COMPUTE, 500, 0), end=1_000_000)
    view = View(block_rows(run, (0,)), 0, 1_000_000, 0, 1, 10, 1)
    timeline = timeline_of(run)
    found = window.raster(timeline, view, window.near(timeline, view))
    assert found.op[0, 1].tolist() == [0] + [255] * 9
    assert found.share[0, 1].tolist() == [1] + [0] * 9


def test_a_span_of_seconds_beside_many_short_ones_is_found_where_it_ends() -> None:
    seconds = 4_000_000_000
    short = [Span(0, 0, 0, 0, LOAD, 64 * at, 32) for at in range(3_000)]
    run = run_of(Span(0, 0, 0, 0, COMPUTE, 5, seconds), *short)
    timeline = timeline_of(run)
    view = View(block_rows(run, (0,)), seconds - 10, seconds + 20, 0, 1, 30, 1)
    told = window.spans(view, window.near(timeline, view))
    assert (told.begin.tolist(), told.dur.tolist(), told.id.tolist()) == ([5], [seconds], [1])
    assert not timeline.axis.wide


class WideRun(TimelineRun):
    """Times that need 64 bits, as the store has them for a long step."""

    def spans(self, rank: int, step: int) -> Any:
        batch = super().spans(rank, step)
        for name, values in {"begin": [7, 5_000_000_000], "dur": [9_000_000_000, 3]}.items():
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, name, pa.array(values, type=pa.uint64()))
        return batch


def test_steps_longer_than_32_bits() -> None:
    spans = (Span(0, 0, 0, 0, COMPUTE, 1, 1), Span(0, 0, 0, 0, LOAD, 2, 1))
    run = WideRun([Launch(0, 0, 0, 0, "sliding", 0, 9_000_000_007, 1)], spans, 1, (0,))
    timeline = timeline_of(run)
    assert timeline.axis.wide
    view = View(block_rows(run, (0,)), 5_000_000_001, 5_000_000_002, 0, 1, 8, 1)
    told = window.spans(view, window.near(timeline, view))
    assert list(zip(told.begin.tolist(), told.dur.tolist(), strict=True)) == [
        (7, 9_000_000_000),
        (5_000_000_000, 3),
    ]
    found = window.raster(timeline, view, window.near(timeline, view))
    assert found.op[0, :, 0].tolist() == [0, 0, 255, 255]


class HoursRun(TimelineRun):
    """A step of ten hours: two warps load all the time, and a third computes for half of it."""

    def spans(self, rank: int, step: int) -> Any:
        batch = super().spans(rank, step)
        for name, values in {"begin": [0, 0, HOURS // 2], "dur": [HOURS, HOURS, HOURS // 2]}.items():
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, name, pa.array(values, type=pa.uint64()))
        return batch


HOURS = 36_000_000_000_000


@pytest.mark.parametrize("width", [1, 2])
def test_sums_of_hours_fit(width: int) -> None:
    spans = [Span(0, 0, 0, 0, job, at, 1) for at, job in enumerate((LOAD, LOAD, COMPUTE))]
    run = HoursRun([Launch(0, 0, 0, 0, "sliding", 0, HOURS, 1)], spans, 1, (0,))
    timeline = timeline_of(run)
    view = View(block_rows(run, (0,)), 0, HOURS, 0, 1, width, 1)
    found = window.raster(timeline, view, window.near(timeline, view))
    assert found.op[0].tolist() == [
        [0] * width,
        [0] if width == 1 else [255, 0],
        [255] * width,
        [255] * width,
    ]
    assert found.share[0, :2].tolist() == [[255] * width, [128] if width == 1 else [0, 255]]


def test_an_empty_run_has_an_axis_and_nothing_on_it() -> None:
    run = TimelineRun([], [], 2, (0,))
    timeline = timeline_of(run)
    assert (timeline.axis.origin_ns, timeline.axis.to_ns) == (0, 1)
    view = View(block_rows(run, (0,)), 0, 1, 0, 2, 10, 2)
    found = window.near(timeline, view)
    assert found.count == 0
    assert len(window.spans(view, found).id) == 0
    assert set(window.raster(timeline, view, found).op.ravel().tolist()) == {255}


def test_rows_of_sms_need_sms_that_differ() -> None:
    run = run_of(*(Span(0, 0, 0, block, COMPUTE, 1, 2) for block in range(2)), blocks=2)
    with pytest.raises(AnalysisError, match="which SM"):
        sm_rows(run, (0,))


def test_more_ops_than_a_byte_holds_are_one_at_the_end() -> None:
    jobs = tuple(Job(f"j{at}", f"op{at}", "compute", "all", (0, 0), (0,), None) for at in range(300))
    table = JobTable("many", 1, 600, jobs, tuple(range(300)), (0,) * 300)
    strips = JobStrips.of(table)
    assert len(strips.ops) == 255
    assert strips.ops[-2:] == ("other ops", "unknown")
    assert [strips.ops[strips.op[job]] for job in (0, 252, 253, 299, 300)] == [
        "op0", "op252", "other ops", "other ops", "unknown",
    ]  # fmt: skip
    assert set(strips.op.tolist()) == set(range(255))


def test_lanes_are_kept_up_to_a_limit_and_read_once() -> None:
    launches = [Launch(0, step, 0, 0, "sliding", 0, 50, 1) for step in range(4)]
    spans = [Span(0, step, 0, 0, COMPUTE, at, 1) for step in range(4) for at in range(40)]
    run = Reading(launches, spans, 1, (0,))
    timeline = Timeline.of(run, LaneMemory(2_000))
    rows = block_rows(run, (0,))
    run.read.clear()
    timeline.lanes(rows, [(0, 0), (0, 1), (0, 0)])
    assert run.read == [(0, 0), (0, 1)]
    timeline.lanes(rows, [(0, 2), (0, 3), (0, 1)])
    timeline.lanes(rows, [(0, 0)])
    assert run.read == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 0)]


def test_lanes_make_room_for_what_another_memory_takes() -> None:
    launches = [Launch(0, step, 0, 0, "sliding", 0, 50, 1) for step in range(3)]
    spans = [Span(0, step, 0, 0, COMPUTE, at, 1) for step in range(3) for at in range(40)]
    run, other = Reading(launches, spans, 1, (0,)), LaneMemory(1_000)
    timeline = Timeline.of(run, LaneMemory(1_400, lambda: other.bytes))
    told: list[int] = []
    other.when_more += [told.append, lambda _: timeline.memory.make_room()]
    rows = block_rows(run, (0,))
    for step in (0, 1):
        timeline.lanes(rows, [(0, step)])
    both = timeline.memory.bytes
    assert both > 1_000
    elsewhere = Timeline.of(run, other)
    elsewhere.lanes(rows, [(0, 2)])
    run.read.clear()
    assert timeline.memory.bytes == both / 2
    assert told == [other.bytes]
    timeline.lanes(rows, [(0, 1)])
    assert run.read == [], "the one that was asked for last is still there"


def test_what_could_not_be_read_is_read_again() -> None:
    run = Reading([Launch(0, 0, 0, 0, "sliding", 0, 50, 1)], [Span(0, 0, 0, 0, COMPUTE, 1, 1)], 1, (0,))
    timeline = timeline_of(run)
    run.fails = True
    with pytest.raises(OSError, match="gone"):
        timeline.lanes(block_rows(run, (0,)), [(0, 0)])
    run.fails = False
    assert len(timeline.lanes(block_rows(run, (0,)), [(0, 0)])[0].begin) == 1


@dataclass
class Reading(TimelineRun):
    """Notes what is read of it."""

    fails: bool = False
    read: list[tuple[int, int]] = field(default_factory=list)

    def spans(self, rank: int, step: int) -> Any:
        if self.fails:
            raise OSError("gone")
        self.read.append((rank, step))
        return super().spans(rank, step)
