"""What to fix first: against a slow oracle on random runs, who is late, and what is not ranked."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.analysis.priorities.findings import IDLE_AFTER, IDLE_CAUSE, WHAT_IF
from musetrace.analysis.priorities.gains import Gain, best_gains
from musetrace.analysis.priorities.late import late_of
from musetrace.cli.output import Screen
from musetrace.errors import AnalysisError
from musetrace.job_table import KernelShape
from musetrace.wording.finding_sentences import cause_details
from tests.unit import idle_oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import SMALL_JOBS, FakeRun, Launch, Span, small_table

AWAITED = {job.name: SMALL_JOBS[job.awaits].name for job in SMALL_JOBS if job.awaits is not None}
A_LOAD, A_WAIT, A_COMPUTE, B_LOAD, B_COMPUTE, B_SEND, STOP_WAIT = 0, 1, 2, 5, 6, 7, 8


def slow_per_step(run: FakeRun, scope: dict[str, Any]) -> dict[Any, Fraction]:
    """The ns of a step that an average block is idle, by cause: from idle nanoseconds that were counted."""
    in_scope = [
        one
        for one in run.all_launches
        if scope["rank"] in (None, one.rank) and scope["step"] in (None, one.step)
    ]
    steps = len({(one.rank, one.step) for one in in_scope})
    launches = [one for one in in_scope if one.stamped]
    kinds = dict.fromkeys(one.kind for one in launches if scope["layer_kind"] in (None, one.kind))
    found: dict[Any, Fraction] = defaultdict(Fraction)
    for kind in kinds:
        number = sum(one.kind == kind for one in launches)
        for row in idle_oracle.idle(run, {**scope, "layer_kind": kind}):
            mean = Fraction(row["total_ns"], row["n"])
            found[row["wait"] or row["cause"]] += mean * number / steps
    return dict(found)


@given(questions())
@settings(max_examples=100, deadline=None)
def test_time_of_a_step_by_cause_is_the_oracles_in_any_run(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    rows = [row for row in analysis.findings(run, **scope).to_pylist() if row["finding"] == IDLE_CAUSE]
    expected = slow_per_step(run, scope)
    assert {row["wait"] or row["cause"] for row in rows} == set(expected)
    for row in rows:
        of = row["launches"]
        # Each kind of launch is rounded to whole ns for itself.
        assert abs(row["per_step_ns"] - expected[row["wait"] or row["cause"]]) <= Fraction(len(of), 2)
        of_launches = sum(one["per_step"] * one["idle_mean_ns"] for one in of)
        rounded = sum(one["per_step"] for one in of) / 2 + len(of)
        assert of_launches == pytest.approx(row["per_step_ns"], abs=rounded)
        assert (row["per_step_uncertainty_ns"] is None) == (run.tick_ns is None)
        assert row["awaits"] == AWAITED.get(row["wait"])
    if rows and sum(row["per_step_ns"] for row in rows):
        assert sum(row["share_of_idle"] for row in rows) == pytest.approx(1)


@given(questions())
@settings(max_examples=100, deadline=None)
def test_nothing_is_ranked_within_what_the_clock_leaves_open(
    question: tuple[FakeRun, dict[str, Any]],
) -> None:
    run, scope = question
    rows = [row for row in analysis.findings(run, **scope).to_pylist() if row["finding"] == IDLE_CAUSE]
    if run.tick_ns is None:
        assert {row["place"] for row in rows} <= {1}
        return
    for place in {row["place"] for row in rows}:
        first = max((row for row in rows if row["place"] == place), key=lambda row: row["per_step_ns"])
        for row in rows:
            off = row["per_step_uncertainty_ns"] + first["per_step_uncertainty_ns"]
            if row["place"] > place:
                assert first["per_step_ns"] - row["per_step_ns"] >= off
            elif row["place"] == place:
                assert first["per_step_ns"] - row["per_step_ns"] < max(off, 1)


def one_block(*spans: tuple[int, int, int], end: int = 100, tick_ns: int | None = 1) -> FakeRun:
    """One launch of one block from 0: (job, begin, end) each."""
    of = [Span(0, 0, 0, 0, job, begin, last - begin) for job, begin, last in spans]
    return FakeRun([Launch(0, 0, 0, 0, "sliding", 0, end, 1)], of, 1, (0,), tick_ns=tick_ns)


@pytest.mark.parametrize(
    ("spans", "cause", "look_at"),
    [
        ([(A_COMPUTE, 40, 100)], "head", "launch_edges"),
        ([(A_COMPUTE, 0, 60)], "tail", "blocks"),
        ([(B_LOAD, 0, 50), (B_COMPUTE, 50, 100)], "load_only", "loads_ahead"),
        ([(A_COMPUTE, 0, 30), (A_COMPUTE, 70, 100)], "unlabelled", "ops"),
        ([(A_WAIT, 0, 50), (A_COMPUTE, 50, 100)], "wait", "loads_ahead"),
        ([(STOP_WAIT, 0, 50), (B_SEND, 50, 100)], "stop", "stops"),
    ],
)
def test_each_cause_says_where_to_look_next(spans: Any, cause: str, look_at: str) -> None:
    (row,) = (row for row in analysis.findings(one_block(*spans)).to_pylist() if row["finding"] == IDLE_CAUSE)
    assert (row["cause"], row["look_at"], row["place"]) == (cause, look_at, 1)
    assert "idle" in row["shown_in"]


@pytest.mark.parametrize(
    ("load", "share"), [([], None), ([(A_LOAD, 0, 10)], 0), ([(A_LOAD, 0, 20)], 0), ([(A_LOAD, 0, 35)], 0.5)]
)
def test_what_was_done_before_a_wait_began_is_told_and_what_was_not_seen_is_not(
    load: list[tuple[int, int, int]], share: float | None
) -> None:
    run = one_block(*load, (A_COMPUTE, 0, 20), (A_WAIT, 20, 50), (A_COMPUTE, 50, 100))
    (row,) = (row for row in analysis.findings(run).to_pylist() if row["finding"] == IDLE_CAUSE)
    assert row["not_ready_share"] == share
    said = cause_details(row, Screen(200, unicode=True))
    assert ("was done whenever" in said) == (share == 0)
    assert ("in 50.0 % of the time" in said) == (share == 0.5)


def test_behind_an_op_has_no_place_and_repeats_time_that_the_causes_have() -> None:
    run = one_block((A_COMPUTE, 0, 50), (A_WAIT, 50, 100))
    cause, behind, *rest = analysis.findings(run).to_pylist()
    assert {row["finding"] for row in rest} <= {WHAT_IF}
    assert (cause["finding"], behind["finding"]) == (IDLE_CAUSE, IDLE_AFTER)
    assert (cause["per_step_ns"], behind["per_step_ns"], behind["op"]) == (50, 50, "a")
    assert (behind["place"], behind["share_of_launch_idle"], behind["share_of_launch_time"]) == (
        None,
        1.0,
        0.5,
    )


def test_kernels_with_waits_of_one_name_are_told_apart() -> None:
    base = one_block((A_WAIT, 0, 50), (A_COMPUTE, 50, 100))
    again = Launch(0, 0, 1, 1, "global", 100, 200, 1)
    spans = [*base.all_spans, Span(0, 0, 1, 0, A_WAIT, 100, 20), Span(0, 0, 1, 0, A_COMPUTE, 120, 80)]

    def causes(kernels: tuple[KernelShape, ...]) -> list[int]:
        table = dataclasses.replace(small_table(), kernels=kernels)
        run = FakeRun([*base.all_launches, again], spans, 1, (0,), job_table=table)
        return [
            row["per_step_ns"] for row in analysis.findings(run).to_pylist() if row["finding"] == IDLE_CAUSE
        ]

    assert causes(()) == [70]
    shapes = tuple(
        KernelShape(name, blocks=1, slots=28, warps_per_block=1, first_pair=0)
        for name in ("sliding", "global")
    )
    assert causes(shapes) == [50, 20]


def pair(
    blocks: list[float], cannot_tell: float | None = 0.0, ranks: list[float] | None = None
) -> dict[str, Any]:
    return {
        "last_blocks": [{"rank": 0, "block": 3 * at, "share": share} for at, share in enumerate(blocks)],
        "last_ranks": None
        if ranks is None
        else [{"rank": at, "share": share} for at, share in enumerate(ranks)],
        "cannot_tell_share": cannot_tell,
    }


@pytest.mark.parametrize(
    ("row", "launches", "block"),
    [
        (pair([0.9, 0.1]), 100, 0),  # 80 of 100 launches, chance gives 2 * 10
        (pair([0.6, 0.4]), 100, None),  # 20: as much as chance gives
        (pair([0.62, 0.38]), 100, 0),
        (pair([0.9, 0.1]), 5, None),  # 4 of 5, chance gives 4.5
        (pair([0.9, 0.1], cannot_tell=0.7), 100, None),  # what is tied may all have been the other's
        (pair([0.9, 0.1], cannot_tell=None), 100, None),
        (pair([]), 100, None),
        (pair([1.0]), 0, None),
    ],
)
def test_a_late_block_is_named_only_beyond_the_clock_and_chance(
    row: Any, launches: int, block: int | None
) -> None:
    late = late_of(row, launches, 1)
    assert (late.block and late.block["block"]) == block
    assert late.rank is None


def test_a_late_rank_is_named_where_there_are_several() -> None:
    row = pair([0.3, 0.3], ranks=[1.0])
    late = late_of(row, 100, 2)
    assert late.rank == {"rank": 0, "share": 1.0}
    assert late.block is None
    assert late_of(row, 100, 1).rank is None


@pytest.mark.parametrize("ranks", [0, 1, 2])
def test_a_run_without_launches_has_no_findings(ranks: int) -> None:
    run = FakeRun([], [], 1, tuple(range(ranks)))
    assert analysis.findings(run).num_rows == 0


@given(questions())
@settings(max_examples=60, deadline=None)
def test_what_a_step_would_gain_is_the_sum_over_kinds_of_launches(
    question: tuple[FakeRun, dict[str, Any]],
) -> None:
    run, scope = question
    rows = analysis.findings(run, **scope).to_pylist()
    kinds = [scope["layer_kind"]] if scope["layer_kind"] else sorted({one.kind for one in run.all_launches})

    def saved(change: str) -> tuple[int, int | None]:
        found = []
        for kind in kinds:
            try:
                rows = analysis.what_if(run, [change], **{**scope, "layer_kind": kind}).to_pylist()
                every = analysis.what_ifs(run, **{**scope, "layer_kind": kind})["change"].to_pylist()
            except AnalysisError:
                continue  # no launch of this kind in scope
            found += rows if change in every else []  # or no such job in these launches
        off = [row["saved_step_uncertainty_ns"] for row in found]
        return sum(row["saved_step_ns"] for row in found), None if None in off else sum(off)

    for row in rows:
        if row["finding"] == WHAT_IF:
            change = f"{row['target']}=gone" if row["how"] == "gone" else f"{row['target']}=-10%"
            assert (row["per_step_ns"], row["per_step_uncertainty_ns"]) == saved(change)
            assert row["per_step_ns"] >= row["per_step_uncertainty_ns"] > 0
        elif row["gone_saves_ns"] is not None:
            assert (row["gone_saves_ns"], row["gone_saves_uncertainty_ns"]) == saved(f"{row['wait']}=gone")


def gain(saved_ns: int, uncertainty_ns: int | None = 1) -> Gain:
    return Gain(saved_ns, uncertainty_ns)


def test_the_best_changes_are_those_that_the_clock_tells_and_no_stop_is_told_twice() -> None:
    all_gains = {
        ("gone", "stop1"): gain(50),
        ("gone", "stop1_wait_ranks"): gain(45),
        ("gone", "a_wait_weights"): gain(30, 40),  # not told
        ("gone", "b_wait_a"): gain(30),
        ("gone", "b_wait_wait"): gain(31),  # tied with the one before
        ("faster", "a"): gain(7, None),
        ("faster", "b"): gain(5),
    }
    table = small_table()
    best = best_gains(table, all_gains, "gone")
    assert [(row["place"], row["target"]) for row in best] == [
        (1, "stop1"),
        (2, "b_wait_a"),
        (2, "b_wait_wait"),
    ]
    assert [row["target"] for row in best_gains(table, all_gains, "faster")] == ["b"]
