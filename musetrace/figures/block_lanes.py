"""The lanes of one launch: every span of every block, or of every warp of one block, where it really was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from musetrace.figures.axes import left_margin_px, time_axis
from musetrace.figures.comb import comb_path
from musetrace.figures.lane_labels import MOST_LABELS, label_positions
from musetrace.figures.lane_spans import Lane, LaneSpans
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, lane_uncertainty, shown

MOST_BARS = 300

Ints = npt.NDArray[np.int64]
Extent = tuple[float, float]

_WARP_ROW: Extent = (0.14, 0.86)
# In a block's row, top down: what is asked for, what is done, what goes out and comes in, what is waited for.
# Where only loads and waits are drawn, no warp of the block works.
_STRIPS: dict[str, Extent] = {
    "prefetch": (0.04, 0.11),
    "load": (0.13, 0.37),
    "send": (0.70, 0.80),
    "recv": (0.70, 0.80),
    "wait": (0.85, 0.94),
}
_WORK: Extent = (0.40, 0.68)
# With more rows strips would be thinner than pixels: then work covers loads, and loads cover waits.
MOST_STRIP_ROWS = 48
_WHOLE_ROW: Extent = (0.0, 1.0)
_DRAW_ORDER = ("wait", "prefetch", "load", "send", "recv", "sync", "compute")

_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 12, 44, 24
_ROW_PX, _LEAST_PX, _MOST_PX = 42, 120, 840
_MOST_TICKS = 40
# Labels need this much height of the spans that they stand on.
_LABEL_PX = 10

_HOVER = (
    "<b>%{customdata[0]}</b> %{customdata[1]}<br>%{customdata[2]}<br>"
    "begin %{customdata[3]} ns<br>end   %{customdata[4]} ns<br>%{customdata[5]} ns long<br>"
    "each %{customdata[6]}<extra></extra>"
)


def extent_of(kind: str, spans: LaneSpans) -> Extent:
    """Top and bottom of a kind's spans within a row of height 1."""
    if spans.per_warp:
        return _WARP_ROW
    return _STRIPS.get(kind, _WORK) if len(spans.lanes) <= MOST_STRIP_ROWS else _WHOLE_ROW


def block_lanes_figure(spans: LaneSpans, theme_name: str) -> go.Figure:
    """Draw the lanes: one bar a span up to :data:`MOST_BARS` spans, one comb a kind above. x is in us."""
    look = theme(theme_name)
    draw: Callable[[LaneSpans, Ints, str, Theme], go.Bar | go.Scatter]
    draw = bar_trace if len(spans.job) <= MOST_BARS else comb_trace
    kinds = _kinds(spans)
    figure = go.Figure()
    for kind in _DRAW_ORDER:
        chosen = np.flatnonzero(kinds == kind)
        if len(chosen):
            figure.add_trace(draw(spans, chosen, kind, look))
    row_px = _row_px(len(spans.lanes))
    if len(spans.lanes) <= MOST_STRIP_ROWS:
        figure.add_trace(_load_begins(spans, kinds, row_px, look))
    figure.add_trace(_labels(spans, kinds, row_px, look))
    _lay_out(figure, spans, row_px, theme_name)
    return figure


def _kinds(spans: LaneSpans) -> npt.NDArray[Any]:
    """The kind that each span is drawn as, str[n]."""
    known = {job: name.kind if name.kind in _DRAW_ORDER else "compute" for job, name in spans.names.items()}
    return np.array([known[job] for job in spans.job.tolist()], dtype=object)


def bar_trace(spans: LaneSpans, chosen: Ints, kind: str, look: Theme) -> go.Bar:
    """Spans as bars with texts for hover; ``chosen`` are their indices."""
    style = look.kinds[kind]
    # Neighbours of one colour are kept apart by the ground.
    outline = style.line if style.line != style.fill else look.paper
    top, bottom = extent_of(kind, spans)
    return go.Bar(
        base=spans.begin_ns[chosen] / US,
        x=(spans.end_ns[chosen] - spans.begin_ns[chosen]) / US,
        y=spans.row[chosen] + (top + bottom) / 2,
        width=bottom - top,
        orientation="h",
        marker={"color": style.fill, "line": {"width": 1, "color": outline}},
        customdata=[_hover_texts(spans, index) for index in chosen.tolist()],
        hovertemplate=_HOVER,
        name=kind,
    )


def comb_trace(spans: LaneSpans, chosen: Ints, kind: str, look: Theme) -> go.Scatter:
    """Spans as one closed path; ``chosen`` are their indices, sorted by row."""
    begin, end = spans.begin_ns[chosen] / US, spans.end_ns[chosen] / US
    x, y = comb_path(spans.row[chosen], begin, end, *extent_of(kind, spans), x0=0.0)
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0, "simplify": False},
        fill="toself",
        fillcolor=look.kinds[kind].flat,
        hoverinfo="skip",
        name=kind,
    )


