"""From spans to op instances: what one block did of one thing in one launch, from first begin to last end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.spans.rows import JobRows
from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max
_DENSE_ENTRIES = 1 << 22  # 64 MB of begins and ends: beyond this, sort


def op_extents(spans: StepSpans, rows: JobRows[Any]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """The earliest begin and latest end of each (row, launch, block) that has spans; by these, growing.

    Returns:
        row, launch (its place), block, begin and end, int64[n] each.
    """
    row_of_job = rows.by_job(spans.job)
    blocks = int(spans.block.max(initial=-1)) + 1
    found: tuple[Ints, Ints, Ints, Ints, Ints] = _core.analysis.op_extents(
        spans.columns, blocks, row_of_job, len(rows.names)
    )
    return found


def extents(
    key: Ints, begin: Ints, end: Ints, keys: int, *, dense_entries: int = _DENSE_ENTRIES
) -> tuple[Ints, Ints, Ints]:
    """The earliest begin and latest end of the spans of each key.

    Args:
        key: int64[n] in ``[0, keys)``.
        begin: int64[n].
        end: int64[n].
        keys: how many keys there may be.
        dense_entries: up to so many keys a table of all of them is used, which is faster than sorting.

    Returns:
        The keys that occur, ascending, and the begin and end of each.
    """
    if keys > dense_entries:
        return _extents_sorted(key, begin, end)
    first = np.full(keys, _NEVER, dtype=np.int64)
    last = np.full(keys, -_NEVER, dtype=np.int64)
    np.minimum.at(first, key, begin)
    np.maximum.at(last, key, end)
    present = np.flatnonzero(first != _NEVER)
    return present, first[present], last[present]


def _extents_sorted(key: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    if len(key) == 0:
        return key, begin, end
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    return ordered[starts], np.minimum.reduceat(begin[order], starts), np.maximum.reduceat(end[order], starts)
