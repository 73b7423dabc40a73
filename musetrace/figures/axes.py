"""Axes that all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_CHARACTER_PX = 7.0
_LEAST_MARGIN_PX = 96
_ROOM = 0.02  # of the axis, right of the last end


def time_axis(span_us: tuple[float, float], title: str) -> dict[str, Any]:
    """An x axis in us over ``span_us`` and a little more."""
    first, last = span_us
    return {
        "range": [first, last + _ROOM * (last - first)],
        "title": {"text": title},
        "tickformat": ",~r",
        "exponentformat": "none",
        "showline": True,
        "minallowed": first - (last - first),
        "maxallowed": last + (last - first),
    }


def left_margin_px(labels: Sequence[str]) -> int:
    """Room for the longest of some labels."""
    return max(_LEAST_MARGIN_PX, round(32 + _CHARACTER_PX * max(map(len, labels), default=0)))
