"""Axes that all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from musetrace.figures.wording import shown

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


@dataclass(frozen=True)
class NamedRows:
    """How a figure is laid out that has a row for each of some names: at place 0 the first, downwards.

    Attributes:
        row_px: the height of a row.
        top_px: above the rows.
        bottom_px: below them, for the x axis.
        right_px: on their right.
        characters: of a name that are shown at most.
    """

    row_px: int
    top_px: int
    bottom_px: int
    right_px: int
    characters: int

    def layout(self, names: Sequence[str]) -> dict[str, Any]:
        """Height, margins and y axis, for ``update_layout``."""
        return {
            "height": self.row_px * max(len(names), 1) + self.top_px + self.bottom_px,
            "margin": {
                "l": left_margin_px([name[: self.characters] for name in names]),
                "r": self.right_px,
                "t": self.top_px,
                "b": self.bottom_px,
            },
            "yaxis": {
                "range": [len(names) - 0.5, -0.5],
                "fixedrange": True,
                "tickvals": list(range(len(names))),
                "ticktext": [shown(name, self.characters) for name in names],
                "ticklabelstandoff": 8,
            },
        }
