"""Who is late: which rank or block ended last in most of the waits, where that is certain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Standard deviations by which the first must lead the second.
_LEAD = 2.0


@dataclass(frozen=True)
class Late:
    """An entry of ``last_ranks`` and one of ``last_blocks`` of an ``attribution`` row; None: not certain."""

    rank: Mapping[str, Any] | None
    block: Mapping[str, Any] | None


def late_of(pair: Mapping[str, Any], cases: int, ranks: int) -> Late:
    """The rank and the block that a row of ``attribution`` names for certain.

    The first leads for certain when it does so whoever was last in the waits in which the clock cannot tell
    (``cannot_tell_share``), and by more than chance gives. All waits of a launch may have been for one late
    block, so only launches count as ``cases``: with shares a and b of them the lead is ``(a - b) cases`` with
    a standard deviation of at most ``sqrt((a + b) cases)``, and must be more than twice that. ``ranks`` is
    the number of the run's ranks; of a single rank it is nothing to be last.
    """
    return Late(
        leader(pair["last_ranks"], pair["cannot_tell_share"], cases) if ranks > 1 else None,
        leader(pair["last_blocks"], pair["cannot_tell_share"], cases),
    )


def leader(
    entries: Sequence[Mapping[str, Any]] | None, cannot_tell: float | None, cases: int
) -> Mapping[str, Any] | None:
    """The first entry, by ``share`` of so many cases, where it leads for certain (:func:`late_of`)."""
    if not entries or cannot_tell is None:
        return None
    first, second = entries[0]["share"], entries[1]["share"] if len(entries) > 1 else 0.0
    by_chance = _LEAD * math.sqrt((first + second) / cases) if cases else math.inf
    return entries[0] if first - second - cannot_tell > by_chance else None
