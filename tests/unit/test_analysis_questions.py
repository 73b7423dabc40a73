"""Every answer of the analysis against a slow oracle in plain Python, on random small runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit import analysis_oracle as oracle
from tests.unit.analysis_traces import questions, runs
from tests.unit.fake_run import UNKNOWN_JOB, FakeRun, Launch, Span, small_table

EMPTY = FakeRun([], [], blocks=4, ranks=())
Question = tuple[FakeRun, dict[str, Any]]


def check(run: FakeRun, table: pa.Table, expected: tuple[list[dict[str, Any]], int]) -> None:
    rows, ignored = expected
    assert table.to_pylist() == rows
    assert analysis.ignored_spans(table) == ignored
    assert table.schema.metadata[b"tick_ns"] == str(run.tick_ns or "unknown").encode()


@given(questions())
@settings(max_examples=200, deadline=None)
def test_op_timeline_is_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.op_timeline(run, scope["layer_kind"], scope["rank"], scope["step"])
    check(run, analysis.op_timeline(run, **scope), expected)


@given(questions())
@settings(max_examples=200, deadline=None)
def test_block_busy_is_the_oracles(question: Question) -> None:
    run, scope = question
    table = analysis.block_busy(run, **scope)
    check(run, table, oracle.block_busy(run, scope["layer_kind"], scope["rank"], scope["step"]))
    for row in table.to_pylist():
        assert row["busy_ns"] + row["idle_ns"] == row["wall_ns"]
        assert row["loading_ns"] + row["waiting_ns"] + row["rest_ns"] == row["idle_ns"]


@given(questions())
@settings(max_examples=200, deadline=None)
def test_stops_are_the_oracles(question: Question) -> None:
    run, scope = question
    if scope["rank"] is not None:
        scope = {"layer_kind": None, "step": None}
    table = analysis.stops(run, layer_kind=scope["layer_kind"], step=scope["step"])
    check(run, table, oracle.stops(run, scope["layer_kind"], scope["step"]))


@given(questions())
@settings(max_examples=200, deadline=None)
def test_arrivals_are_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.arrivals(run, scope["layer_kind"], scope["rank"], scope["step"])
    check(run, analysis.arrivals(run, **scope), expected)


@given(questions())
@settings(max_examples=200, deadline=None)
def test_ring_ahead_is_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.ring_ahead(run, scope["layer_kind"], scope["rank"], scope["step"])
    check(run, analysis.ring_ahead(run, **scope), expected)


def reported_share(run: FakeRun, kind: str) -> float:
    """Blocks of a kind's launches that reported; a missing rank should have had what another has."""
    by_rank = [[x for x in run.all_launches if x.rank == rank and x.kind == kind] for rank in run.ranks]
    there = sum(min(x.blocks, run.blocks) for of in by_rank for x in of if x.stamped)
    expected = sum(map(len, by_rank)) + len(run.missing) * max(map(len, by_rank))
    return there / (expected * run.blocks)


@given(runs())
@settings(max_examples=80, deadline=None)
def test_launch_times_are_the_oracles(run: FakeRun) -> None:
    stamped = [x for rank in run.ranks for x in run.all_launches if x.rank == rank and x.stamped]
    after = {(x.rank, x.step, x.launch): x for x in stamped}
    rows = []
    for kind in dict.fromkeys(x.kind for x in stamped):
        mine = [x for x in stamped if x.kind == kind]
        pairs = [(x, after.get((x.rank, x.step, x.launch + 1))) for x in mine]
        gaps = [(successor.begin - x.end, (x.step, x.launch)) for x, successor in pairs if successor]
        rows.append(
            {
                "kind": kind,
                "layers": len({x.layer for x in mine}),
                "n": len(mine),
                **oracle.spread("launch", [(x.end - x.begin, (x.step, x.launch)) for x in mine], run.tick_ns),
                "gap_n": len(gaps),
                **oracle.spread("gap", gaps, run.tick_ns),
                "observed": reported_share(run, kind),
            }
        )
    assert analysis.launch_times(run).to_pylist() == rows