def _hover_texts(spans: LaneSpans, index: int) -> list[str]:
    name = spans.names[int(spans.job[index])]
    lane = spans.lanes[int(spans.row[index])]
    begin_ns, end_ns = int(spans.begin_ns[index]), int(spans.end_ns[index])
    place = f"rank {lane.rank}, block {lane.block}, warp {int(spans.warp[index])}"
    return [
        shown(name.job),
        shown(name.kind),
        place,
        exact_ns(begin_ns),
        exact_ns(end_ns),
        exact_ns(end_ns - begin_ns),
        lane_uncertainty(spans.uncertainty_ns, spans.apart_ns),
    ]


def _load_begins(spans: LaneSpans, kinds: npt.NDArray[Any], row_px: float, look: Theme) -> go.Scatter:
    """Cuts where loads begin: one load follows the other without a gap, and the next may be of another op."""
    chosen = np.flatnonzero(kinds == "load")[:MOST_LABELS]
    extent = extent_of("load", spans)
    return go.Scatter(
        x=spans.begin_ns[chosen] / US,
        y=spans.row[chosen] + sum(extent) / 2,
        mode="markers",
        marker={
            "symbol": "line-ns",
            "size": _height(extent) * row_px,
            "line": {"width": 1, "color": look.paper},
        },
        hoverinfo="skip",
        name="load begins",
    )


def _labels(spans: LaneSpans, kinds: npt.NDArray[Any], row_px: float, look: Theme) -> go.Scatter:
    heights = {kind: _height(extent_of(kind, spans)) * row_px for kind in _DRAW_ORDER}
    labelled = {kind for kind, px in heights.items() if px >= _LABEL_PX}
    if extent_of("load", spans) == _WHOLE_ROW:  # what work covers has no label
        labelled &= {"compute", "sync"}
    chosen = label_positions(spans, kinds, labelled)
    middles = [sum(extent_of(kinds[index], spans)) / 2 for index in chosen]
    return go.Scatter(
        x=(spans.begin_ns[chosen] + spans.end_ns[chosen]) / 2 / US,
        y=spans.row[chosen] + np.array(middles),
        text=[shown(spans.names[int(spans.job[index])].op) for index in chosen],
        mode="text",
        textfont={
            "size": [11 if heights[kinds[index]] > 14 else 9 for index in chosen],
            "color": [look.kinds[kinds[index]].text for index in chosen],
        },
        hoverinfo="skip",
        name="ops",
    )


def _height(extent: Extent) -> float:
    return extent[1] - extent[0]


def _row_px(rows: int) -> float:
    return min(float(_ROW_PX), _MOST_PX / max(rows, 1))


def _lay_out(figure: go.Figure, spans: LaneSpans, row_px: float, theme_name: str) -> None:
    lanes = spans.lanes
    look = theme(theme_name)
    ticks = _ticks(lanes)
    texts = [_lane_text(lanes, row) for row in ticks]
    for row in range(1, len(lanes)):
        if _opens_rank(lanes, row):
            figure.add_shape(
                type="line",
                xref="paper",
                x0=0,
                x1=1,
                y0=row,
                y1=row,
                line={"color": look.faint_ink, "width": 1},
            )
    last_us = float(spans.end_ns.max(initial=1)) / US
    first_us = min(0.0, float(spans.begin_ns.min(initial=0)) / US)
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        height=max(_LEAST_PX, row_px * len(lanes)) + _TOP_PX + _BOTTOM_PX,
        margin={"l": left_margin_px(texts), "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        hoveranywhere=True,
        xaxis=time_axis((first_us, last_us), "\N{MICRO SIGN}s from the launch's begin"),
        yaxis={
            "range": [len(lanes), 0],
            "minallowed": 0,
            "maxallowed": len(lanes),
            "tickvals": [row + 0.5 for row in ticks],
            "ticktext": texts,
            "ticklabelstandoff": 8,
        },
    )


def _ticks(lanes: tuple[Lane, ...]) -> list[int]:
    """The rows with a label: the first of each rank, and every k-th from there, not too close to the next."""
    every = max(1, -(-len(lanes) // _MOST_TICKS))
    openers = [row for row in range(len(lanes)) if _opens_rank(lanes, row)]
    ticks: list[int] = []
    for first, end in zip(openers, [*openers[1:], len(lanes)], strict=True):
        ticks += [row for row in range(first, end, every) if row == first or end - row >= every]
    return ticks


def _opens_rank(lanes: tuple[Lane, ...], row: int) -> bool:
    return row == 0 or lanes[row].rank != lanes[row - 1].rank


def _lane_text(lanes: tuple[Lane, ...], row: int) -> str:
    lane = lanes[row]
    number = f"block {lane.block}" if lane.warp is None else f"warp {lane.warp}"
    return f"rank {lane.rank}  {number}" if _opens_rank(lanes, row) else number
