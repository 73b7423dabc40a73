"""Many values as how often each occurs: exact percentiles, sums and means, merged by addition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.percentiles import TENTHS
from musetrace.analysis.kept_sums.key_sums import KeySums, nothing_summed

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ValueCounts:
    """``values`` int64[n], growing and distinct, with ``counts`` int64[n] above 0."""

    values: Ints
    counts: Ints

    @classmethod
    def of(cls, tally: KeySums) -> ValueCounts:
        """From a tally by value."""
        (values,) = tally.keys
        return cls(values, tally.sums)

    def with_zeros(self, zeros: int) -> ValueCounts:
        """The same and so many more zeros."""
        return ValueCounts.of(
            KeySums.merged([KeySums((self.values,), self.counts), KeySums.of(0, sums=zeros)])
        )

    @property
    def n(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """Their sum."""
        return int((self.values * self.counts).sum())

    @property
    def all_equal(self) -> bool:
        """Whether no two values differ."""
        return len(self.values) < 2

    def nearest_rank(self, percents: Sequence[int] = TENTHS) -> tuple[int | None, ...]:
        """The nearest-rank percentiles, as in ``percentiles.nearest_rank``; None each of nothing."""
        count = self.n
        if count == 0:
            return (None,) * len(percents)
        places = [max(-(-percent * count // 100), 1) for percent in percents]
        found = np.searchsorted(np.cumsum(self.counts), places)
        return tuple(self.values[found].tolist())

    def rounded_mean(self) -> int:
        """The mean of at least one value, to the nearest whole one; a half is rounded up."""
        return (2 * self.total + self.n) // (2 * self.n)


NO_VALUES = ValueCounts.of(nothing_summed(1))