def test_step_times_tell_device_and_host_apart() -> None:
    steps = [Launch(0, step, 0, 0, "sliding", 10, 100 + step, 1) for step in range(10)]
    device, host = analysis.step_times(FakeRun(steps, [], 1, (0,), tick_ns=32)).to_pylist()
    times = ("step_p10_ns", "step_p50_ns", "step_p90_ns", "step_mean_ns")
    assert [device[name] for name in ("clock", "n", *times)] == ["device", 10, 100, 104, 108, 105]
    # 32 / sqrt(10) is 10.1; the host's times are no stamps.
    assert (device["step_uncertainty_ns"], device["step_mean_uncertainty_ns"]) == (32, 11)
    assert (host["step_uncertainty_ns"], host["step_mean_uncertainty_ns"]) == (None, None)
    # The fake's host clock: 40 ns for step 0, 7 ns more for each step after it; the mean is 71.5.
    assert [host[name] for name in ("clock", "n", *times)] == ["host", 10, 40, 68, 96, 72]


class HostClock(FakeRun):
    """A run whose recorder measured the host's clock."""

    @property
    def manifest(self) -> dict[str, Any]:
        return {**super().manifest, "host_tick_ns": 4}


def test_host_times_are_as_certain_as_the_hosts_clock_where_that_was_measured() -> None:
    steps = [Launch(0, step, 0, 0, "sliding", 10, 100 + step, 1) for step in range(10)]
    device, host = analysis.step_times(HostClock(steps, [], 1, (0,), tick_ns=32)).to_pylist()
    assert (device["step_uncertainty_ns"], host["step_uncertainty_ns"]) == (32, 4)


@pytest.mark.parametrize(
    "question",
    [
        analysis.op_timeline,
        analysis.block_busy,
        analysis.stops,
        analysis.ring_ahead,
        analysis.launch_times,
        analysis.step_times,
    ],
)
def test_an_empty_run_gives_an_empty_table(question: Any) -> None:
    table = question(EMPTY)
    assert table.num_rows == 0
    assert analysis.ignored_spans(table) == 0


SOME = FakeRun([Launch(0, 3, 0, 0, "sliding", 1, 9, 1), Launch(1, 4, 0, 0, "entry", 1, 9, 1)], [], 1, (0, 1))


@pytest.mark.parametrize("question", [analysis.op_timeline, analysis.block_busy, analysis.ring_ahead])
@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ({"rank": 2}, "no rank 2 in this run: it has 0-1"),
        ({"step": 9}, "no step 9 in this run: it has 3-4"),
        ({"step": 4, "rank": 0}, "no step 4 in this run: it has 3"),
        ({"layer_kind": "head"}, "no launch of kind 'head' in what was chosen: it has entry, sliding"),
        ({"layer_kind": "entry", "rank": 0}, "no launch of kind 'entry' in what was chosen: it has sliding"),
    ],
)
def test_a_scope_that_the_run_does_not_have_is_refused(
    question: Any, scope: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnalysisError) as refused:
        question(SOME, **scope)
    assert str(refused.value) == message


def test_a_block_beyond_the_run_is_left_out_and_counted() -> None:
    spans = [Span(0, 0, 0, 0, 2, 1, 4), Span(0, 0, 0, 7, 2, 1, 4)]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 9, 1)], spans, 1, (0,))
    for question in (analysis.op_timeline, analysis.block_busy, analysis.ring_ahead, analysis.stops):
        assert analysis.ignored_spans(question(run)) == 1
    assert analysis.op_timeline(run)["n"].to_pylist() == [1]


def test_the_ring_running_ahead_is_told_by_op_boundaries() -> None:
    # b_load begins while a computes, 30 ns before b does; a_load begins before anything computed.
    spans = [
        Span(0, 0, 0, 0, 0, 10, 5),
        Span(0, 0, 0, 0, 2, 20, 20),
        Span(0, 0, 0, 0, 5, 25, 5),
        Span(0, 0, 0, 0, 6, 55, 10),
    ]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 99, 1)], spans, 1, (0,))
    first, second = analysis.ring_ahead(run).to_pylist()
    assert (first["load"], first["ahead_p50_ns"], first["ops_between_p50"]) == ("a_load", 10, 0)
    assert first["during_op"] is None
    assert (second["load"], second["ahead_p50_ns"], second["ops_between_p50"]) == ("b_load", 30, 1)
    assert (second["during_op"], second["during_share"]) == ("a", 1.0)


