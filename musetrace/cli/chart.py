"""Bars over a time axis, drawn with characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_CHART = 12
_LABEL_EVERY = 6  # at least so many cells from one label of the axis to the next

_UNICODE = {"busy": "█", "send": "▓", "loading": "▒", "waiting": "─", "whisker": "·"}
_ASCII = {"busy": "#", "send": ">", "loading": "=", "waiting": "-", "whisker": "."}
_STYLE_OF_KIND = {
    "compute": "busy",
    "send": "send",
    "recv": "send",
    "sync": "send",
    "load": "loading",
    "prefetch": "loading",
    "wait": "waiting",
}


@dataclass(frozen=True)
class Chart:
    """A time axis from 0 to ``axis_ns``, ``width`` cells long."""

    axis_ns: int
    width: int
    unicode: bool

    @property
    def _glyphs(self) -> dict[str, str]:
        return _UNICODE if self.unicode else _ASCII

    def bar(self, kind: str, begin_ns: int, end_ns: int, early_ns: int, late_ns: int) -> str:
        """A bar for a kind of job, at least a cell long; whiskers go out to ``early_ns`` and ``late_ns``."""
        line = [" "] * self.width
        self._fill(line, early_ns, late_ns, self._glyphs["whisker"])
        self._fill(line, begin_ns, end_ns, self._glyphs[_STYLE_OF_KIND.get(kind, "busy")])
        return "".join(line).rstrip(" ")

    def stacked(self, parts: Sequence[tuple[str, int]]) -> str:
        """Lengths in ns end to end, each in the style ``busy``, ``loading`` or ``waiting``."""
        line, at = "", 0
        for style, length_ns in parts:
            at += length_ns
            line += self._glyphs[style] * (self._cell(at) - len(line))
        return line

    def axis(self) -> str:
        """The axis' labels in us, each above the cell of its time."""
        every = _nice_step(self.axis_ns * _LABEL_EVERY / self.width)
        decimals = next((n for n, unit in enumerate((1000, 100, 10)) if every >= unit), 3)
        line = "0 us"
        for at in range(every, self.axis_ns + 1, every):
            place, label = at * self.width // self.axis_ns, f"{at / 1000:,.{decimals}f}"
            if place > len(line) and place + len(label) <= self.width:
                line = line.ljust(place) + label
        return line

    def _cell(self, time_ns: int) -> int:
        return min(max(round(time_ns * self.width / self.axis_ns), 0), self.width)

    def _fill(self, line: list[str], begin_ns: int, end_ns: int, glyph: str) -> None:
        first = min(max(begin_ns * self.width // self.axis_ns, 0), self.width - 1)
        last = min(max(-(-end_ns * self.width // self.axis_ns), first + 1), self.width)
        line[first:last] = glyph * (last - first)


def legend(unicode: bool) -> str:
    """What the glyphs of a chart mean."""
    glyphs = _UNICODE if unicode else _ASCII
    styles = {"busy": "compute", "send": "send, recv, sync", "loading": "load", "waiting": "wait"}
    bars = "  ".join(f"{glyphs[style]} {meaning}" for style, meaning in styles.items())
    return f"bars: {bars}, from p50 to p50  {glyphs['whisker']} p10, p90"


def _nice_step(at_least_ns: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50... ns that is not below ``at_least_ns``."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor >= at_least_ns:
                return step * factor
        step *= 10
