"""What a stepping clock leaves open, against a simulated one: true times in ps, stamps as it reads them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.analysis.certainty.clock_quality import (
    combined_ns,
    grid_ns,
    largest_first,
    mean_uncertainty_ns,
    places,
    share_uncertainty,
    sum_uncertainty_ns,
    tick_ns_of,
    told_apart,
)
from musetrace.analysis.spans.intervals import newly_covered, opens_piece
from tests.unit import analysis_oracle as oracle
from tests.unit.fake_run import SMALL_JOBS, FakeRun, Launch, Span

PS = 1_000  # ps in one ns
TICKS = st.sampled_from([1, 2, 7, 32, 1_000])
# Close to the ticks' edges as often as not, up to some ticks long.
times_ps = st.one_of(
    st.integers(0, 200 * PS), st.builds(lambda k, d: k * 32 * PS + d, st.integers(1, 9), st.integers(-2, 2))
)
pairs_ps = st.lists(st.tuples(times_ps, times_ps), min_size=1, max_size=30)


def ints(values: Any) -> np.ndarray:
    return np.asarray(list(values), dtype=np.int64)


def read(time_ps: int, tick_ns: int) -> int:
    """What a clock that steps shows at a time, in ns."""
    return time_ps // (tick_ns * PS) * tick_ns


@given(times_ps, times_ps, TICKS)
def test_instants_that_are_told_apart_are_in_the_order_of_their_stamps(a: int, b: int, tick: int) -> None:
    stamps = read(a, tick), read(b, tick)
    if told_apart(*stamps, tick):
        assert (stamps[0] < stamps[1]) == (a < b)
    else:
        assert abs(a - b) < tick * PS


@given(st.tuples(times_ps, times_ps), st.tuples(times_ps, times_ps), TICKS)
def test_lengths_that_are_told_apart_are_in_the_order_of_the_true_ones(
    one: tuple[int, int], other: tuple[int, int], tick: int
) -> None:
    lengths = [read(end, tick) - read(begin, tick) for begin, end in (one, other)]
    if told_apart(*lengths, combined_ns(tick, tick)):
        assert (lengths[0] < lengths[1]) == (one[1] - one[0] < other[1] - other[0])


@given(pairs_ps, TICKS, st.integers(1, 100))
def test_a_percentile_of_differences_is_off_by_less_than_a_tick(
    pairs: list[tuple[int, int]], tick: int, percent: int
) -> None:
    stamped = oracle.percentile([read(end, tick) - read(begin, tick) for begin, end in pairs], percent)
    true = oracle.percentile([end - begin for begin, end in pairs], percent)
    assert stamped is not None
    assert true is not None
    assert abs(stamped * PS - true) < tick * PS


@given(pairs_ps, TICKS)
def test_the_mean_of_one_launch_is_within_its_bound(pairs: list[tuple[int, int]], tick: int) -> None:
    values = ints(read(end, tick) - read(begin, tick) for begin, end in pairs)
    true = Fraction(sum(end - begin for begin, end in pairs), len(pairs) * PS)
    bound = mean_uncertainty_ns(tick, values, ints([len(pairs)]))
    assert bound is not None
    assert abs(Fraction(int(values.sum()), len(values)) - true) < bound


def union_ps(spans: list[tuple[int, int]]) -> int:
    length, covered = 0, 0
    for begin, end in sorted(spans):
        length += max(end - max(begin, covered), 0)
        covered = max(covered, end)
    return length


# A time in eighths of a tick: few places, so that spans touch, coincide and miss each other by less than one.
eighths = st.builds(lambda tick, eighth: 8 * tick + eighth, st.integers(0, 3), st.sampled_from([0, 1, 7]))


@given(st.lists(st.tuples(eighths, st.sampled_from([0, 1, 2, 6, 7, 9])), max_size=5))
@settings(max_examples=1_000)
def test_a_union_is_off_by_less_than_a_tick_for_each_piece_that_it_may_have(
    found: list[tuple[int, int]],
) -> None:
    tick = 8
    spans = [(PS * begin, PS * (begin + length)) for begin, length in found]
    stamped = sorted(((read(begin, tick), read(end, tick)) for begin, end in spans), key=lambda span: span[0])
    begin, end = ints(one[0] for one in stamped), ints(one[1] for one in stamped)
    pieces = int(opens_piece(begin, end).sum())
    error_ps = int(newly_covered(begin, end).sum()) * PS - union_ps(spans)
    assert abs(error_ps) < pieces * tick * PS or error_ps == 0
    assert (sum_uncertainty_ns(tick, pieces**2) or 0) == pieces * tick


@pytest.mark.parametrize("launches", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("per_launch", [1, 5])
def test_a_mean_over_launches_is_within_its_bound_95_times_in_100(
    launches: int, fraction: float, per_launch: int
) -> None:
    tick, trials = 1_000, 2_000
    # Lengths that are all the same and whose begins share their place within the tick: the worst case.
    length = (3 + fraction) * tick
    phase = np.random.default_rng(5).uniform(0, tick, (trials, launches))
    values = np.floor((phase + length) / tick) * tick - np.floor(phase / tick) * tick
    values = np.repeat(values, per_launch, axis=1).astype(np.int64)
    counts = ints([per_launch] * launches)
    within = [
        abs(int(row.sum()) / len(row) - length) <= (mean_uncertainty_ns(tick, row, counts) or 0)
        for row in values
    ]
    assert sum(within) >= 0.95 * trials


def test_the_median_snaps_to_the_tick_and_the_mean_does_not() -> None:
    tick, length, launches = 32, 336, 10_000  # 10.5 ticks
    begin = np.random.default_rng(5).integers(0, 10**9, launches)
    values = (begin + length) // tick * tick - begin // tick * tick
    assert set(values.tolist()) == {320, 352}
    bound = mean_uncertainty_ns(tick, values, np.ones(launches, dtype=np.int64))
    assert bound == 1  # 32 / sqrt(10,000) = 0.32
    assert abs(values.mean() - length) < bound


def test_a_mean_of_equal_values_is_no_better_than_one_of_them() -> None:
    assert mean_uncertainty_ns(32, ints([64] * 10_000), ints([1] * 10_000)) == 32
    assert mean_uncertainty_ns(32, ints([64] * 9_999 + [96]), ints([1] * 10_000)) == 1
    assert mean_uncertainty_ns(None, ints([64]), ints([1])) is None


@given(st.integers(1, 10**9), st.integers(0, 10**12))
def test_a_sums_uncertainty_is_the_root_rounded_up(tick: int, squares: int) -> None:
    found = sum_uncertainty_ns(tick, squares)
    assert found is not None
    assert found**2 >= tick**2 * squares
    assert found == 0 or (found - 1) ** 2 < tick**2 * squares
    assert sum_uncertainty_ns(None, squares) is None


def test_bounds_add_up_and_unknown_ones_stay_unknown() -> None:
    assert combined_ns() == 0
    assert combined_ns(32) == 32
    assert combined_ns(32, 32, 900) == 964
    assert combined_ns(32, None) is None


@given(st.integers(0, 50), st.integers(0, 20), st.integers(1, 100), st.integers(0, 20))
def test_a_share_is_off_by_no_more_than_part_and_whole_make_it(part: int, a: int, whole: int, b: int) -> None:
    bound = share_uncertainty(part, a, whole, b)
    if b >= whole:
        assert bound is None
        return
    assert bound is not None
    shares = [(part + x) / (whole + y) for x in (-a, a) for y in (-b, b)]
    assert max(abs(share - part / whole) for share in shares) <= bound + 1e-12
    assert share_uncertainty(part, None, whole, b) is share_uncertainty(part, a, whole, None) is None


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 6)), max_size=12))
def test_a_place_holds_what_is_not_told_apart_from_its_first_value(numbers: list[tuple[int, int]]) -> None:
    values, off = [value for value, _ in numbers], [one for _, one in numbers]
    found = places(values, off)
    assert set(found) == set(range(len(set(found))))
    for place in set(found):
        mine = [one for one, at in zip(numbers, found, strict=True) if at == place]
        first, its = min(mine, key=lambda one: one[0])
        for (value, one), at in zip(numbers, found, strict=True):
            if at >= place:
                assert value >= first
                assert told_apart(value, first, one + its) == (at > place)
    assert set(places(values, [None, *off[1:]] if off else [])) <= {0}


def test_a_value_of_great_uncertainty_ties_only_itself() -> None:
    """1.50 and 1.54 +- 0.01 are told apart whatever else is not, so the larger one stands first."""
    values, off = [-1_500, -1_540, -800, -700], [11, 13, 12, 4_000]
    assert places(values, off) == [1, 0, 2, 0]
    rows = [
        {"name": name, "ns": -value, "off": its} for name, value, its in zip("abcd", values, off, strict=True)
    ]
    assert [row["name"] for row in largest_first(rows, "ns", "off")] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("clock", "tick"),
    [
        ({"tick_ns": 32}, 32),
        ({"tick_ns": 10**9}, 10**9),
        ({"tick_ns": 10**9 + 1}, None),
        ({"tick_ns": 0}, None),
        ({"tick_ns": -32}, None),
        ({"tick_ns": True}, None),
        ({"tick_ns": 32.0}, None),
        ({"tick_ns": "32"}, None),
        ({"tick_ns": [32]}, None),
        ({"tick_ns": None}, None),
        ({"name": "globaltimer"}, None),
        ({}, None),
        (None, None),
        ("globaltimer", None),
    ],
)
def test_a_tick_that_is_none_or_nonsense_is_unknown(clock: object, tick: int | None) -> None:
    assert tick_ns_of(clock) == tick


@given(st.lists(st.integers(0, 2**62), max_size=9))
def test_the_grid_is_what_all_differences_are_a_multiple_of(times: list[int]) -> None:
    expected = math.gcd(*(b - a for a in times for b in times))
    assert grid_ns(ints(times)) == (expected or None)


@st.composite
def launches_of_truth(draw: st.DrawFn) -> tuple[FakeRun, FakeRun]:
    """A launch as it was, to the ns, and as a clock of a coarser step saw it."""
    tick = draw(st.sampled_from([2, 8, 8, 50]))
    ranks = draw(st.sampled_from([(0,), (0, 1), (0, 1, 2)]))
    blocks = draw(st.integers(1, 2))
    jobs = draw(st.sampled_from([tuple(range(len(SMALL_JOBS))), (7, 8), (0, 2, 4, 5, 6, 10)]))
    one = st.builds(
        lambda rank, block, job, begin, dur: Span(rank, 0, 0, block, job, begin, dur),
        st.sampled_from(ranks), st.integers(0, blocks - 1), st.sampled_from(jobs),
        st.one_of(eighths.map(lambda at: at + 100), st.integers(101, 300)),
        st.sampled_from([0, 1, 2, 6, 7, 9, 20, 90]),
    )  # fmt: skip
    spans = draw(st.lists(one, min_size=draw(st.sampled_from([1, 12])), max_size=25))
    launches = []
    for rank in ranks:
        edges = [(x.begin, x.begin + x.dur) for x in spans if x.rank == rank] or [(100, 200)]
        begin, end = min(begin for begin, _ in edges), max(end for _, end in edges)
        launches.append(Launch(rank, 0, 0, 0, "sliding", begin, end, blocks))
    true = FakeRun(launches, spans, blocks, ranks)

    def seen(rank: int, time: int) -> int:
        base = true.base_ns(rank, 0)
        return (base + time) // tick * tick - base

    seen_spans = []
    for x in spans:
        begin, end = seen(x.rank, x.begin), seen(x.rank, x.begin + x.dur)
        seen_spans.append(x._replace(begin=begin, dur=end - begin))
    seen_launches = [
        x._replace(begin=seen(x.rank, x.begin), end=seen(x.rank, x.end)) for x in launches
    ]  # fmt: skip
    return true, FakeRun(seen_launches, seen_spans, blocks, ranks, tick_ns=tick)


QUESTIONS: list[Any] = [
    (analysis.op_timeline, lambda run: oracle.op_timeline(run, None, None, None)[0]),
    (analysis.block_busy, lambda run: oracle.block_busy(run, None, None, None)[0]),
    (analysis.stops, lambda run: oracle.stops(run, None, None)[0]),
    (analysis.ring_ahead, lambda run: oracle.ring_ahead(run, None, None, None)[0]),
]


def uncertainty_of(row: dict[str, Any], name: str) -> int:
    """What stands beside a time of a row."""
    stem = name.removesuffix("_ns")
    for percent in ("_p10", "_p50", "_p90"):
        stem = stem.removesuffix(percent)
    found = row[f"{stem}_uncertainty_ns"]
    assert isinstance(found, int)
    return found


@given(launches_of_truth())
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda pair: pair[0].__name__)
def test_every_time_of_every_answer_is_within_what_stands_beside_it(
    question: Any, runs: tuple[FakeRun, FakeRun]
) -> None:
    true, seen = runs
    ask, truth = question
    rows, expected = ask(seen).to_pylist(), truth(true)
    assert len(rows) == len(expected)
    for row, right in zip(rows, expected, strict=True):
        times = [name for name in row if name.endswith("_ns") and "uncertainty" not in name]
        assert times
        for name in times:
            # A mean is rounded to a whole ns on both sides.
            room = uncertainty_of(row, name) + ("mean" in name)
            assert abs(row[name] - right[name]) <= room, name


@given(launches_of_truth())
@settings(max_examples=80, deadline=None)
def test_whoever_is_named_is_the_true_one(runs: tuple[FakeRun, FakeRun]) -> None:
    true, seen = runs
    for row, right in zip(
        analysis.stops(seen).to_pylist(), oracle.stops(true, None, None)[0], strict=True
    ):  # fmt: skip
        assert (row["last_share"] or 0) <= (right["last_share"] or 0)
    for row, right in zip(
        analysis.ring_ahead(seen).to_pylist(), oracle.ring_ahead(true, None, None, None)[0], strict=True
    ):
        assert row["ops_between_low_p50"] <= right["ops_between_p50"] <= row["ops_between_high_p50"]
        if row["during_share"] is not None:
            assert row["during_op"] == right["during_op"]
