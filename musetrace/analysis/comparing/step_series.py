"""One number for each step of a run: what a comparison of two runs is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.percentiles import nearest_rank, rounded_mean

Ints = npt.NDArray[np.int64]
Name = tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """A time of each step that has it.

    ``step_ns`` int64[steps] in the order of the steps; ``uncertainty_ns`` is what the clock leaves open in
    each, None where its tick is not known; ``launches`` is in how many launches of a step of one rank the
    thing happens (the median), and ``count`` how many times it was seen in all.
    """

    step_ns: Ints
    uncertainty_ns: int | None
    launches: int
    count: int


@dataclass(frozen=True)
class RankSeries:
    """Series by name: of all ranks together, and of each rank that has it."""

    names: dict[Name, Series] = field(default_factory=dict)
    by_rank: dict[tuple[int, Name], Series] = field(default_factory=dict)

    def of(self, name: Name, rank: int | None = None) -> Series | None:
        """One of them; None where there is none."""
        return self.names.get(name) if rank is None else self.by_rank.get((rank, name))


@dataclass
class Medians:
    """Medians of one (rank, step) each, as they come; a step's number is their mean over ranks.

    So a rank that is slow alone shows, and within a rank nothing that happens now and then does.
    """

    _medians: dict[Name, dict[int, dict[int, int]]] = field(default_factory=dict)  # by rank and step
    _launches: dict[tuple[int, Name], list[int]] = field(default_factory=lambda: defaultdict(list))
    _counts: dict[tuple[int, Name], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, name: Name, rank: int, step: int, values: Ints, launches: int) -> None:
        """Add the values of one (rank, step), which come from so many of its launches."""
        self._medians.setdefault(name, {}).setdefault(rank, {})[step] = median(values)
        self._launches[rank, name].append(launches)
        self._counts[rank, name] += len(values)

    def series(self, tick: int | None) -> RankSeries:
        """The series of each name, in the order in which names came."""
        found = RankSeries()
        for name, of_ranks in self._medians.items():
            found.names[name] = self._series(name, list(of_ranks), tick)
            for rank in of_ranks:
                found.by_rank[rank, name] = self._series(name, [rank], tick)
        return found

    def _series(self, name: Name, ranks: list[int], tick: int | None) -> Series:
        means = mean_over_ranks([self._medians[name][rank] for rank in ranks])
        launches = [number for rank in ranks for number in self._launches[rank, name]]
        count = sum(self._counts[rank, name] for rank in ranks)
        return Series(means, tick, median(np.array(launches, np.int64)), count)


def median(values: Ints) -> int:
    """The nearest-rank median of at least one integer."""
    (found,) = nearest_rank(values, (50,))
    return found or 0


def mean_over_ranks(of_ranks: Collection[Mapping[int, int]]) -> Ints:
    """The mean over ranks in each step that one of them has, steps growing; each gives a number by step."""
    steps = sorted({step for of_rank in of_ranks for step in of_rank})
    means = [
        rounded_mean(np.array([of_rank[step] for of_rank in of_ranks if step in of_rank], dtype=np.int64))
        for step in steps
    ]
    return np.array(means, dtype=np.int64)
