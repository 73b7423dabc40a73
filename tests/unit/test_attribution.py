"""Waits matched with producers: against a slow oracle, a few cases by hand, and a delay on the CPU device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.errors import AnalysisError
from musetrace.job_table import JobTable
from tests.unit import attribution_oracle as oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span, small_table

A_LOAD, A_WAIT, A_MERGE, B_SEND, STOP_WAIT, B_WAIT_A = 0, 1, 3, 7, 8, 12
ITERATING = small_table()
ITERATING = replace(
    ITERATING,
    jobs=tuple(
        replace(job, iterations=2) if at in (A_LOAD, A_WAIT, A_MERGE, B_WAIT_A) else job
        for at, job in enumerate(ITERATING.jobs)
    ),
)


def with_scope(table: JobTable, scope: str | None) -> JobTable:
    """All waits declare it."""
    jobs = (replace(job, scope=scope) if job.kind == "wait" else job for job in table.jobs)
    return replace(table, jobs=tuple(jobs))


@given(questions(), st.booleans(), st.sampled_from([None, None, "block", "rank", "ranks"]))
@settings(max_examples=200, deadline=None)
def test_attribution_is_the_oracles_and_every_wait_is_accounted_for(
    question: tuple[FakeRun, dict[str, Any]], iterates: bool, declared: str | None
) -> None:
    run, scope = question
    if iterates:
        run = replace(run, job_table=ITERATING)
    run = replace(run, job_table=with_scope(run.job_table, declared))
    table = analysis.attribution(run, **scope)
    assert table.to_pylist() == [dict_in_order(table, row) for row in oracle.attribution(run, scope)]
    for row in table.to_pylist():
        parts = (row[f"{part}_ns"] for part in ("before", "after", "under_way", "unmatched"))
        assert sum(parts) == row["total_ns"]


def dict_in_order(table: Any, row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in table.schema.names}


LAUNCHES = [Launch(rank, 0, 0, 0, "sliding", 1, 999, 2) for rank in (0, 1)]


def ask(*spans: Span, blocks: int = 2, ranks: tuple[int, ...] = (0, 1), **more: Any) -> dict[str, Any]:
    """The only row of a launch of several ranks; the fake's rank 1 begins its step 2 ns later than rank 0."""
    run = FakeRun([x for x in LAUNCHES if x.rank in ranks], spans, blocks, ranks, **more)
    (row,) = analysis.attribution(run).to_pylist()
    return row


def on(job: int, begin: int, end: int, rank: int = 0, block: int = 0) -> Span:
    return Span(rank, 0, 0, block, job, begin, end - begin)


def test_a_stop_is_put_down_to_the_last_block_of_all_ranks() -> None:
    sends = [on(B_SEND, 10, 20 + 5 * block + 10 * rank, rank, block) for rank in (0, 1) for block in (0, 1)]
    row = ask(*sends, on(STOP_WAIT, 20, 45))
    # Rank 1's block 1 sends until 35 of its own time, which is 37 of rank 0's.
    assert (row["scope"], row["before_ns"], row["after_ns"]) == ("ranks", 17, 8)
    assert row["last_blocks"] == [{"rank": 1, "block": 1, "share": 1}]
    assert row["last_ranks"] == [{"rank": 1, "share": 1}]


def test_what_ends_within_a_tick_is_not_told_apart() -> None:
    sends = [on(B_SEND, 10, 64, 0, 0), on(B_SEND, 10, 95, 0, 1)]
    row = ask(*sends, on(STOP_WAIT, 20, 128), ranks=(0,), tick_ns=32)
    assert (row["cannot_tell_share"], row["last_blocks"]) == (1, [])
    row = ask(sends[0], sends[1]._replace(dur=86), on(STOP_WAIT, 20, 128), ranks=(0,), tick_ns=32)
    assert (row["cannot_tell_share"], row["last_blocks"]) == (0, [{"rank": 0, "block": 1, "share": 1}])


def test_a_rank_that_is_missing_or_not_aligned_leaves_the_last_open() -> None:
    spans = [on(B_SEND, 10, 20), on(B_SEND, 10, 30, 1), on(STOP_WAIT, 20, 45)]
    assert ask(*spans, missing=(5,))["last_blocks"] is None
    alien = {rank: {"clock": rank, "error_ns": None if rank else 0} for rank in (0, 1)}
    alignment = {
        rank: {**told, "measured_at_ns": [0], "offsets_ns": [0], "method": "unknown"}
        for rank, told in alien.items()
    }
    row = ask(*spans, alignment=alignment)
    assert (row["cannot_tell_share"], row["last_blocks"], row["before_ns"]) == (1, [], 0)


