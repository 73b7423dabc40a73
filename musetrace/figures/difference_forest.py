"""Differences of two runs with their intervals, one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from musetrace.analysis.comparing.difference import CANNOT_TELL, FASTER, SAME, SLOWER
from musetrace.figures.axes import NamedRows
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

MOST_ROWS = 40

_PERCENT = 100
_ROWS = NamedRows(row_px=20, top_px=8, bottom_px=44, right_px=24, characters=34)
_ROOM = 0.06  # of the axis, beside the outermost end
_SYMBOLS = {FASTER: "triangle-left", SLOWER: "triangle-right", SAME: "square", CANNOT_TELL: "circle-open"}
_HOVER = (
    "<b>%{customdata[0]}</b> %{customdata[1]}<br>A %{customdata[2]} ns, B %{customdata[3]} ns<br>"
    "B - A %{customdata[4]}<br>95 % %{customdata[5]} ns<extra></extra>"
)


def difference_forest_figure(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], theme_name: str, *, as_share: bool = False
) -> go.Figure:
    """Draw rows of ``musetrace.analysis.compare``, each under its name: B minus A and its 95 % interval.

    x is in us, or ``as_share`` in % of A's time. The shape of a mark is its verdict; the grey bar around zero
    is what the row's verdict takes for the same. At most MOST_ROWS rows.
    """
    look = theme(theme_name)
    drawn = [
        _Row(row, name, abs(row["a_ns"] or 1) / _PERCENT if as_share else US)
        for row, name in zip(rows[:MOST_ROWS], names[:MOST_ROWS], strict=True)
    ]
    verdicts = [verdict for verdict in _SYMBOLS if any(row.values["verdict"] == verdict for row in drawn)]
    figure = go.Figure([_bands(drawn, look), *(_marks(verdict, drawn, look) for verdict in verdicts)])
    figure.add_shape(
        type="line", x0=0, x1=0, y0=-0.5, y1=len(drawn) - 0.5, layer="below",
        line={"color": look.faint_ink, "width": 1},
    )  # fmt: skip
    first = min((min(row.of("low_ns"), 0) for row in drawn), default=0)
    last = max((max(row.of("high_ns"), 0) for row in drawn), default=0)
    room = _ROOM * (last - first) or 1.0
    unit = "% of A" if as_share else "\N{MICRO SIGN}s each"
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        xaxis={
            "range": [first - room, last + room],
            "title": {"text": f"B minus A, {unit}, with its 95 % interval"},
            "tickformat": ",~r",
            "exponentformat": "none",
            "showline": True,
        },
        **_ROWS.layout([row.name for row in drawn]),
    )
    return figure


def verdict_colour(verdict: str, look: Theme) -> str:
    """The colour of a verdict."""
    return {FASTER: look.good, SLOWER: look.bad}.get(verdict, look.soft_ink)


@dataclass(frozen=True)
class _Row:
    """A row, its name, and how many ns are one unit of the axis."""

    values: Mapping[str, Any]
    name: str
    unit_ns: float

    def of(self, name: str) -> float:
        return (self.values[name] or 0) / self.unit_ns


def _bands(rows: Sequence[_Row], look: Theme) -> go.Bar:
    half = [row.of("band_ns") for row in rows]
    return go.Bar(
        base=[-one for one in half],
        x=[2 * one for one in half],
        y=list(range(len(rows))),
        width=0.7,
        orientation="h",
        marker={"color": look.grid},
        hoverinfo="skip",
        name="taken for the same",
    )


def _marks(verdict: str, rows: Sequence[_Row], look: Theme) -> go.Scatter:
    mine = {place: row for place, row in enumerate(rows) if row.values["verdict"] == verdict}
    colour = verdict_colour(verdict, look)
    outline = {"color": colour, "width": 1}
    return go.Scatter(
        x=[row.of("difference_ns") for row in mine.values()],
        y=list(mine),
        mode="markers",
        marker={"symbol": _SYMBOLS[verdict], "size": 8, "color": colour, "line": outline},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [row.of("high_ns") - row.of("difference_ns") for row in mine.values()],
            "arrayminus": [row.of("difference_ns") - row.of("low_ns") for row in mine.values()],
            "color": colour,
            "thickness": 1.25,
            "width": 3,
        },
        customdata=[_hover_texts(row) for row in mine.values()],
        hovertemplate=_HOVER,
        name=verdict,
    )


def _hover_texts(row: _Row) -> list[str]:
    values = row.values
    return [
        shown(row.name),
        values["verdict"],
        exact_ns(values["a_ns"]),
        exact_ns(values["b_ns"]),
        f"{exact_ns(values['difference_ns'])} ns {plus_minus(values['uncertainty_ns'])}",
        f"{exact_ns(values['low_ns'])} to {exact_ns(values['high_ns'])}",
    ]
