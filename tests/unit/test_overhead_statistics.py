"""What a measurement may say: medians, intervals, verdicts, and the order of turns that takes drifts out."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.analysis.certainty.bootstrap import RESAMPLES, Interval, bootstrap_median
from musetrace.overhead.schedule import abba_blocks
from musetrace.overhead.statistics import paired, verdict_of

TIMES = st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=25)


def slow_interval(values: list[float], seed: int) -> tuple[float, float, float]:
    """Median and interval in plain Python, of the resamples that a generator with this seed draws."""
    places = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    medians = sorted(statistics.median(values[place] for place in row) for row in places.tolist())

    def percentile(share: float) -> float:
        at = share * (len(medians) - 1)
        below = int(at)
        above = min(below + 1, len(medians) - 1)
        return medians[below] + (medians[above] - medians[below]) * (at - below)

    low, high = percentile(0.025), percentile(0.975)
    ordered = sorted(values)
    for beyond in range(len(values) // 2):
        # Of n throws of a coin, `beyond` or fewer are heads.
        chance = sum(math.comb(len(values), heads) for heads in range(beyond + 1)) / 2 ** len(values)
        if chance <= 0.025 or beyond == 0:
            exact = ordered[beyond], ordered[-1 - beyond]
    if len(values) > 1:
        low, high = min(low, exact[0]), max(high, exact[1])
    return statistics.median(values), low, high


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8, 9, 17, 20])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_interval_is_the_slow_one(count: int, seed: int) -> None:
    values = np.random.default_rng(count).normal(100, 5, count).tolist()
    got = bootstrap_median(values, seed)
    assert (got.median, got.low, got.high) == pytest.approx(slow_interval(values, seed), rel=1e-12)
    assert got.count == count


@given(TIMES, st.integers(0, 5))
def test_an_interval_holds_its_median_and_lies_within_the_values(values: list[float], seed: int) -> None:
    got = bootstrap_median(values, seed)
    assert min(values) <= got.low <= got.median <= got.high <= max(values)
    assert got == bootstrap_median(values, seed)


@given(st.floats(-1e9, 1e9), st.integers(1, 12))
def test_equal_values_leave_nothing_uncertain(value: float, count: int) -> None:
    assert bootstrap_median([value] * count) == Interval(value, value, value, count)


@pytest.mark.parametrize(("count", "least"), [(6, 0.93), (12, 0.93), (30, 0.92)])
def test_nineteen_of_twenty_intervals_hold_the_truth(count: int, least: float) -> None:
    """Of 300 seeded samples whose median is 0; about one in twenty has an interval without it."""
    samples = np.random.default_rng(3).standard_normal((300, count))
    held = [interval.low <= 0 <= interval.high for interval in map(bootstrap_median, samples)]
    assert least <= np.mean(held) < 1.0


@pytest.mark.parametrize(("count", "first"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (12, 3), (20, 6)])
def test_an_interval_is_no_narrower_than_between_the_ordered_values_of_the_tables(
    count: int, first: int
) -> None:
    """The first value of the interval, counted from 1, as tables of the sign test have it for n values."""
    got = bootstrap_median(range(1, count + 1))
    assert got.low <= first
    assert got.high >= count + 1 - first


def test_an_interval_of_many_values_takes_little_memory_and_is_narrow() -> None:
    got = bootstrap_median(np.random.default_rng(1).standard_normal(3000))
    # The standard error of a median of n normal values is 1.2533 / sqrt(n).
    assert got.high - got.low == pytest.approx(2 * 1.96 * 1.2533 / 3000**0.5, rel=0.2)


@pytest.mark.parametrize(
    ("median", "low", "high", "count", "resolution", "said"),
    [
        (5.0, 1.0, 9.0, 6, 0.0, "costs"),
        (5.0, 0.0, 9.0, 6, 0.0, "cannot tell"),
        (5.0, -1.0, 9.0, 600, 0.0, "cannot tell"),
        (-5.0, -9.0, -1.0, 6, 0.0, "saves"),
        (-5.0, -9.0, 0.0, 6, 0.0, "cannot tell"),
        # Five values: all of them lie on one side of the truth once in 16 times.
        (5.0, 1.0, 9.0, 5, 0.0, "cannot tell"),
        # Within what the clock can see.
        (5.0, 1.0, 9.0, 6, 5.0, "cannot tell"),
        (5.0, 1.0, 9.0, 6, 4.9, "costs"),
        (-5.0, -9.0, -1.0, 6, 5.0, "cannot tell"),
    ],
)
def test_a_verdict_needs_an_interval_without_zero(
    median: float, low: float, high: float, count: int, resolution: float, said: str
) -> None:
    assert verdict_of(Interval(median, low, high, count), resolution) == said


@given(st.integers(1, 6), st.integers(1, 7))
def test_every_side_stands_once_before_and_once_behind_its_baseline(sides: int, rounds: int) -> None:
    names = [f"side {number}" for number in range(sides)]
    blocks = list(abba_blocks("off", names, rounds))
    assert Counter((block.round, block.side) for block in blocks) == Counter(
        itertools.product(range(rounds), names)
    )
    assert [block.round for block in blocks] == sorted(block.round for block in blocks)
    for block in blocks:
        pattern = "".join("A" if name == "off" else "B" for name in block.order)
        assert pattern == ("ABBA" if block.round % 2 == 0 else "BAAB")
        assert set(block.order) == {"off", block.side}
    first = [next(block.side for block in blocks if block.round == number) for number in range(rounds)]
    assert first == [names[number % sides] for number in range(rounds)]


@given(st.floats(-50, 50), st.floats(0, 20), st.integers(1, 8))
def test_a_steady_drift_adds_nothing(drift: float, cost: float, rounds: int) -> None:
    """Each turn takes ``drift`` longer than the one before it, and the side ``cost`` more than off."""
    clock = itertools.count()
    side, base = [], []
    for block in abba_blocks("off", ["stamped"], rounds):
        times = [
            (name, 10_000 + drift * next(clock) + (cost if name != "off" else 0)) for name in block.order
        ]
        side.append([time for name, time in times if name != "off"])
        base.append([time for name, time in times if name == "off"])
    added, _ = paired(side, base)
    assert added == pytest.approx([cost] * rounds, abs=1e-6)


def test_paired_takes_the_mean_over_both_neighbours() -> None:
    added, share = paired([[12.0, 33.0]], [[10.0, 30.0]])
    assert added.tolist() == [2.5]
    assert share.tolist() == pytest.approx([(0.2 + 0.1) / 2])
