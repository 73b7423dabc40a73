"""Integer sums by key: what every state of an answer is made of, so that states merge by addition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace import _core

Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.int64] | npt.NDArray[np.int32]


@dataclass(frozen=True)
class KeySums:
    """Sums by key: ``keys`` int64[n] each, ``sums`` int64[n].

    Keys are distinct and grow, the first column counts most. A key whose sum is 0 is left out.
    """

    keys: tuple[Ints, ...]
    sums: Ints

    @classmethod
    def of(cls, *keys: AnyInts | int, sums: AnyInts | int = 1) -> KeySums:
        """Add up ``sums`` by key; each argument is int64[n] or one number for all."""
        return cls(*_core.analysis.sum_by_key(keys, sums))

    @classmethod
    def merged(cls, tallies: Sequence[KeySums]) -> KeySums:
        """The sum of some tallies, which have as many key columns each; at least one."""
        some = [tally for tally in tallies if len(tally)] or list(tallies[:1])
        if len(some) == 1:
            return some[0]
        columns = [np.concatenate(parts) for parts in zip(*(tally.keys for tally in some), strict=True)]
        return cls.of(*columns, sums=np.concatenate([tally.sums for tally in some]))

    def __len__(self) -> int:
        """Number of keys."""
        return len(self.sums)

    def groups(self) -> Iterator[tuple[int, KeySums]]:
        """The first key's values, growing, each with the tally of the keys behind it."""
        if not len(self):
            return
        first, rest = self.keys[0], self.keys[1:]
        starts = np.flatnonzero(np.diff(first, prepend=first[0] - 1))
        for begin, end in zip(starts.tolist(), np.append(starts[1:], len(first)).tolist(), strict=True):
            yield int(first[begin]), KeySums(tuple(key[begin:end] for key in rest), self.sums[begin:end])

    def where(self, chosen: npt.NDArray[np.bool_]) -> KeySums:
        """Some of the entries."""
        return KeySums(tuple(key[chosen] for key in self.keys), self.sums[chosen])

    def dropping(self, column: int) -> KeySums:
        """The sums over one of the key columns."""
        return KeySums.of(*(key for at, key in enumerate(self.keys) if at != column), sums=self.sums)

    def as_dict(self) -> dict[tuple[int, ...], int]:
        """Sums by key, as Python numbers."""
        keys = zip(*(key.tolist() for key in self.keys), strict=True)
        return dict(zip(keys, self.sums.tolist(), strict=True))


def nothing_summed(width: int) -> KeySums:
    """Nothing, with so many key columns."""
    none = np.zeros(0, dtype=np.int64)
    return KeySums((none,) * width, none)
