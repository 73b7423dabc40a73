"""How often each of many integers was seen: exact percentiles without keeping them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.percentiles import TENTHS

Ints = npt.NDArray[np.int64]

_MOST_PENDING = 1 << 16


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass
class Tally:
    """Values with their counts; times of a stepping clock have few different values.

    Two tallies are put together by :meth:`merge`, in any order.
    """

    _values: Ints = field(default_factory=_none)
    _counts: Ints = field(default_factory=_none)
    _pending: list[Ints] = field(default_factory=list)
    _pending_n: int = 0

    def add(self, values: Ints) -> None:
        """Count int64[n]."""
        if not len(values):
            return
        self._pending.append(values)
        self._pending_n += len(values)
        if self._pending_n > _MOST_PENDING + len(self._values):
            self._settle()

    def merge(self, other: Tally) -> None:
        """Count what another has counted."""
        other._settle()
        self._settle()
        self._take(other._values, other._counts)

    @property
    def n(self) -> int:
        """How many values were counted."""
        return int(self._counts.sum()) + self._pending_n

    def nearest_rank(self, percents: Sequence[int] = TENTHS) -> tuple[int | None, ...]:
        """As ``percentiles.nearest_rank``: None each where nothing was counted."""
        self._settle()
        if not len(self._values):
            return (None,) * len(percents)
        up_to = np.cumsum(self._counts)
        places = [max(-(-percent * int(up_to[-1]) // 100), 1) for percent in percents]
        return tuple(int(value) for value in self._values[np.searchsorted(up_to, places)])

    def _settle(self) -> None:
        if self._pending:
            values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
            self._pending, self._pending_n = [], 0
            self._take(values, counts.astype(np.int64))

    def _take(self, values: Ints, counts: Ints) -> None:
        every, place = np.unique(np.concatenate([self._values, values]), return_inverse=True)
        sums = np.zeros(len(every), dtype=np.int64)
        np.add.at(sums, place, np.concatenate([self._counts, counts]))
        self._values, self._counts = every, sums
