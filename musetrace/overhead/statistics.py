"""Medians with bootstrap intervals, and what they allow to say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

RESAMPLES = 4000
CONFIDENCE = 0.95
# The median of n values lies outside of all of them with a chance of 2^(1 - n): below six, no interval is a
# 95 % one.
LEAST_VALUES = 6
_LEAST_TIME = 1.0
_DRAWN_AT_ONCE = 4_000_000
# With more values both intervals are the same for all that can be seen.
_MOST_FOR_EXACT = 1000

COSTS = "costs"
SAVES = "saves"
CANNOT_TELL = "cannot tell"


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
    tails = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
    low, high = np.percentile(_resampled_medians(sample, seed), tails)
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


def _values_beyond(count: int) -> int:
    """How many of ``count`` values may lie beyond each end of an exact interval for their median.

    That many or fewer lie on a given side of the true median with a chance of 2.5 % at most.
    """
    if count > _MOST_FOR_EXACT:
        return count // 2  # the bootstrap alone
    most, chance = 0.5 * (1 - CONFIDENCE) * 2**count, 0
    for beyond in range(count):
        chance += math.comb(count, beyond)
        if chance > most:
            return max(0, beyond - 1)
    return 0


def verdict_of(added: Interval, resolution: float = 0.0) -> str:
    """``costs`` or ``saves`` when zero lies outside of the interval, else ``cannot tell``.

    Fewer than six values tell nothing, nor does a median within the resolution of the clock, which is given
    in the unit of the interval.
    """
    if added.count < LEAST_VALUES or added.low <= 0.0 <= added.high or abs(added.median) <= resolution:
        return CANNOT_TELL
    return COSTS if added.low > 0.0 else SAVES


def paired(side: npt.ArrayLike, base: npt.ArrayLike) -> tuple[Values, Values]:
    """What a side adds to its baseline, one value for each block of the schedule.

    In a block both were timed twice, each side beside a baseline, once before and once behind it. The mean
    over both neighbours is free of a drift that is the same over the block.

    Args:
        side: [blocks, 2] times in ns; ``[b, i]`` was timed beside ``base[b, i]``.
        base: [blocks, 2] times.

    Returns:
        [blocks] added times, and [blocks] added shares of the baseline.
    """
    times, beside = np.asarray(side, dtype=np.float64), np.asarray(base, dtype=np.float64)
    # What the clock did not see took less than its tick, not nothing.
    shares = times / np.maximum(beside, _LEAST_TIME)
    return (times - beside).mean(axis=1), shares.mean(axis=1) - 1.0
