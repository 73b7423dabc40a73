"""Intervals one below the other: a row each, a dot in the middle, a line from its low end to its high end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from musetrace.figures.axes import left_margin_px
from musetrace.figures.comb import comb_path
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import shown

# The kind of a row that is of no kind of job.
PLAIN, STRONG = "", "strong"

_LABEL_CHARACTERS = 30
_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 22, 44, 26
_ROOM = 0.04  # of the axis, on either side
_ROOM_LOG = 1.25
_FEW_ROWS, _SOME_ROWS = 40, 120
_ROW_PX = (20, 13, 6)
_DOT_PX = (8, 6, 4)
_LABEL_PX = (12, 10, 10)
_LINE_PX = 1.6
_LABELS_OF_ALL = 1  # the last size at which each row has room for its label
_HOVER = "%{customdata[0]}<extra></extra>"


@dataclass(frozen=True)
class IntervalRow:
    """A row. ``middle`` None: nothing is known, and ``note`` says so in its place.

    Attributes:
        label: at the left; empty where the row above has it.
        low, middle, high: in the unit of the axis; where an end is None the line ends at the dot.
        hover: lines for hover, not yet escaped.
        kind: of job, whose colour it has; :data:`PLAIN` or :data:`STRONG` for none.
        opens: whether a thin line sets it off from the row above.
        key: what a click on it tells.
    """

    label: str
    low: float | None
    middle: float | None
    high: float | None
    hover: tuple[str, ...]
    kind: str = PLAIN
    opens: bool = False
    note: str = ""
    key: str = ""


@dataclass(frozen=True)
class Band:
    """A range of the axis that is shaded behind all rows, from ``low`` to ``high``, with words above it.

    ``line`` is a value within it that is drawn as a line.
    """

    low: float
    high: float
    words: str
    line: float | None = None


def interval_rows_figure(
    rows: Sequence[IntervalRow],
    title: str,
    theme_name: str,
    *,
    log: bool = False,
    band: Band | None = None,
    from_zero: bool = True,
) -> go.Figure:
    """Draw rows top down. ``title`` is that of the x axis; ``log``: only positive values are drawn then."""
    look = theme(theme_name)
    size = _size(len(rows))
    places = [place for place, row in enumerate(rows) if _is_drawn(row, log)]
    extent = _extent([rows[place] for place in places], band, log, from_zero)
    lines, dots = _lines(rows, places, extent, size, look), _dots(rows, places, size, look)
    figure = go.Figure([lines, dots, _notes(rows, places, look)])
    for place, row in enumerate(rows):
        if row.opens and place:
            _rule(figure, place - 0.5, look)
    if band is not None:
        _shade(figure, band, extent, log, look)
    labels = [
        shown(row.label, _LABEL_CHARACTERS) if size <= _LABELS_OF_ALL or row.opens else "" for row in rows
    ]
    figure.update_layout(
        template=template(theme_name),
        height=_ROW_PX[size] * max(len(rows), 1) + _TOP_PX + _BOTTOM_PX,
        margin={
            "l": left_margin_px([row.label[:_LABEL_CHARACTERS] for row in rows]),
            "r": _RIGHT_PX,
            "t": _TOP_PX,
            "b": _BOTTOM_PX,
        },
        hoverdistance=12,
        xaxis={**_axis(extent, title, log), "zerolinecolor": look.faint_ink},
        xaxis2={"overlaying": "x", "range": [0, 1], "visible": False, "fixedrange": True},
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "fixedrange": True,
            "tickvals": [place for place, label in enumerate(labels) if label],
            "ticktext": [label for label in labels if label],
            "tickfont": {"size": _LABEL_PX[size]},
            "ticklabelstandoff": 8,
        },
    )
    return figure


def _size(rows: int) -> int:
    return 0 if rows <= _FEW_ROWS else 1 if rows <= _SOME_ROWS else 2


def _is_drawn(row: IntervalRow, log: bool) -> bool:
    return row.middle is not None and (not log or row.middle > 0)


def _dots(rows: Sequence[IntervalRow], places: Sequence[int], size: int, look: Theme) -> go.Scatter:
    drawn = [rows[place] for place in places]
    return go.Scatter(
        x=[row.middle for row in drawn],
        y=places,
        mode="markers",
        marker={
            "size": _DOT_PX[size],
            "color": [_colour(row.kind, look) for row in drawn],
            "line": {"width": 1, "color": look.paper},
        },
        customdata=[["<br>".join(shown(line, 120) for line in row.hover), row.key] for row in drawn],
        hovertemplate=_HOVER,
        name="intervals",
    )


def _lines(
    rows: Sequence[IntervalRow], places: Sequence[int], extent: tuple[float, float], size: int, look: Theme
) -> go.Scatter:
    """From the low to the high end of each row, all of them one path.

    What lies before the axis (a logarithmic one has no 0) ends with it.
    """
    drawn = [rows[place] for place in places]
    low, high = (
        np.array([max(row.middle or 0.0 if end is None else end, extent[0]) for row, end in ends])
        for ends in ([(row, row.low) for row in drawn], [(row, row.high) for row in drawn])
    )
    half = _LINE_PX / 2 / _ROW_PX[size]
    x, y = comb_path(np.array(places, dtype=np.int64), low, high, -half, half, x0=extent[0])
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 0, "simplify": False}, fill="toself", fillcolor=look.soft_ink,
        hoverinfo="skip", name="ends",
    )  # fmt: skip


def _colour(kind: str, look: Theme) -> str:
    if kind == STRONG:
        return look.ink
    style = look.kinds.get(kind)
    return look.soft_ink if style is None else style.line


def _notes(rows: Sequence[IntervalRow], places: Sequence[int], look: Theme) -> go.Scatter:
    """What is said in rows without a dot, at the left end of the plot."""
    empty = [place for place, row in enumerate(rows) if place not in set(places) and row.note]
    return go.Scatter(
        x=[0.005] * len(empty),
        y=empty,
        xaxis="x2",
        text=[shown(rows[place].note, 80) for place in empty],
        mode="text",
        textposition="middle right",
        textfont={"size": 11, "color": look.faint_ink},
        hoverinfo="skip",
        name="notes",
    )


def _extent(
    rows: Sequence[IntervalRow], band: Band | None, log: bool, from_zero: bool
) -> tuple[float, float]:
    ends = [end for row in rows for end in (row.low, row.middle, row.high) if end is not None]
    ends += [band.low, band.high] if band is not None else []
    if log:
        ends = [end for end in ends if end > 0] or [1.0]
        return min(ends) / _ROOM_LOG, max(ends) * _ROOM_LOG
    if from_zero:
        ends.append(0.0)
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = _ROOM * ((high - low) or 1.0)
    return (low - room if low < 0 or not from_zero else 0.0), high + room


def _axis(extent: tuple[float, float], title: str, log: bool) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": title},
        "showline": True,
        "exponentformat": "none",
        "zeroline": extent[0] < 0,
    }
    if log:
        ends = [math.log10(end) for end in extent]
        return axis | {"type": "log", "range": ends, "dtick": "D2", "tickformat": ",~r"}
    return axis | {"range": list(extent), "tickformat": ",~r"}


def _rule(figure: go.Figure, y: float, look: Theme) -> None:
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        y0=y,
        y1=y,
        layer="below",
        line={"color": look.grid, "width": 1},
    )


def _shade(figure: go.Figure, band: Band, extent: tuple[float, float], log: bool, look: Theme) -> None:
    figure.add_shape(
        type="rect", yref="paper", x0=band.low, x1=band.high, y0=0, y1=1, layer="below",
        fillcolor=look.rule, opacity=0.7, line={"width": 0},
    )  # fmt: skip
    if band.line is not None:
        figure.add_shape(
            type="line", yref="paper", x0=band.line, x1=band.line, y0=0, y1=1,
            line={"color": look.ink, "width": 1.2},
        )  # fmt: skip
    at = band.low if band.line is None else band.line
    # A shape takes values of a log axis as they are, a note their logarithm.
    x, first, last = (math.log10(value) if log else value for value in (at, *extent))
    figure.add_annotation(
        x=x, y=1, yref="paper", yshift=10, text=shown(band.words, 80), showarrow=False,
        font={"size": 11, "color": look.soft_ink},
        xanchor="left" if x - first < (last - first) / 2 else "right",
    )  # fmt: skip
