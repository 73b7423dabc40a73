"""Integer sums by key: what every state of an answer is made of, so that states merge by addition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.int64] | npt.NDArray[np.int32]

# Up to so many times the entries a table of all possible keys is summed up in, which is faster than sorting.
_DENSE_FACTOR = 4
_DENSE_KEYS = 1 << 16
_MAX_PACKED = 1 << 62
# Columns of a span between these are given places of their own, when that saves something.
_NARROW, _MOST_NARROWED = 64, 1 << 20
_SPARSE = 16
_EXACT_IN_DOUBLES = 1 << 53


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
        *columns, values = np.broadcast_arrays(*keys, sums)
        if values.ndim == 0:
            values, columns = values.reshape(1), [column.reshape(1) for column in columns]
        every = int(sums) if np.ndim(sums) == 0 else None
        return _summed([np.asarray(column, dtype=np.int64) for column in columns], values, every)

    @classmethod
    def merged(cls, tallies: Sequence[KeySums]) -> KeySums:
        """The sum of some tallies, which have as many key columns each; at least one."""
        some = [tally for tally in tallies if len(tally)] or list(tallies[:1])
        if len(some) == 1:
            return some[0]
        columns = [np.concatenate(parts) for parts in zip(*(tally.keys for tally in some), strict=True)]
        return _summed(columns, np.concatenate([tally.sums for tally in some]))

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
        return _summed([key for at, key in enumerate(self.keys) if at != column], self.sums)

    def as_dict(self) -> dict[tuple[int, ...], int]:
        """Sums by key, as Python numbers."""
        keys = zip(*(key.tolist() for key in self.keys), strict=True)
        return dict(zip(keys, self.sums.tolist(), strict=True))


def nothing_summed(width: int) -> KeySums:
    """Nothing, with so many key columns."""
    none = np.zeros(0, dtype=np.int64)
    return KeySums((none,) * width, none)


def _summed(columns: Sequence[Ints], numbers: npt.NDArray[Any], every: int | None = None) -> KeySums:
    """Where all ``numbers`` are the same, ``every`` says which."""
    values: Ints = numbers.astype(np.int64, copy=False)
    if not len(values):
        return nothing_summed(len(columns))
    limit = max(_DENSE_KEYS, _DENSE_FACTOR * len(values))
    places = [_Places.of(column) for column in columns]
    if math.prod(one.span for one in places) > limit:
        places = [one.narrowed() for one in places]
    possible = math.prod(one.span for one in places)
    if possible > _MAX_PACKED:
        return _summed_by_lexsort(columns, values)
    packed = _packed(places)
    if possible <= limit and _exact_in_doubles(values):
        dense = np.bincount(packed, None if every is not None else values, possible).astype(np.int64)
        present = np.flatnonzero(dense)
        return _without_zeros(_unpacked(present, places), dense[present] * (1 if every is None else every))
    if every is not None:
        packed.sort()  # far quicker than finding the order
        starts = np.flatnonzero(np.diff(packed, prepend=packed[0] - 1))
        numbers_of_key = np.diff(starts, append=len(packed)) * every
        return _without_zeros(_unpacked(packed[starts], places), numbers_of_key)
    order = np.argsort(packed)
    packed = packed[order]
    starts = np.flatnonzero(np.diff(packed, prepend=packed[0] - 1))
    return _without_zeros(_unpacked(packed[starts], places), np.add.reduceat(values[order], starts))


@dataclass(frozen=True)
class _Places:
    """A key column as places in ``[0, span)``: of ``values``, or of numbers from ``low`` on."""

    place: Ints
    span: int
    low: int
    values: Ints | None = None

    @classmethod
    def of(cls, column: Ints) -> _Places:
        low = int(column.min())
        return cls(column - low, int(column.max()) - low + 1, low)

    def narrowed(self) -> _Places:
        """Places for the values that there are alone, where that is quick and makes a difference."""
        if not _NARROW < self.span <= _MOST_NARROWED:
            return self
        if self.span > _SPARSE * len(self.place):
            # A table of the span would take far longer than to sort the few that there are.
            few, place = np.unique(self.place, return_inverse=True)
            return _Places(place, len(few), self.low, few)
        present = np.zeros(self.span, dtype=np.bool_)
        present[self.place] = True
        values = np.flatnonzero(present)
        if 2 * len(values) > self.span:
            return self
        return _Places((np.cumsum(present) - 1)[self.place], len(values), self.low, values)

    def named(self, place: Ints) -> Ints:
        """The keys at some places."""
        return (place if self.values is None else self.values[place]) + self.low


def _packed(places: Sequence[_Places]) -> Ints:
    """One number for each key, which grows as keys do."""
    packed = places[0].place.copy()
    for one in places[1:]:
        packed *= one.span
        packed += one.place
    return packed


def _exact_in_doubles(values: Ints) -> bool:
    largest = max(abs(int(values.max())), abs(int(values.min())))
    return largest * len(values) < _EXACT_IN_DOUBLES


def _unpacked(packed: Ints, places: Sequence[_Places]) -> tuple[Ints, ...]:
    columns = []
    for one in reversed(places):
        packed, place = np.divmod(packed, one.span)
        columns.append(one.named(place))
    return tuple(reversed(columns))


def _summed_by_lexsort(columns: Sequence[Ints], values: Ints) -> KeySums:
    order = np.lexsort(tuple(reversed(columns)))
    ordered = [column[order] for column in columns]
    opens = np.zeros(len(values), dtype=np.bool_)
    opens[0] = True
    for column in ordered:
        opens[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(opens)
    sums = np.add.reduceat(values[order], starts)
    return _without_zeros(tuple(column[starts] for column in ordered), sums)


def _without_zeros(keys: tuple[Ints, ...], sums: Ints) -> KeySums:
    some = sums != 0
    return KeySums(keys, sums) if some.all() else KeySums(tuple(key[some] for key in keys), sums[some])
