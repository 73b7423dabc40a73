"""What a question keeps of the steps that it has seen: integer sums by key, which merge by addition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from musetrace.analysis.kept_sums.key_sums import AnyInts, KeySums, nothing_summed


@dataclass
class State:
    """Tallies by name.

    ``sums`` are of anything. ``launches`` count differences of stamps by (any keys, launch's id) within one
    step; once all ranks of the step are there, :func:`of_step` makes ``squares`` of them, by the same keys
    without the launch: the sums over launches of the square of the count, ranks together, which is what the
    uncertainty of a sum asks for (``clock_quality``).
    """

    sums: dict[str, KeySums] = field(default_factory=dict)
    launches: dict[str, KeySums] = field(default_factory=dict)
    squares: dict[str, KeySums] = field(default_factory=dict)

    def add(self, name: str, *keys: AnyInts | int, sums: AnyInts | int = 1) -> None:
        """Add to the sums of a name, which has the same number of keys each time."""
        _add(self.sums, name, KeySums.of(*keys, sums=sums))

    def add_launches(self, name: str, *keys: AnyInts | int, sums: AnyInts | int = 1) -> None:
        """Count differences of stamps; the last of the keys is the id of the launch that they are of."""
        _add(self.launches, name, KeySums.of(*keys, sums=sums))

    def sum_of(self, name: str, width: int) -> KeySums:
        """The sums of a name with so many keys; nothing where none was added."""
        return self.sums.get(name, nothing_summed(width))

    def number(self, name: str, key: int) -> int:
        """One sum of a name with one key."""
        tally = self.sum_of(name, 1)
        return int(tally.sums[tally.keys[0] == key].sum())

    def square_of(self, name: str, *key: int) -> int:
        """The sum of squares of one key."""
        tally = self.squares.get(name, nothing_summed(len(key)))
        found = np.ones(len(tally), dtype=np.bool_)
        for column, one in zip(tally.keys, key, strict=True):
            found &= column == one
        return int(tally.sums[found].sum())


class StatesByRank:
    """Collects what is found for all ranks together, and deals it to a state for each."""

    def __init__(self, ranks: int) -> None:
        """Nothing yet; ranks are told by their place."""
        self._ranks = ranks
        self._parts: dict[str, dict[str, list[KeySums]]] = {"sums": {}, "launches": {}}

    def add(self, name: str, rank: AnyInts, *keys: AnyInts | int, sums: AnyInts | int = 1) -> None:
        """As ``State.add``, of the rank at each place."""
        self._parts["sums"].setdefault(name, []).append(KeySums.of(rank, *keys, sums=sums))

    def add_launches(self, name: str, rank: AnyInts, *keys: AnyInts | int, sums: AnyInts | int = 1) -> None:
        """As ``State.add_launches``."""
        self._parts["launches"].setdefault(name, []).append(KeySums.of(rank, *keys, sums=sums))

    def states(self) -> list[State]:
        """One for each rank, in order."""
        found = [State() for _ in range(self._ranks)]
        for of, names in self._parts.items():
            for name, parts in names.items():
                for rank, tally in KeySums.merged(parts).groups():
                    getattr(found[rank], of)[name] = tally
        return found


def merged(states: Iterable[State]) -> State:
    """The sums and squares of states that have no launch in common."""
    found = State()
    every = list(states)
    for of in ("sums", "squares"):
        parts: dict[str, list[KeySums]] = {}
        for state in every:
            for name, tally in getattr(state, of).items():
                parts.setdefault(name, []).append(tally)
        setattr(found, of, {name: KeySums.merged(tallies) for name, tallies in parts.items()})
    return found


def squares_of(states: Sequence[State]) -> State:
    """The squares of the launches of one step, from all ranks that are asked about; no sums."""
    found = State()
    parts: dict[str, list[KeySums]] = {}
    for state in states:
        for name, tally in state.launches.items():
            parts.setdefault(name, []).append(tally)
    for name, tallies in parts.items():
        counts = KeySums.merged(tallies)
        squared = KeySums(counts.keys, counts.sums**2)
        found.squares[name] = squared.dropping(len(squared.keys) - 1)
    return found


def of_step(states: Sequence[State]) -> State:
    """The sums and squares of one step, from all ranks that are asked about."""
    sums = merged(State(sums=state.sums) for state in states)
    return State(sums=sums.sums, squares=squares_of(states).squares)


def _add(tallies: dict[str, KeySums], name: str, tally: KeySums) -> None:
    known = tallies.get(name)
    tallies[name] = tally if known is None else KeySums.merged([known, tally])
