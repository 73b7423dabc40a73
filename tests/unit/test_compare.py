"""Two runs compared: against a slow oracle, on planted differences, and where nothing may be told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.analysis.certainty.bootstrap import RESAMPLES, _median_places, least_values, median_difference
from musetrace.analysis.comparing.busy_series import busy_series
from musetrace.analysis.comparing.difference import verdict
from musetrace.analysis.comparing.idle_series import idle_series
from musetrace.errors import AnalysisError
from tests.unit import compare_oracle as oracle
from tests.unit.analysis_traces import runs
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.planted_run import LAUNCHES, LENGTHS, planted

A_COMPUTE, STOP_WAIT = 2, 8  # of the small table
INTS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=20)


@given(runs(), runs())
@settings(max_examples=40, deadline=None)
def test_medians_differences_and_what_is_in_one_run_are_the_oracles(a: FakeRun, b: FakeRun) -> None:
    ranks = [rank for rank in a.ranks if rank in b.ranks]
    of_a, of_b = oracle.ops(a, ranks), oracle.ops(b, ranks)
    if of_a and of_b and not set(of_a) & set(of_b):
        with pytest.raises(AnalysisError, match="nothing to compare: no .* in common"):
            analysis.compare(a, b)
        return
    assume(of_a and of_b)
    found = analysis.compare(a, b)
    rows = {(row["launch"], row["op"], row["kind"]): row for row in found.ops.to_pylist()}
    assert set(rows) == set(of_a) & set(of_b)
    for name, row in rows.items():
        first, second = of_a[name], of_b[name]
        medians = [oracle.middle(list(of["times"].values())) for of in (first, second)]
        assert [row["a_ns"], row["b_ns"]] == medians
        assert row["difference_ns"] == medians[1] - medians[0]
        assert (row["n_a"], row["n_b"], row["launches_a"], row["launches_b"]) == (
            first["n"], second["n"], first["launches"], second["launches"],
        )  # fmt: skip
        assert row["per_step_ns"] == (medians[1] - medians[0]) * first["launches"]
        assert (row["steps_a"], row["steps_b"]) == (len(first["times"]), len(second["times"]))
        known = a.tick_ns is not None and b.tick_ns is not None
        assert row["uncertainty_ns"] == ((a.tick_ns or 0) + (b.tick_ns or 0) if known else None)
        assert row["verdict"] == "cannot tell"  # these runs have one or two steps
    only = {(row["run"], row["launch"], row["op"], row["kind"]) for row in found.only.to_pylist()}
    assert only == {("a", *x) for x in set(of_a) - set(of_b)} | {("b", *x) for x in set(of_b) - set(of_a)}


@given(runs(), runs())
@settings(max_examples=20, deadline=None)
def test_steps_launches_and_gaps_are_the_oracles(a: FakeRun, b: FakeRun) -> None:
    ranks = [rank for rank in a.ranks if rank in b.ranks]
    assume(set(oracle.ops(a, ranks)) & set(oracle.ops(b, ranks)))
    every = analysis.compare(a, b).times.to_pylist()
    rows = {(row["what"], row["of"]): row for row in every if row["what"] not in ("busy", "idle")}
    of_a, of_b = oracle.times(a, ranks), oracle.times(b, ranks)
    assert set(rows) == set(of_a) & set(of_b)
    for name, row in rows.items():
        medians = [oracle.middle(list(of[name].values())) for of in (of_a, of_b)]
        assert [row["a_ns"], row["b_ns"]] == medians, name


@given(runs())
@settings(max_examples=80, deadline=None)
def test_busy_time_of_ops_is_the_oracles(run: FakeRun) -> None:
    found = busy_series(run, run.ranks, None)
    expected = oracle.busy(run, run.ranks)
    assert set(found.names) == set(expected)
    for name, (means, uncertainty) in expected.items():
        assert found.names[name].step_ns.tolist() == [means[step] for step in sorted(means)]
        assert found.names[name].uncertainty_ns == uncertainty
    for rank in run.ranks:
        for name, (means, uncertainty) in oracle.busy(run, (rank,)).items():
            series = found.by_rank[rank, name]
            assert series.step_ns.tolist() == [means[step] for step in sorted(means)]
            assert series.uncertainty_ns == uncertainty


@given(runs())
@settings(max_examples=60, deadline=None)
def test_idle_time_by_cause_is_the_oracles_and_makes_up_the_launch_with_the_busy_time(run: FakeRun) -> None:
    found = idle_series(run, run.ranks, None)
    for kind in {x.kind for x in run.all_launches}:
        expected = oracle.idle(run, kind, None)
        assert {name[1:] for name in found.causes if name[0] == kind} == set(expected)
        for name, (means, uncertainty) in expected.items():
            series = found.causes[kind, *name]
            assert series.step_ns.tolist() == [means[step] for step in sorted(means)]
            assert series.uncertainty_ns == uncertainty
            for rank in run.ranks:
                of_rank = oracle.idle(run, kind, rank).get(name)
                if of_rank is not None:
                    on_rank = found.cause((kind, *name), rank)
                    assert on_rank.step_ns.tolist() == [of_rank[0][step] for step in sorted(of_rank[0])]
                    assert on_rank.uncertainty_ns == of_rank[1]
    walls = oracle.walls(run)
    assert {kind for _, kind in found.times} == set(walls)
    for kind, of_steps in walls.items():
        busy, idle = (found.times[what, kind].step_ns for what in ("busy", "idle"))
        assert np.abs(busy + idle - [of_steps[step] for step in sorted(of_steps)]).max() <= 1  # both rounded


@given(INTS, INTS, st.integers(0, 3))
def test_an_interval_holds_the_difference_and_turns_with_the_sign(
    a: list[int], b: list[int], seed: int
) -> None:
    first, second = np.array(a), np.array(b)
    off, low, high = median_difference(first, second, seed)
    assert off == sorted(b)[math.ceil(len(b) / 2) - 1] - sorted(a)[math.ceil(len(a) / 2) - 1]
    assert min(b) - max(a) <= low <= off <= high <= max(b) - min(a)
    assert median_difference(first, second, seed) == (off, low, high)
    assert median_difference(first + 7, second + 7, seed) == (off, low, high)


def test_an_interval_of_few_values_is_the_one_that_both_exact_ones_make() -> None:
    # Of six values the exact interval has all of them in it: 10 to 15 about 12, and 20 to 25 about 22.
    a, b = np.arange(10, 16), np.arange(20, 26)
    off, low, high = median_difference(a, b)
    assert (off, low, high) == (10, math.floor(10 - math.hypot(2, 3)), math.ceil(10 + math.hypot(3, 2)))


@pytest.mark.parametrize(("confidence", "least"), [(0.5, 2), (0.95, 6), (0.99, 8), (0.9995, 12)])
def test_so_many_values_are_needed_for_an_interval_of_a_median(confidence: float, least: int) -> None:
    # All n values lie on one side of their median with a chance of 2 * 0.5^n.
    assert least_values(confidence) == least
    assert 2 * 0.5**least <= 1 - confidence + 1e-12 < 2 * 0.5 ** (least - 1)


@given(INTS, INTS)
def test_an_interval_of_more_confidence_is_no_narrower(a: list[int], b: list[int]) -> None:
    first, second = np.array(a), np.array(b)
    intervals = [median_difference(first, second, 1, confidence) for confidence in (0.9, 0.95, 0.999)]
    assert len({off for off, _, _ in intervals}) == 1
    lows, highs = ([interval[side] for interval in intervals] for side in (1, 2))
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)


@pytest.mark.parametrize("count", [1, 2, 7, 10, 101])
def test_places_of_resampled_medians_have_their_exact_chances(count: int) -> None:
    places = _median_places(count, np.random.default_rng(5))
    rank = (count + 1) // 2
    for place in range(count):
        share = (place + 1) / count
        # The median lies at this place or below it when at least `rank` of the draws do.
        chance = sum(
            math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(rank, count + 1)
        )
        error = math.sqrt(max(chance * (1 - chance), 0) / RESAMPLES)
        assert abs(np.mean(places <= place) - chance) <= 5 * error + 1e-9


@given(
    st.integers(-50, 50), st.integers(0, 50), st.integers(0, 50), st.sampled_from([None, 0, 2, 40, 64]),
    st.integers(0, 64),
)  # fmt: skip
def test_a_verdict_is_never_from_less_than_the_clocks(
    off: int, below: int, above: int, tick: int | None, extra: int
) -> None:
    band = None if tick is None else tick + extra
    found = verdict(off, off - below, off + above, tick, band)
    if tick is None or abs(off) < tick or tick == 0:
        assert found in ("same", "cannot tell")
    if found == "slower":
        assert off - below > 0
    if found == "faster":
        assert off + above < 0
    if found == "same":
        assert band is not None
        assert all(abs(at) <= band for at in (off - below, off, off + above))


def test_the_rule_tells_how_many_rows_there_are() -> None:
    found = analysis.compare(planted(seed=1, **LENGTHS), planted(seed=2, **LENGTHS))
    assert found.rule.family == found.times.num_rows + found.ops.num_rows
    for row in [*found.times.to_pylist(), *found.ops.to_pylist()]:
        assert row["certain_low_ns"] <= row["low_ns"]
        assert row["high_ns"] <= row["certain_high_ns"]


def verdicts(found: analysis.Comparison) -> dict[tuple[str, str], str]:
    return {(row["op"], row["kind"]): row["verdict"] for row in found.ops.to_pylist()}


@given(runs())
@settings(max_examples=25, deadline=None)
def test_a_run_beside_itself_is_nowhere_faster_or_slower(run: FakeRun) -> None:
    assume(oracle.ops(run, list(run.ranks)))
    found = analysis.compare(run, run)
    for table in (found.times, found.ops):
        assert set(table["verdict"].to_pylist()) <= {"same", "cannot tell"}
        assert set(table["difference_ns"].to_pylist()) == {0}
    assert (found.only.num_rows, found.saved.num_rows) == (0, 0)


def test_steady_runs_of_one_program_are_the_same() -> None:
    found = analysis.compare(planted(seed=1, **LENGTHS), planted(seed=2, **LENGTHS))
    assert set(verdicts(found).values()) == {"same"}
    assert {row["verdict"] for row in found.times.to_pylist() if row["of"] == "sliding"} == {"same"}


def test_an_op_that_is_a_tenth_slower_is_found_with_its_size_and_what_it_means_for_the_step() -> None:
    slower = {**LENGTHS, "a_compute": 22_000, "b_send": 3300}
    found = analysis.compare(planted(seed=1, **LENGTHS), planted(seed=2, **slower))
    first, second, *rest = found.ops.to_pylist()
    assert (first["op"], first["kind"], first["verdict"]) == ("a", "compute", "slower")
    assert (second["op"], second["kind"], second["verdict"]) == ("b", "send", "slower")
    assert {row["verdict"] for row in rest} == {"same"}
    assert first["share"] == pytest.approx(0.1, abs=0.01)
    assert first["low_ns"] <= 2000 <= first["high_ns"]
    assert first["per_step_ns"] == LAUNCHES * first["difference_ns"]
    (launch,) = (row for row in found.times.to_pylist() if row["what"] == "launch")
    assert launch["verdict"] == "slower"
    assert launch["difference_ns"] == pytest.approx(2300, rel=0.1)
    back = analysis.compare(planted(seed=2, **slower), planted(seed=1, **LENGTHS))
    assert verdicts(back)["a", "compute"] == "faster"


@pytest.mark.parametrize(("tick_ns", "told"), [(1000, "slower"), (1001, "same"), (1500, "same")])
def test_a_difference_below_both_ticks_is_never_told(tick_ns: int, told: str) -> None:
    # Exactly 2,000 ns more in each step: both clocks leave 2 * tick open.
    def run(length: int) -> FakeRun:
        launches = [Launch(0, step, 0, 0, "sliding", 0, length, 1) for step in range(9)]
        spans = [Span(0, step, 0, 0, 2, 0, length) for step in range(9)]
        return FakeRun(launches, spans, 1, (0,), tick_ns=tick_ns)

    assert verdicts(analysis.compare(run(20_000), run(22_000)))["a", "compute"] == told


@pytest.mark.parametrize(("tick_ns", "told"), [(1000, "slower"), (1001, "same")])
@pytest.mark.parametrize("before_ns", [0, 9000])
def test_idle_time_below_both_ticks_is_never_told(before_ns: int, tick_ns: int, told: str) -> None:
    # A wait of exactly 2,000 ns more in each step; none at all is nothing that is longer than a tick.
    def run(wait_ns: int) -> FakeRun:
        end = wait_ns + 500_000
        launches = [Launch(0, step, 0, 0, "sliding", 0, end, 1) for step in range(9)]
        spans = [Span(0, step, 0, 0, STOP_WAIT, 0, wait_ns) for step in range(9) if wait_ns]
        spans += [Span(0, step, 0, 0, A_COMPUTE, wait_ns, 500_000) for step in range(9)]
        return FakeRun(launches, spans, 1, (0,), tick_ns=tick_ns)

    (row,) = analysis.compare(run(before_ns), run(before_ns + 2000)).idle.to_pylist()
    assert (row["wait"], row["difference_ns"], row["verdict"]) == ("stop1_wait_ranks", 2000, told)


def test_the_rank_of_the_most_is_told_unless_a_rank_is_missing() -> None:
    def run(seed: int, late: int) -> FakeRun:
        ranks = [planted(seed=seed + rank, ranks=(rank,), **LENGTHS) for rank in (0, 1)]
        ranks[1] = planted(seed=seed + 1, ranks=(1,), **{**LENGTHS, "b_send": 3000 + late})
        launches, spans = (sum((getattr(of, x) for of in ranks), []) for x in ("all_launches", "all_spans"))
        return FakeRun(launches, spans, 2, (0, 1))

    found = analysis.compare(run(1, 0), run(5, 4000))
    (row,) = (of for of in found.busy.to_pylist() if of["verdict"] == "slower")
    assert (row["op"], row["most_rank"]) == ("b", 1)
    assert row["most_difference_ns"] == pytest.approx(4000, rel=0.05)
    assert row["difference_ns"] == pytest.approx(2000, rel=0.1)
    lacking = replace(run(5, 4000), missing=(2,))
    rows = analysis.compare(run(1, 0), lacking).busy.to_pylist()
    assert [of["verdict"] for of in rows] == [of["verdict"] for of in found.busy.to_pylist()]
    assert {of["most_rank"] for of in rows} == {None}


@pytest.mark.parametrize(("steps", "tick_ns"), [((5, 5), 1), ((5, 12), 1), ((12, 5), 1), ((12, 12), None)])
def test_few_steps_or_a_clock_of_unknown_tick_tell_nothing(
    steps: tuple[int, int], tick_ns: int | None
) -> None:
    a = planted(steps=steps[0], tick_ns=tick_ns, **LENGTHS)
    b = planted(steps=steps[1], tick_ns=tick_ns, **{**LENGTHS, "a_compute": 40_000})
    found = analysis.compare(a, b)
    assert set(verdicts(found).values()) == {"cannot tell"}
    assert any("tell nothing" in one or "nothing can be told" in one for one in found.warnings)


def test_saved_time_that_became_waiting_is_said() -> None:
    faster = {**LENGTHS, "a_compute": 16_000, "stop1_wait_ranks": 9000}
    found = analysis.compare(planted(seed=1, **LENGTHS), planted(seed=2, **faster))
    (row,) = found.saved.to_pylist()
    assert (row["launch"], row["ops"]) == ("sliding", ["a"])
    assert row["saved_ns"] == pytest.approx(4000, rel=0.1)
    assert row["idle_grew_ns"] == pytest.approx(4000, rel=0.1)
    assert row["verdict"] == "turned into waiting"
    assert row["launch_verdict"] == "same"
    (into,) = row["into"]
    assert (into["cause"], into["wait"], into["awaits"]) == ("stop", "stop1_wait_ranks", "b_send")
    (cause,) = (one for one in found.idle.to_pylist() if one["verdict"] == "slower")
    assert (cause["wait"], cause["difference_ns"]) == ("stop1_wait_ranks", into["grew_ns"])
    assert cause["per_step_ns"] == LAUNCHES * cause["difference_ns"]
    times = {(one["what"], one["verdict"]) for one in found.times.to_pylist()}
    assert {("busy", "faster"), ("idle", "slower"), ("launch", "same")} <= times


@pytest.mark.parametrize(
    ("wait", "said"), [(5000, "did not turn into waiting"), (7000, "partly turned into waiting")]
)
def test_saved_time_that_stayed_saved_is_said(wait: int, said: str) -> None:
    faster = {**LENGTHS, "a_compute": 16_000, "stop1_wait_ranks": wait}
    (row,) = analysis.compare(planted(seed=1, **LENGTHS), planted(seed=2, **faster)).saved.to_pylist()
    assert row["verdict"] == said
