"""Lengths of unions of intervals, many groups at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.errors import AnalysisError

_MAX_AXIS_NS = 1 << 62

Ints = npt.NDArray[np.int64]


def sorted_axis(group: Ints, begin: Ints, end: Ints, reach: int) -> tuple[Ints, Ints, Ints]:
    """Put the intervals of all groups on one axis, where group g owns ``[g * reach, (g + 1) * reach)``.

    Args:
        group: the group of each interval, >= 0.
        begin: int64[n] in ``[0, reach)``.
        end: int64[n], ``begin <= end < reach``.
        reach: a length that no interval's end comes to.

    Returns:
        order, begin and end on the axis; sorted by begin. ``order`` is the permutation that was applied.

    Raises:
        AnalysisError: the axis would be longer than 2^62 ns.
    """
    if len(group) and (int(group.max()) + 1) * reach > _MAX_AXIS_NS:
        raise AnalysisError(
            f"{int(group.max()) + 1} pairs of block and launch, of up to {reach} ns each, are too many to be "
            "added up: choose one kind of launch"
        )
    axis_begin = group * reach + begin
    axis_end = group * reach + end
    if len(group) and (axis_begin[1:] < axis_begin[:-1]).any():
        order = np.argsort(axis_begin, kind="stable")
        return order, axis_begin[order], axis_end[order]
    return np.arange(len(group)), axis_begin, axis_end


def newly_covered(begin: Ints, end: Ints) -> Ints:
    """For intervals sorted by begin: the length that each covers and none before it does.

    The sum over any set of whole groups is the length of their union. Touching intervals share nothing, and
    an interval of no length covers nothing.
    """
    if len(begin) == 0:
        return np.zeros(0, dtype=np.int64)
    covered_to = np.maximum.accumulate(end)
    start = begin.copy()
    np.maximum(start[1:], covered_to[:-1], out=start[1:])
    covered: Ints = np.maximum(end - start, 0)
    return covered


def opens_piece(begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """For intervals as :func:`newly_covered` takes them: may each begin a piece of the union of its own?

    Times that a stepping clock rounded down touch where the true ones may lie apart, and what it gives no
    length may lie before the piece with whose begin it coincides. So this counts no fewer pieces than the
    intervals really have; only what the clock shows to overlap is one.
    """
    if len(begin) == 0:
        return np.zeros(0, dtype=np.bool_)
    covered_to = np.maximum.accumulate(end)
    opens = np.ones(len(begin), dtype=np.bool_)
    opens[1:] = begin[1:] >= covered_to[:-1]
    piece_begin = begin[opens][np.cumsum(opens) - 1]
    may: npt.NDArray[np.bool_] = opens | ((begin == end) & (begin == piece_begin))
    return may
