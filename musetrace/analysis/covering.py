"""Which of many intervals covers each piece of an axis, by priority."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NONE_COVERS = np.iinfo(np.int64).max


def least_covering(first: Ints, past: Ints, value: Ints, pieces: int) -> Ints:
    """For each piece the smallest value of the ranges that cover it; :data:`NONE_COVERS` where none does.

    A range of length n is two overlapping ones of the largest power of two within n. The least values of
    ranges of one such length are handed down to their two halves, from the longest to single pieces: work and
    memory grow with ``pieces * log2(longest range)`` and not with the pieces that all ranges cover.

    Args:
        first: int64[n], the first piece that each range covers.
        past: int64[n], the piece after its last; a range with ``past <= first`` covers nothing.
        value: int64[n], below :data:`NONE_COVERS`.
        pieces: how many pieces the axis has.

    Returns:
        int64[pieces].
    """
    some = past > first
    first, past, value = first[some], past[some], value[some]
    least = np.full(pieces, NONE_COVERS, dtype=np.int64)
    if len(first) == 0:
        return least
    level = np.frexp((past - first).astype(np.float64))[1] - 1  # floor of log2, exact below 2^53
    for at in range(int(level.max()), -1, -1):
        if at < level.max():
            half = 1 << at
            handed = least.copy()
            np.minimum(handed[half:], least[:-half], out=handed[half:])
            least = handed
        of_level = level == at
        np.minimum.at(least, first[of_level], value[of_level])
        np.minimum.at(least, past[of_level] - (1 << at), value[of_level])
    return least


def covers(first: Ints, past: Ints, pieces: int) -> npt.NDArray[np.bool_]:
    """bool[pieces]: whether one of the ranges covers each piece. ``first <= past <= pieces``."""
    opened = np.bincount(first, minlength=pieces + 1)
    closed = np.bincount(past, minlength=pieces + 1)
    covered: npt.NDArray[np.bool_] = np.cumsum(opened - closed)[:-1] > 0
    return covered
