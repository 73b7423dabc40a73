"""Idle time by cause, and behind each op: against a slow oracle, and a few cases by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit import idle_oracle as oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span

A_WAIT, A_COMPUTE, B_LOAD, B_COMPUTE, STOP_WAIT, SUM, B_WAIT_A, B_WAIT_WAIT = 1, 2, 5, 6, 8, 9, 12, 13


@given(questions())
@settings(max_examples=300, deadline=None)
def test_idle_is_the_oracles_and_sums_up_to_what_the_blocks_are_not_busy(
    question: tuple[FakeRun, dict[str, Any]],
) -> None:
    run, scope = question
    table = analysis.idle(run, **scope)
    assert table.to_pylist() == oracle.idle(run, scope)
    blocks = analysis.block_busy(run, **scope)
    assert sum(table["total_ns"].to_pylist()) == sum(blocks["idle_ns"].to_pylist())
    assert analysis.ignored_spans(table) == analysis.ignored_spans(blocks)


@given(questions(), st.sampled_from([0, 1, 2, 5, 50]), st.sampled_from([0, 2, 4, 50]))
@settings(max_examples=200, deadline=None)
def test_idle_under_thresholds_is_the_oracles_and_none_is_left_out(
    question: tuple[FakeRun, dict[str, Any]], shortest_ns: int, head_ns: int
) -> None:
    run, scope = question
    table = analysis.idle(run, **scope, shortest_ns=shortest_ns, head_ns=head_ns)
    assert table.to_pylist() == oracle.idle(run, scope, shortest_ns, head_ns)
    blocks = analysis.block_busy(run, **scope)
    assert sum(table["total_ns"].to_pylist()) == sum(blocks["idle_ns"].to_pylist())


def test_thresholds_change_what_they_say_and_nothing_else() -> None:
    """Idle: 4 before the first; a gap of 6 with a wait of 3 and a load of 2; a wait of 10; 7 at the end."""
    spans = [
        Span(0, 0, 0, 0, A_COMPUTE, 4, 6),
        Span(0, 0, 0, 0, A_WAIT, 10, 3),
        Span(0, 0, 0, 0, B_LOAD, 13, 2),
        Span(0, 0, 0, 0, A_COMPUTE, 16, 4),
        Span(0, 0, 0, 0, B_WAIT_A, 20, 10),
        Span(0, 0, 0, 0, B_COMPUTE, 30, 3),
    ]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 0, 40, 1)], spans, 1, (0,))

    def told(**thresholds: int) -> dict[str, int]:
        rows = analysis.idle(run, **thresholds).to_pylist()
        return {row["wait"] or row["cause"]: row["total_ns"] for row in rows}

    everything = {"a_wait_weights": 3, "b_wait_a": 10, "head": 4, "tail": 7, "load_only": 2, "unlabelled": 1}
    assert told() == told(shortest_ns=0, head_ns=0) == told(shortest_ns=4, head_ns=4) == everything
    assert told(shortest_ns=5) == {**without(everything, "head"), "short": 4}
    short = without(everything, "head", "a_wait_weights", "load_only", "unlabelled")
    assert told(shortest_ns=7) == {**short, "short": 4 + 6}  # the gap of 6 as a whole
    assert told(shortest_ns=8) == {"b_wait_a": 10, "short": 4 + 6 + 7}
    assert told(head_ns=5) == {**without(everything, "head"), "unlabelled": 1 + 4}
    assert told(shortest_ns=5, head_ns=5) == {**without(everything, "head"), "short": 4}


def without(of: dict[str, int], *names: str) -> dict[str, int]:
    return {name: value for name, value in of.items() if name not in names}


@pytest.mark.parametrize("name", ["shortest_ns", "head_ns"])
def test_a_negative_threshold_is_refused(name: str) -> None:
    with pytest.raises(AnalysisError, match=f"{name} is -1: give 0 ns or more"):
        analysis.idle(FakeRun([], [], 1, ()), **{name: -1})


crowd = st.lists(
    st.builds(
        lambda job, begin, dur, warp: Span(0, 0, 0, 0, job, begin, dur, 0, warp),
        st.sampled_from([A_WAIT, STOP_WAIT, B_WAIT_A, B_WAIT_WAIT, A_WAIT, STOP_WAIT, A_COMPUTE, SUM]),
        st.integers(0, 20),
        st.integers(0, 8),
        st.sampled_from([0, 1, 2]),
    ),
    min_size=8,
    max_size=20,
)


@given(crowd)
@settings(max_examples=200, deadline=None)
def test_the_cause_among_many_waits_is_the_oracles(spans: list[Span]) -> None:
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 27, 1)], spans, 1, (0,))
    scope = {"layer_kind": None, "rank": None, "step": None}
    assert analysis.idle(run).to_pylist() == oracle.idle(run, scope)


@given(questions())
@settings(max_examples=200, deadline=None)
def test_idle_after_an_op_is_the_oracles(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    expected = oracle.idle_after(run, scope)
    rows = analysis.idle_after(run, **scope).to_pylist()
    assert {row["op"] for row in rows} == set(expected)
    for row in rows:
        assert {name: row[name] for name in expected[row["op"]]} == expected[row["op"]]
        assert (row["total_uncertainty_ns"] is None) == (run.tick_ns is None)


def idle_of(*spans: Span, end: int = 101, blocks: int = 1, tick_ns: int = 1) -> dict[str, int]:
    """Idle ns by cause or wait of one launch from 1 to ``end``."""
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, end, blocks)], spans, blocks, (0,), tick_ns=tick_ns)
    return {row["wait"] or row["cause"]: row["total_ns"] for row in analysis.idle(run).to_pylist()}


def on(job: int, begin: int, end: int, warp: int = 0, block: int = 0) -> Span:
    return Span(0, 0, 0, block, job, begin, end - begin, 0, warp)


def test_every_cause_has_its_piece() -> None:
    spans = [
        on(A_COMPUTE, 11, 31),
        on(STOP_WAIT, 31, 51),
        on(SUM, 51, 61),
        on(B_LOAD, 65, 71),
        on(SUM, 71, 91),
    ]
    assert idle_of(*spans) == {
        "stop1_wait_ranks": 20,
        "head": 10,
        "tail": 10,
        "load_only": 6,
        "unlabelled": 4,
    }


def test_a_block_without_a_span_is_unlabelled_throughout() -> None:
    assert idle_of(on(A_COMPUTE, 1, 101), blocks=2) == {"unlabelled": 100}


def test_the_wait_of_the_warp_that_works_next_is_the_cause() -> None:
    first, second = on(A_WAIT, 1, 40, warp=0), on(STOP_WAIT, 1, 40, warp=1)
    assert idle_of(first, second, on(A_COMPUTE, 45, 101, 0), on(SUM, 46, 101, 1)) == {
        "a_wait_weights": 39,
        "unlabelled": 5,
    }
    assert idle_of(first, second, on(A_COMPUTE, 47, 101, 0), on(SUM, 46, 101, 1)) == {
        "stop1_wait_ranks": 39,
        "unlabelled": 6,
    }


def test_a_wait_that_no_work_of_its_warp_follows_comes_after_others() -> None:
    loader = on(A_WAIT, 1, 20, warp=0)
    assert idle_of(loader, on(STOP_WAIT, 1, 40, 1), on(SUM, 40, 101, 1)) == {"stop1_wait_ranks": 39}
    assert idle_of(loader, on(SUM, 20, 101, 1)) == {"a_wait_weights": 19}


def test_a_wait_for_a_wait_comes_after_the_one_it_waits_for() -> None:
    sender = [on(B_WAIT_WAIT, 1, 40, warp=3), on(SUM, 40, 101, warp=3)]
    assert idle_of(*sender, on(B_WAIT_A, 1, 39), on(B_COMPUTE, 90, 101)) == {"b_wait_a": 38, "b_wait_wait": 1}


def test_what_several_waits_cover_is_contested() -> None:
    spans = [on(A_WAIT, 1, 40, 0), on(STOP_WAIT, 30, 40, 1), on(A_COMPUTE, 40, 101, 0)]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 101, 1)], spans, 1, (0,))
    (row,) = analysis.idle(run).to_pylist()
    assert (row["total_ns"], row["contested_ns"]) == (39, 10)


def test_idle_gathers_behind_the_op_that_ends_early() -> None:
    # a ends at 41 and b at 61 of 1 to 101; idle are 10 ns before a and 30 after b.
    spans = [on(A_COMPUTE, 11, 41), on(B_COMPUTE, 41, 61), on(SUM, 91, 101)]
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 101, 1)], spans, 1, (0,))
    rows = {row["op"]: row for row in analysis.idle_after(run).to_pylist()}
    assert {op: (row["after_p50_ns"], row["idle_p50_ns"]) for op, row in rows.items()} == {
        "a": (60, 30),
        "b": (40, 30),
        "stop1": (0, 0),
    }
    assert rows["b"]["share"] == pytest.approx(30 / 40)
    assert rows["b"]["share_of_time"] == pytest.approx(40 / 100)


@pytest.mark.parametrize("question", [analysis.idle, analysis.idle_after])
def test_an_empty_run_is_never_idle(question: Any) -> None:
    table = question(FakeRun([], [], blocks=4, ranks=()))
    assert table.num_rows == 0
    assert question(FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 1, 1)], [], 1, (0,))).num_rows == 0