def test_a_launch_that_a_rank_lost_leaves_the_last_open() -> None:
    spans = [on(B_SEND, 10, 20), on(B_SEND, 10, 30, block=1), on(STOP_WAIT, 20, 45)]
    both = FakeRun(LAUNCHES, spans, 2, (0, 1))
    one = FakeRun([x for x in LAUNCHES if x.rank == 0], spans, 2, (0, 1))
    assert analysis.attribution(both)["last_ranks"].to_pylist() == [[{"rank": 0, "share": 1}]]
    assert analysis.attribution(one)["last_ranks"].to_pylist() == [[]]
    assert analysis.attribution(one)["cannot_tell_share"].to_pylist() == [1]


def test_only_who_was_last_often_enough_is_named() -> None:
    # In three of four launches block 1 is the last to send, in one block 0.
    launches = [Launch(0, 0, number, number, "sliding", 0, 99, 2) for number in range(4)]
    spans = [Span(0, 0, number, 0, STOP_WAIT, 20, 40) for number in range(4)]
    for number in range(4):
        spans += [
            Span(0, 0, number, 0, B_SEND, 10, 20),
            Span(0, 0, number, 1, B_SEND, 10, 30 if number else 5),
        ]
    run = FakeRun(launches, spans, 2, (0,))

    def named(least: float) -> list[tuple[int, float]]:
        (row,) = analysis.attribution(run, least_last_share=least).to_pylist()
        assert row["cannot_tell_share"] == 0
        assert (row["n"], row["total_ns"], row["last_n"]) == (4, 160, 4)
        return [(one["block"], one["share"]) for one in row["last_blocks"]]

    assert named(0) == named(0.25) == [(1, 0.75), (0, 0.25)]
    assert named(0.26) == named(0.75) == [(1, 0.75)]
    assert named(0.76) == []
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(AnalysisError, match="give one from 0 to 1"):
            analysis.attribution(run, least_last_share=wrong)


def test_a_load_is_for_its_own_block() -> None:
    row = ask(on(A_LOAD, 10, 20, block=0), on(A_LOAD, 10, 30, block=1), on(A_WAIT, 15, 35), ranks=(0,))
    assert (row["scope"], row["before_ns"], row["last_blocks"]) == ("block", 5, None)


def test_the_scope_is_the_narrowest_that_accounts_for_the_wait() -> None:
    wait = on(B_WAIT_A, 10, 35)
    own, other = on(A_MERGE, 1, 30, block=0), on(A_MERGE, 1, 33, block=1)
    assert ask(own, other, wait, ranks=(0,))["scope"] == "block"
    assert ask(own._replace(dur=15), other, wait, ranks=(0,))["scope"] == "rank"
    assert ask(own._replace(dur=15), other._replace(rank=1), wait)["scope"] == "ranks"


def test_a_declared_scope_is_taken_whatever_the_times_say() -> None:
    own, other, wait = on(A_MERGE, 1, 16, block=0), on(A_MERGE, 1, 33, block=1), on(B_WAIT_A, 10, 35)
    for scope, before_ns in (("block", 6), ("rank", 23)):
        row = ask(own, other, wait, ranks=(0,), job_table=with_scope(small_table(), scope))
        assert (row["scope"], row["before_ns"]) == (scope, before_ns)


def test_a_wait_for_a_piece_of_a_long_load_is_said_to_be_one() -> None:
    row = ask(on(A_LOAD, 10, 200), on(A_WAIT, 15, 35), ranks=(0,))
    assert (row["under_way_n"], row["under_way_ns"], row["last_n"]) == (1, 20, 0)


def test_a_scope_that_the_run_does_not_have_is_refused() -> None:
    run = FakeRun(LAUNCHES, [], 2, (0, 1))
    with pytest.raises(AnalysisError, match="no rank 7 in this run: it has 0-1"):
        analysis.attribution(run, rank=7)
    assert analysis.attribution(FakeRun([], [], blocks=4, ranks=())).num_rows == 0
