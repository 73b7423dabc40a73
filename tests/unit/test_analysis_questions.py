"""Every answer of the analysis against a slow oracle in plain Python, on random small runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit import analysis_oracle as oracle
from tests.unit.analysis_traces import questions, runs
from tests.unit.fake_run import FakeRun, Launch, Span

EMPTY = FakeRun([], [], blocks=4, ranks=())
Question = tuple[FakeRun, dict[str, Any]]


def check(table: pa.Table, expected: tuple[list[dict[str, Any]], int]) -> None:
    rows, ignored = expected
    assert table.to_pylist() == rows
    assert analysis.ignored_spans(table) == ignored
    assert table.schema.metadata[b"tick_ns"] == b"32"


@given(questions())
@settings(max_examples=200, deadline=None)
def test_op_timeline_is_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.op_timeline(run, scope["layer_kind"], scope["rank"], scope["step"])
    check(analysis.op_timeline(run, **scope), expected)


@given(questions())
@settings(max_examples=200, deadline=None)
def test_block_busy_is_the_oracles(question: Question) -> None:
    run, scope = question
    table = analysis.block_busy(run, **scope)
    check(table, oracle.block_busy(run, scope["layer_kind"], scope["rank"], scope["step"]))
    for row in table.to_pylist():
        assert row["busy_ns"] + row["idle_ns"] == row["wall_ns"]
        assert 0 <= row["loading_ns"] + row["waiting_ns"] <= row["idle_ns"]


@given(questions())
@settings(max_examples=200, deadline=None)
def test_stops_are_the_oracles(question: Question) -> None:
    run, scope = question
    if scope["rank"] is not None:
        scope = {"layer_kind": None, "step": None}
    table = analysis.stops(run, layer_kind=scope["layer_kind"], step=scope["step"])
    rows, ignored = oracle.stops(run, scope["layer_kind"], scope["step"])
    for row in rows:
        row["last_share"] = (
            row["last_share"] if row["last_share"] is None else pytest.approx(row["last_share"])
        )
    check(table, (rows, ignored))


@given(questions())
@settings(max_examples=200, deadline=None)
def test_ring_ahead_is_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.ring_ahead(run, scope["layer_kind"], scope["rank"], scope["step"])
    check(analysis.ring_ahead(run, **scope), expected)


@given(runs())
@settings(max_examples=80, deadline=None)
def test_launch_times_are_the_oracles(run: FakeRun) -> None:
    stamped = [x for rank in run.ranks for x in run.all_launches if x.rank == rank and x.stamped]
    after = {(x.rank, x.step, x.launch): x for x in stamped}
    rows = []
    for kind in dict.fromkeys(x.kind for x in stamped):
        mine = [x for x in stamped if x.kind == kind]
        pairs = [(x, after.get((x.rank, x.step, x.launch + 1))) for x in mine]
        gaps = [successor.begin - x.end for x, successor in pairs if successor]
        rows.append(
            {
                "kind": kind,
                "layers": len({x.layer for x in mine}),
                "n": len(mine),
                **oracle.tenths("launch", [x.end - x.begin for x in mine]),
                "gap_n": len(gaps),
                **oracle.tenths("gap", gaps),
            }
        )
    assert analysis.launch_times(run).to_pylist() == rows


def test_step_times_tell_device_and_host_apart() -> None:
    steps = [Launch(0, step, 0, 0, "sliding", 10, 100 + step, 1) for step in range(10)]
    device, host = analysis.step_times(FakeRun(steps, [], 1, (0,))).to_pylist()
    assert device == {"clock": "device", "n": 10, "step_p10_ns": 100, "step_p50_ns": 104, "step_p90_ns": 108}
    # The fake's host clock: 40 ns for step 0, 7 ns more for each step after it.
    assert host == {"clock": "host", "n": 10, "step_p10_ns": 40, "step_p50_ns": 68, "step_p90_ns": 96}


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


def test_the_last_rank_is_the_one_whose_send_ends_last_on_the_common_clock() -> None:
    def last(*send_ends: int) -> list[float]:
        launches = [Launch(rank, 0, 0, 0, "sliding", 1, 99, 1) for rank in range(len(send_ends))]
        spans = [Span(rank, 0, 0, 0, 7, 10, end - 10) for rank, end in enumerate(send_ends)]
        spans += [Span(rank, 0, 0, 0, 8, 20, 5) for rank in range(len(send_ends))]
        run = FakeRun(launches, spans, 1, tuple(range(len(send_ends))))
        return analysis.stops(run)["last_share"].to_pylist()

    # The fake's steps begin 2 ns later on each rank.
    assert last(20, 20) == [0, 1]
    assert last(23, 20) == [1, 0]
    assert last(22, 20) == [0.5, 0.5]
    assert last(24, 22, 18) == [0.5, 0.5, 0]
    assert last(24) == [None]


def test_a_load_is_issued_during_the_op_that_began_with_it() -> None:
    spans = [Span(0, 0, 0, 0, 2, 20, 5), Span(0, 0, 0, 0, 5, 20, 5), Span(0, 0, 0, 0, 6, 30, 5)]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 99, 1)], spans, 1, (0,))
    assert analysis.ring_ahead(run)["during_op"].to_pylist() == ["a"]


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
