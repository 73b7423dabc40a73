"""Idle time by block and cause, and the longest pieces of a cause: against slow oracles."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit import attribution_oracle, idle_oracle
from tests.unit.analysis_oracle import BUSY, aligned, clocks_apart, in_scope, op_kind, root
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import BASE_NS, FakeRun, Launch, Span

A_WAIT, A_COMPUTE, SEND, STOP_WAIT, SUM = 1, 2, 7, 8, 9
Piece = tuple[idle_oracle.Key, Launch, list[int]]


def pieces_of(run: FakeRun, scope: dict[str, Any]) -> dict[int | str, list[Piece]]:
    """Every piece of idle time by cause: the nanoseconds that it is made of, from the step's base."""
    found: dict[int | str, list[Piece]] = defaultdict(list)
    for key, launch, spans in idle_oracle.instances(run, scope):
        causes = idle_oracle.causes(run, launch, spans)
        instants = {x.begin for x in spans if op_kind(run, x.job)[1] in BUSY}
        for at in sorted(causes):
            cause = causes[at][0]
            if at - 1 in causes and causes[at - 1][0] == cause and at not in instants:
                found[cause][-1][2].append(at)
            else:
                found[cause].append((key, launch, [at]))
    return found


@given(questions())
@settings(max_examples=200, deadline=None)
def test_idle_time_of_blocks_is_the_oracles(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    rows = analysis.idle_blocks(run, **scope).to_pylist()
    launches: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (rank, _, _, block), launch, _ in idle_oracle.instances(run, scope):
        launches[rank, block].append(launch.end - launch.begin)
    expected = {}
    for cause, pieces in pieces_of(run, scope).items():
        for place in {(key[0], key[3]) for key, _, _ in pieces}:
            mine = [(key, times) for key, _, times in pieces if (key[0], key[3]) == place]
            total = sum(len(times) for _, times in mine)
            numbers = [sum(key == one for key, _ in mine) for one in {key for key, _ in mine}]
            expected[(*place, cause)] = {
                **idle_oracle.names(run, cause),
                "launches": len(launches[place]),
                "wall_ns": sum(launches[place]),
                "total_ns": total,
                "total_uncertainty_ns": run.tick_ns and root(run.tick_ns, sum(k**2 for k in numbers)),
                "share_of_time": total / sum(launches[place]),
            }

    def number(cause: int | str) -> int:
        return 1 << 16 | idle_oracle.OTHERS.index(cause) if isinstance(cause, str) else cause

    order = sorted(expected, key=lambda one: (*one[:2], number(one[2])))
    assert rows == [{"rank": one[0], "block": one[1], **expected[one]} for one in order]
    whole = analysis.idle(run, **scope).to_pylist()
    assert sum(row["total_ns"] for row in rows) == sum(row["total_ns"] for row in whole)


@given(questions(), st.sampled_from([1, 2, 10]), st.data())
@settings(max_examples=250, deadline=None)
def test_examples_are_the_oracles(
    question: tuple[FakeRun, dict[str, Any]], most: int, data: st.DataObject
) -> None:
    run, scope = question
    found = pieces_of(run, scope)
    cause = data.draw(st.sampled_from([*found, "tail"]))
    name = cause if isinstance(cause, str) else run.job_table.jobs[cause].name
    rows = analysis.idle_examples(run, name, **scope, most=most).to_pylist()
    expected = sorted(
        found.get(cause, []), key=lambda one: (-len(one[2]), one[0][1], one[0][0], *one[0][2:], one[2][0])
    )
    assert len(rows) == min(most, len(expected))
    for row, ((rank, step, launch, block), of, times) in zip(rows, expected, strict=False):
        told = {"rank": rank, "step": step, "launch": launch, "block": block, "length_ns": len(times)}
        told |= {"layer": of.layer, "kind": of.kind, "begin_ns": times[0] - of.begin}
        told |= {**idle_oracle.names(run, cause), "length_uncertainty_ns": run.tick_ns}
        told["at_ns"] = aligned(run, rank, run.base_ns(rank, step) + times[0])
        assert {key: row[key] for key in told} == told
        check_place(run, row, rows)
        check_wait(run, row, scope, cause, times)


def check_place(run: FakeRun, row: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Lengths at least two ticks below the longest of a place have the next one."""
    longest = max(one["length_ns"] for one in rows if one["place"] == row["place"])
    if run.tick_ns is None:
        assert row["place"] == 1
        return
    assert longest - row["length_ns"] < 2 * run.tick_ns
    later = [one["length_ns"] for one in rows if one["place"] > row["place"]]
    assert all(longest - length >= 2 * run.tick_ns for length in later)


def check_wait(
    run: FakeRun, row: dict[str, Any], scope: dict[str, Any], cause: int | str, times: list[int]
) -> None:
    """The span that waits covers most of the piece; its producer is the one that attribution matches."""
    producer = [row[name] for name in ("producer", "producer_rank", "producer_block", "producer_span")]
    if isinstance(cause, str):
        assert [row["span"], *producer, row["late_ns"]] == [None] * 6
        return
    here = [x for x in run.all_spans if (x.rank, x.step) == (row["rank"], row["step"])]

    def shared(x: Span) -> int:
        return len({*times} & set(range(x.begin, x.begin + x.dur)))

    mine = [x for x in here if (x.launch, x.block, x.job, x.flag) == (row["launch"], row["block"], cause, 0)]
    wait = here[row["span"]]
    assert wait in mine
    assert shared(wait) == max(map(shared, mine))
    awaits = run.job_table.jobs[cause].awaits
    assert awaits is not None
    made = [x for x in in_scope(run, None, None, None)[1] if x.job == awaits]
    of = next(
        one
        for one in attribution_oracle.attribution(run, {**scope, "step": None})
        if one["wait"] == row["wait"]
    )
    match = attribution_oracle.match(run, wait, made, of["scope"], False)
    if match["end"] is None and not match["is_under_way"]:
        assert producer == [None] * 4
        return
    made_by = [x for x in run.all_spans if (x.rank, x.step) == (row["producer_rank"], row["step"])]
    late = made_by[row["producer_span"]]
    assert (late.job, late.block, late.launch, late.flag) == (awaits, row["producer_block"], wait.launch, 0)
    begin, _ = attribution_oracle.times(run, wait)
    if match["is_under_way"]:
        assert (row["producer"], row["late_ns"], row["late_uncertainty_ns"]) == ("under_way", None, None)
        return
    assert attribution_oracle.times(run, late)[1] == match["end"]
    is_open = of["scope"] == "ranks" and bool(run.missing)
    assert row["producer"] == ("tied" if match["tied"] or is_open else "ended")
    assert row["late_ns"] == match["end"] - begin
    off = clocks_apart(run, wait.rank, late.rank)
    assert row["late_uncertainty_ns"] == (None if run.tick_ns is None else run.tick_ns + off)


def test_an_example_by_hand() -> None:
    """Rank 1 sends late; on rank 0 block 1 waits for it longest, twice as long as block 0."""
    launches = [Launch(rank, 3, 0, 5, "sliding", 10, 110, 2) for rank in (0, 1)]
    spans = [
        Span(0, 3, 0, 0, A_COMPUTE, 10, 50),
        Span(0, 3, 0, 0, STOP_WAIT, 60, 20),
        Span(0, 3, 0, 0, SUM, 80, 30),
        Span(0, 3, 0, 1, A_COMPUTE, 10, 30),
        Span(0, 3, 0, 1, STOP_WAIT, 40, 45),
        Span(0, 3, 0, 1, SUM, 85, 25),
        Span(0, 3, 0, 0, SEND, 10, 5),
        Span(1, 3, 0, 0, SEND, 10, 60),
        Span(1, 3, 0, 1, SEND, 10, 65),
    ]
    run = FakeRun(launches, spans, 2, (0, 1))
    first, second = analysis.idle_examples(run, "stop1_wait_ranks").to_pylist()
    assert (first["block"], first["begin_ns"], first["length_ns"], first["span"]) == (1, 30, 45, 4)
    assert first["at_ns"] == run.base_ns(0, 3) + 40 == BASE_NS + 3_040
    assert (first["producer"], first["producer_rank"], first["producer_block"]) == ("ended", 1, 1)
    # Rank 1's base is 2 ns later: its send ends at 77, 37 ns after the wait began.
    assert (first["producer_span"], first["late_ns"], first["late_uncertainty_ns"]) == (1, 37, 1)
    assert (second["block"], second["length_ns"], second["late_ns"]) == (0, 20, 17)
    assert [first["place"], second["place"]] == [1, 2]


@pytest.mark.parametrize(("cause", "near"), [("stop1_wait", "did you mean stop1_wait_ranks"), ("x", "give")])
def test_a_cause_that_there_is_not_is_refused(cause: str, near: str) -> None:
    with pytest.raises(AnalysisError, match=near):
        analysis.idle_examples(FakeRun([], [], 1, ()), cause)


@pytest.mark.parametrize("most", [0, 11])
def test_more_than_are_kept_are_refused(most: int) -> None:
    with pytest.raises(AnalysisError, match="give 1 to 10"):
        analysis.idle_examples(FakeRun([], [], 1, ()), "tail", most=most)
