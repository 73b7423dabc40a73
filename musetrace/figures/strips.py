"""Strips one below the other on one axis: steps of some height over it, a strip for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from musetrace.figures.axes import left_margin_px, time_axis
from musetrace.figures.interval_rows import Band
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import shown

_FEW, _ROW_PX, _THIN_ROW_PX = 6, 48, 24
_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 22, 44, 84
_FULL = 0.88  # of a row
_FEW_NUMBERS = 12
_HOVER = "%{customdata}<extra></extra>"


@dataclass(frozen=True)
class Strip:
    """A row: a step of ``heights[i]``, 0 to 1, from ``edges[i]`` to ``edges[i + 1]`` of the axis.

    ``hover`` has a text for each step, not yet escaped but for line ends; ``aside`` stands at the right.
    """

    label: str
    edges: Sequence[float]
    heights: Sequence[float]
    hover: Sequence[Sequence[str]]
    kind: str
    aside: str = ""


def strips_figure(
    strips: Sequence[Strip], title: str, theme_name: str, *, band: Band | None = None, is_time: bool = True
) -> go.Figure:
    """Draw strips top down; ``title`` is that of the x axis, which holds all edges and the band."""
    look = theme(theme_name)
    ends = [edge for strip in strips for edge in strip.edges] + ([band.low, band.high] if band else [])
    first, last = min(ends, default=0.0), max(ends, default=1.0)
    kinds = dict.fromkeys(strip.kind for strip in strips)
    figure = go.Figure(
        [*(_outlines(strips, kind, 2 * first - last - 1, look) for kind in kinds), _points(strips)]
    )
    for row, strip in enumerate(strips):
        figure.add_shape(
            type="line",
            xref="paper",
            x0=0,
            x1=1,
            y0=row + 1,
            y1=row + 1,
            line={"color": look.rule, "width": 1},
        )
        if strip.aside:
            figure.add_annotation(
                text=shown(strip.aside), xref="paper", x=1, xanchor="left", xshift=4, y=row + 0.75,
                showarrow=False, font={"size": 10, "color": look.faint_ink},
            )  # fmt: skip
    if band is not None:
        _shade(figure, band, look)
    row_px = _ROW_PX if len(strips) <= _FEW else _THIN_ROW_PX
    axis = time_axis((first, last), title)
    figure.update_layout(
        template=template(theme_name),
        height=row_px * max(len(strips), 1) + _TOP_PX + _BOTTOM_PX,
        margin={
            "l": left_margin_px([strip.label for strip in strips]),
            "r": _RIGHT_PX,
            "t": _TOP_PX,
            "b": _BOTTOM_PX,
        },
        hoverdistance=40,
        xaxis=axis if is_time else {**axis, **_number_ticks(first, last)},
        yaxis={
            "range": [max(len(strips), 1), 0],
            "fixedrange": True,
            "tickvals": [row + 0.6 for row in range(len(strips))],
            "ticktext": [shown(strip.label) for strip in strips],
            "ticklabelstandoff": 8,
        },
    )
    return figure


def _number_ticks(first: float, last: float) -> dict[str, Any]:
    """Whole numbers only, also where there are few."""
    every = {"tick0": 0, "dtick": 1} if last - first <= _FEW_NUMBERS else {}
    return {"tickformat": ",d", "range": [first, last], **every}


def _outlines(strips: Sequence[Strip], kind: str, beside: float, look: Theme) -> go.Scatter:
    """The steps of all strips of a kind as one closed path, along the ground of each row.

    A trace for each strip would cost a browser nine nodes. From row to row the path goes ``beside`` the axis,
    where it is not seen and, as it comes back along the ground, encloses nothing.
    """
    x: list[float] = []
    y: list[float] = []
    for row, strip in enumerate(strips):
        if strip.kind != kind or not strip.heights:
            continue
        over = [at for pair in zip(strip.edges, strip.edges[1:], strict=False) for at in pair]
        steps = [top for height in strip.heights for top in (row + 1 - _FULL * height,) * 2]
        x += [beside, over[0], *over, over[-1], beside]
        y += [row + 1.0, row + 1.0, *steps, row + 1.0, row + 1.0]
    if x:
        x, y = [*x, x[0]], [*y, y[0]]
    style = look.kinds.get(kind)
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 1, "color": look.faint_ink if style is None else style.line, "simplify": False},
        fill="toself",
        fillcolor=look.grid if style is None else style.fill,
        hoverinfo="skip",
        name=f"outlines {kind}",
    )


def _points(strips: Sequence[Strip]) -> go.Scatter:
    """Unseen points in the middles of all steps, for hover."""
    steps = [(row, strip, at) for row, strip in enumerate(strips) for at in range(len(strip.heights))]
    return go.Scatter(
        x=[(strip.edges[at] + strip.edges[at + 1]) / 2 for _, strip, at in steps],
        y=[row + 0.6 for row, _, _ in steps],
        mode="lines",
        line={"width": 0},
        customdata=["<br>".join(shown(line, 120) for line in strip.hover[at]) for _, strip, at in steps],
        hovertemplate=_HOVER,
        name="steps",
    )


def _shade(figure: go.Figure, band: Band, look: Theme) -> None:
    figure.add_shape(
        type="rect", yref="paper", x0=band.low, x1=band.high, y0=0, y1=1, layer="below",
        fillcolor=look.rule, opacity=0.7, line={"width": 0},
    )  # fmt: skip
    figure.add_annotation(
        x=band.low, y=1, yref="paper", yshift=10, text=shown(band.words, 80), showarrow=False,
        font={"size": 11, "color": look.soft_ink}, xanchor="left",
    )  # fmt: skip