def test_a_ring_boundary_is_an_end_after_the_load_and_not_after_the_compute() -> None:
    def between(*computes: Span) -> int:
        spans = [Span(0, 0, 0, 0, 5, 20, 5), *computes]  # b_load begins at 20
        run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 99, 1)], spans, 1, (0,))
        row = {row["load"]: row for row in analysis.ring_ahead(run).to_pylist()}["b_load"]
        crossed: int = row["ops_between_p50"]
        return crossed

    b_compute = Span(0, 0, 0, 0, 6, 30, 5)
    assert between(b_compute) == 0
    assert between(b_compute, Span(0, 0, 0, 0, 2, 10, 20)) == 1  # a ends when b begins
    assert between(b_compute, Span(0, 0, 0, 0, 2, 10, 21)) == 0  # a is not over when b begins
    assert between(b_compute, Span(0, 0, 0, 0, 2, 10, 10)) == 0  # a is over when the load begins
    assert between(b_compute, Span(0, 0, 0, 0, 2, 10, 15), Span(0, 0, 0, 0, 10, 26, 4)) == 2  # a and stop1
    assert between(Span(0, 0, 0, 0, 6, 30, 0)) == 0  # b's own end is no boundary


def last(*send_ends: int, tick_ns: int | None = 1) -> tuple[list[float | None], list[float | None]]:
    """``last_share`` and ``tied_share`` by rank, of one launch. A step begins 2 ns later on each rank."""
    launches = [Launch(rank, 0, 0, 0, "sliding", 1, 99, 1) for rank in range(len(send_ends))]
    spans = [Span(rank, 0, 0, 0, 7, 10, end - 10) for rank, end in enumerate(send_ends)]
    spans += [Span(rank, 0, 0, 0, 8, 20, 5) for rank in range(len(send_ends))]
    table = analysis.stops(FakeRun(launches, spans, 1, tuple(range(len(send_ends))), tick_ns=tick_ns))
    return table["last_share"].to_pylist(), table["tied_share"].to_pylist()


def test_the_last_rank_is_the_one_whose_send_ends_last_on_the_common_clock() -> None:
    assert last(20, 20) == ([0, 1], [0, 0])
    assert last(23, 20) == ([1, 0], [0, 0])
    assert last(22, 20) == ([0, 0], [1, 1])
    assert last(24, 22, 18) == ([0, 0, 0], [1, 1, 0])
    assert last(24) == ([None], [None])


def test_no_rank_is_last_by_less_than_a_tick_or_by_a_clock_of_unknown_tick() -> None:
    assert last(53, 20, tick_ns=32) == ([0, 0], [1, 1])  # 31 ns later
    assert last(54, 20, tick_ns=32) == ([1, 0], [0, 0])
    assert last(99, 80, 20, tick_ns=32) == ([0, 0, 0], [1, 1, 0])
    assert last(90, 20, tick_ns=None) == ([None, None], [None, None])


def during(
    a_begin: int, load_begin: int, tick_ns: int | None
) -> tuple[str | None, float | None, float | None]:
    """During which op b_load begins, in which share, and the share in which it is not clear."""
    spans = [Span(0, 0, 0, 0, 2, a_begin, 5), Span(0, 0, 0, 0, 5, load_begin, 5), Span(0, 0, 0, 0, 6, 400, 5)]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 999, 1)], spans, 1, (0,), tick_ns=tick_ns)
    (row,) = analysis.ring_ahead(run).to_pylist()
    return row["during_op"], row["during_share"], row["during_unclear_share"]


def test_a_load_is_issued_during_the_op_that_began_a_tick_before_it() -> None:
    assert during(20, 21, 1) == ("a", 1, 0)
    assert during(20, 52, 32) == ("a", 1, 0)
    assert during(20, 51, 32) == (None, None, 1)
    assert during(52, 20, 32) == (None, 1, 0)  # before any compute
    assert during(51, 20, 32) == (None, None, 1)
    assert during(20, 300, None) == (None, None, None)


