"""How many of a row's values came from each launch, which is what the uncertainty of their mean needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]

_LAUNCH_IDS = 1 << 16  # a launch's id within its step has 16 bits


def launch_key(step: Ints | int, launch_id: Ints) -> Ints:
    """One number for a launch of a step. Ranks share it: they may have run in one launch of one device."""
    key: Ints = step * _LAUNCH_IDS + launch_id
    return key


@dataclass
class LaunchCounts:
    """Counts values by launch, as they come."""

    _keys: list[Ints] = field(default_factory=list)
    _counts: list[Ints] = field(default_factory=list)

    def add(self, spans: StepSpans, launch: Ints) -> None:
        """Count values of one (rank, step); ``launch`` has the index of each value's launch in ``spans``."""
        counts = np.bincount(launch, minlength=len(spans.launch_id))
        seen = np.flatnonzero(counts)
        self._keys.append(launch_key(spans.step, spans.launch_id[seen]))
        self._counts.append(counts[seen])

    def per_launch(self) -> Ints:
        """How many values each launch gave, int64[launches], ranks together."""
        if not self._keys:
            return np.zeros(0, dtype=np.int64)
        _, index = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.zeros(int(index.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(sums, index, np.concatenate(self._counts))
        return sums

    def squares(self) -> int:
        """The sum of the squares of :meth:`per_launch`, for ``sum_uncertainty_ns``."""
        return sum(int(count) ** 2 for count in self.per_launch())
