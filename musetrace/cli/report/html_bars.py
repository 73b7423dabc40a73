"""Bars beside the rows of a table, drawn as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH_PX, HEIGHT_PX = 280, 12

_BAR_TOP_PX, _BAR_PX = 2, 8
_LEAST_PX = 1.0
_CLASS_OF_PART = {"busy": "compute", "loading": "load", "waiting": "wait"}
KINDS = ("load", "prefetch", "wait", "compute", "send", "recv", "sync")


@dataclass(frozen=True)
class HtmlBars:
    """A time axis from 0 to ``axis_ns``."""

    axis_ns: int

    def bar(self, kind: str, begin_ns: int, end_ns: int, early_ns: int, late_ns: int) -> str:
        """A bar for a kind of job, with a line out to the earliest and the latest."""
        middle = HEIGHT_PX / 2
        line = (
            f'<line class="whisker" x1="{self._px(early_ns)}" x2="{self._px(late_ns)}" '
            f'y1="{middle}" y2="{middle}"/>'
        )
        return _svg([line, self._rectangle(kind if kind in KINDS else "compute", begin_ns, end_ns)])

    def stacked(self, parts: Sequence[tuple[str, int]]) -> str:
        """Lengths in ns end to end."""
        found, at = [], 0
        for part, length_ns in parts:
            found.append(self._rectangle(_CLASS_OF_PART.get(part, "compute"), at, at + length_ns))
            at += length_ns
        return _svg(found)

    def _px(self, time_ns: int) -> float:
        return round(min(max(time_ns / max(self.axis_ns, 1), 0.0), 1.0) * WIDTH_PX, 1)

    def _rectangle(self, kind: str, begin_ns: int, end_ns: int) -> str:
        left, right = self._px(begin_ns), self._px(end_ns)
        return (
            f'<rect class="{kind}" x="{left}" y="{_BAR_TOP_PX}" '
            f'width="{max(round(right - left, 1), _LEAST_PX)}" height="{_BAR_PX}"/>'
        )


def swatch(kind: str) -> str:
    """A small bar for a legend."""
    bar = f'<rect class="{kind}" x="1" y="1" width="16" height="8"/>'
    return f'<svg width="18" height="10" aria-hidden="true">{bar}</svg>'


def _svg(parts: Sequence[str]) -> str:
    return f'<svg width="{WIDTH_PX}" height="{HEIGHT_PX}" aria-hidden="true">{"".join(parts)}</svg>'
