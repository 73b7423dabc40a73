"""Medians with bootstrap intervals, of one sample and of the difference of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESAMPLES = 4000
CONFIDENCE = 0.95
# The median of n values lies outside of all of them with a chance of 2^(1 - n): below six, no interval is a
# 95 % one.
LEAST_VALUES = 6
_DRAWN_AT_ONCE = 4_000_000
# With more values both intervals are the same for all that can be seen.
_MOST_FOR_EXACT = 1000
_TAILS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))


@dataclass(frozen=True)
class Interval:
    """The median of ``count`` values and its 95 % interval, in the unit of the values."""

    median: float
    low: float
    high: float
    count: int

    def scaled(self, factor: float) -> Interval:
        """The same in another unit; ``factor`` is positive."""
        return Interval(self.median * factor, self.low * factor, self.high * factor, self.count)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {"median": self.median, "low": self.low, "high": self.high, "count": self.count}


def bootstrap_median(values: npt.ArrayLike, seed: int = 0) -> Interval:
    """Median and 95 % percentile bootstrap interval (Efron and Tibshirani 1993, section 13.3).

    Of few values that interval is too narrow, so it is never narrower than the exact one between two of the
    ordered values (Conover 1999, section 3.2); of fewer than six, all of them lie in it.

    Args:
        values: [n], at least one.
        seed: of the resampling; the same values and seed give the same interval.
    """
    sample: Values = np.sort(np.asarray(values, dtype=np.float64))
    low, high = np.percentile(_resampled_medians(sample, seed), _TAILS)
    beyond = _values_beyond(sample.size)
    low, high = min(low, sample[beyond]), max(high, sample[-1 - beyond])
    return Interval(float(np.median(sample)), float(low), float(high), int(sample.size))


def _resampled_medians(sample: Values, seed: int) -> Values:
    rng = np.random.default_rng(abs(seed))
    rows = max(1, _DRAWN_AT_ONCE // sample.size)
    medians = [
        np.median(sample[rng.integers(sample.size, size=(min(rows, RESAMPLES - done), sample.size))], axis=1)
        for done in range(0, RESAMPLES, rows)
    ]
    return np.concatenate(medians)


def least_values(confidence: float) -> int:
    """Of how many values a median has an interval of that confidence.

    Of fewer all lie on one side of it too often: n of them with a chance of 2^(1 - n).
    """
    return math.ceil(1 - math.log2(1 - confidence))


def _values_beyond(count: int, confidence: float = CONFIDENCE) -> int:
    """How many of ``count`` values may lie beyond each end of an exact interval for their median.

    That many or fewer lie on a given side of the true median with a chance of 2.5 % at most (for 95 %).
    """
    if count > _MOST_FOR_EXACT:
        return count // 2  # the bootstrap alone
    most, chance = 0.5 * (1 - confidence) * 2**count, 0
    for beyond in range(count):
        chance += math.comb(count, beyond)
        if chance > most:
            return max(0, beyond - 1)
    return 0


def median_difference(
    a: Ints, b: Ints, seed: int = 0, confidence: float = CONFIDENCE
) -> tuple[int, int, int]:
    """The median of ``b`` minus that of ``a``, and its 95 % interval: difference, low end, high end.

    Medians are nearest-rank ones, so each is one of the values. The interval is the percentile bootstrap's,
    both samples resampled on their own; of few values that is too narrow, so it is never narrower than what
    the exact intervals of both medians make (square-and-add: Zou and Donner 2008, equation 4).

    Args:
        a: int64[n], at least one.
        b: int64[m], at least one.
        seed: of the resampling; swapping ``a`` and ``b`` gives another resampling.
        confidence: of the interval; each sample needs :func:`least_values` of it.
    """
    first, second = np.sort(a), np.sort(b)
    rng = np.random.default_rng(abs(seed))
    resampled = second[_median_places(second.size, rng)] - first[_median_places(first.size, rng)]
    low, high = np.percentile(resampled, (50 * (1 - confidence), 50 * (1 + confidence)))
    below_a, median_a, above_a = _exact(first, confidence)
    below_b, median_b, above_b = _exact(second, confidence)
    difference = median_b - median_a
    low = min(low, difference - math.hypot(median_b - below_b, above_a - median_a))
    high = max(high, difference + math.hypot(above_b - median_b, median_a - below_a))
    return difference, math.floor(low), math.ceil(high)


def _median_places(count: int, rng: np.random.Generator) -> Ints:
    """The place, among ``count`` ordered values, of the median of each resample of them.

    The k-th smallest of n uniform numbers is Beta(k, n + 1 - k) distributed (David and Nagaraja 2003, section
    2.3), and a resample draws place ``floor(n * u)`` with each: no resample needs to be made.
    """
    rank = (count + 1) // 2
    drawn = rng.beta(rank, count + 1 - rank, RESAMPLES)
    places: Ints = np.minimum((count * drawn).astype(np.int64), count - 1)
    return places


def _exact(ordered: Ints, confidence: float) -> tuple[int, int, int]:
    """The exact interval of a median between two of the ordered values, and the median in between."""
    beyond = _values_beyond(ordered.size, confidence)
    median = int(ordered[(ordered.size + 1) // 2 - 1])
    return min(int(ordered[beyond]), median), median, max(int(ordered[-1 - beyond]), median)
