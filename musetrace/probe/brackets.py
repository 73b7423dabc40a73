"""The offset between two clocks, from readings of one between two readings of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.facts import Fact, exact, fact


@dataclass(frozen=True)
class Offset:
    """``offset_ns`` is right to ``error_ns``; ``consistent`` says that all brackets agree on it."""

    offset_ns: int
    error_ns: int
    consistent: bool


def offset_of(brackets: npt.NDArray[Any]) -> Offset:
    """How far the inner clock is ahead of the outer: ``brackets`` is int64 [rounds, 3], outer, inner, outer.

    The inner clock was read after the first and before the second outer reading, so its offset lies between
    inner - second and inner - first; in all rounds alike, which leaves their intersection (Marzullo and
    Owicki, 1983). Where the clocks drift or step it is empty: then the narrowest bracket has the word.
    """
    low = brackets[:, 1] - brackets[:, 2]
    high = brackets[:, 1] - brackets[:, 0]
    lowest, highest = int(low.max()), int(high.min())
    if lowest > highest:
        narrowest = int(np.argmin(high - low))
        lowest, highest = int(low[narrowest]), int(high[narrowest])
        return Offset((lowest + highest) // 2, -(-(highest - lowest) // 2), False)
    return Offset((lowest + highest) // 2, -(-(highest - lowest) // 2), True)


def offset_facts(brackets: npt.NDArray[Any], what: str) -> list[Fact]:
    """The offset, its error, and how wide the brackets are."""
    found = offset_of(brackets)
    note = what
    if not found.consistent:
        note += "; the brackets do not agree, so a clock was set or drifts: from the narrowest alone"
    rounds = len(brackets)
    return [
        exact("offset", "ns", found.offset_ns, n=rounds, note=note),
        exact("offset_error", "ns", found.error_ns, n=rounds, note="the offset is right to +- this"),
        fact(
            "bracket",
            "ns",
            brackets[:, 2] - brackets[:, 0],
            note="between the outer clock's readings",
        ),
    ]