def test_op_boundaries_within_a_tick_are_a_range() -> None:
    def crossed(a_end: int) -> list[int | None]:
        spans = [
            Span(0, 0, 0, 0, 2, 10, a_end - 10),
            Span(0, 0, 0, 0, 5, 100, 5),
            Span(0, 0, 0, 0, 6, 300, 5),
        ]
        run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 999, 1)], spans, 1, (0,), tick_ns=32)
        (row,) = analysis.ring_ahead(run).to_pylist()
        return [row[f"ops_between_{name}p50"] for name in ("low_", "", "high_")]

    assert crossed(200) == [1, 1, 1]
    assert crossed(300) == [0, 1, 1]  # ends in the tick in which b begins
    assert crossed(320) == [0, 0, 1]
    assert crossed(332) == [0, 0, 0]
    assert crossed(120) == [0, 1, 1]  # ends less than a tick after the load begins
    assert crossed(68) == [0, 0, 0]


def test_spans_shorter_than_the_tick_are_counted_and_kept() -> None:
    lengths = (0, 0, 31, 32, 33)
    spans = [Span(0, 0, 0, block, 2, 100, length) for block, length in enumerate(lengths)]
    launches = [Launch(0, 0, 0, 0, "sliding", 1, 999, 5)]
    for tick_ns, below in ((32, 3), (1, 2), (None, None)):
        run = FakeRun(launches, spans, 5, (0,), tick_ns=tick_ns)
        for question in (analysis.op_timeline, analysis.block_busy, analysis.ring_ahead, analysis.stops):
            assert analysis.below_tick_spans(question(run)) == below
        assert analysis.op_timeline(run)["n"].to_pylist() == [5]


def test_an_instant_is_not_a_span_shorter_than_the_tick() -> None:
    table = small_table()
    jobs = (replace(table.jobs[0], instant=True), *table.jobs[1:])
    spans = [Span(0, 0, 0, 0, 0, 100, 0), Span(0, 0, 0, 0, 2, 100, 0), Span(0, 0, 0, 0, UNKNOWN_JOB, 100, 0)]
    launches = [Launch(0, 0, 0, 0, "sliding", 1, 999, 1)]
    run = FakeRun(launches, spans, 1, (0,), job_table=replace(table, jobs=jobs), tick_ns=32)
    assert analysis.below_tick_spans(analysis.block_busy(run)) == 2


def test_a_run_whose_every_span_and_launch_has_no_length_is_answered() -> None:
    launches = [Launch(rank, 0, 0, 0, "sliding", 1, 1, 1) for rank in (0, 1)]
    spans = [Span(rank, 0, 0, 0, job, 1, 0) for rank in (0, 1) for job in range(12)]
    run = FakeRun(launches, spans, 1, (0, 1), tick_ns=32)
    assert {row["dur_mean_ns"] for row in analysis.op_timeline(run).to_pylist()} == {0}
    assert {row["dur_mean_uncertainty_ns"] for row in analysis.op_timeline(run).to_pylist()} == {32}
    assert {(row["wall_ns"], row["idle_ns"]) for row in analysis.block_busy(run).to_pylist()} == {(0, 0)}
    assert analysis.launch_times(run)["launch_p50_ns"].to_pylist() == [0]
    assert analysis.stops(run)["wait_p50_ns"].to_pylist() == [0, 0]
    assert analysis.ring_ahead(run)["ahead_p50_ns"].to_pylist() == [0, 0, 0]


def test_there_is_no_gap_between_launches_of_two_steps() -> None:
    # Step 1 lost its launch 0, so that its first launch has the number after that of step 0.
    launches = [Launch(0, 0, 0, 0, "sliding", 1, 9, 1), Launch(0, 1, 1, 1, "sliding", 1, 9, 1)]
    assert analysis.launch_times(FakeRun(launches, [], 1, (0,)))["gap_n"].to_pylist() == [0]


def test_one_step_can_be_asked_for() -> None:
    steps = [Launch(0, step, 0, 0, "sliding", 10, 100 + step, 1) for step in (2, 5)]
    run = FakeRun(steps, [], 1, (0,))
    assert analysis.step_times(run, step=5)["step_p50_ns"].to_pylist() == [105, 75]
    with pytest.raises(AnalysisError, match="no step 3 in this run: it has 2, 5"):
        analysis.step_times(run, step=3)
