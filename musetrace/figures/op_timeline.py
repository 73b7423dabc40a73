"""The op timeline: when each op of a layer loads, waits, computes and sends, over all chosen launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis.gaps.stops import stop_number
from musetrace.figures.axes import left_margin_px, time_axis
from musetrace.figures.comb import comb_path
from musetrace.figures.op_rows import BAR_PX, Bar, OpRow, arrange
from musetrace.figures.theme import KindStyle, Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 34, 44, 24
_HEAD_PX = 64  # between two timelines, for a title and the marks of stops
_TITLE_SHIFT_PX = 24
_LABEL_CHARACTERS = 24
_WHISKER_SHIFT_PX, _WHISKER_PX = 2.0, 1.2
_TIMES = tuple(f"{edge}_p{percent}_ns" for edge in ("begin", "end") for percent in (10, 50, 90))
# Stop marks closer than this share of the axis are set one above the other.
_MARK_SHARE = 0.025

_HOVER = (
    "<b>%{customdata[0]}</b> %{customdata[1]}<br>"
    "ns     %{customdata[2]}<br>"
    "begin  %{customdata[3]}<br>"
    "end    %{customdata[4]}<br>"
    "median duration %{customdata[5]}<br>"
    "mean duration %{customdata[6]}<br>"
    "n %{customdata[7]}, %{customdata[8]}<extra></extra>"
)


@dataclass(frozen=True)
class OpTimeline:
    """An answer of ``musetrace.analysis.op_timeline``, the ops that are stops, in order, and a title."""

    table: pa.Table
    stops: Sequence[str]
    title: str = ""


def op_timeline_figure(table: pa.Table, stops: Sequence[str], theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.op_timeline``.

    A bar runs from the median begin to the median end; whiskers show p10 to p90 of the begin (upper half of
    the bar) and of the end (lower half); the blocks that run it stand in brackets when not all do. ``stops``
    are the ops to be numbered, in order. x is in us from the launch's begin; hover gives the exact ns, and
    what the clock leaves open in them.
    """
    return op_timelines_figure([OpTimeline(table, stops)], theme_name)


def op_timelines_figure(timelines: Sequence[OpTimeline], theme_name: str) -> go.Figure:
    """Draw several, one above the other on one time axis, each under its title and with its own rows."""
    look = theme(theme_name)
    parts: list[list[OpRow]] = []
    top_px = 0.0
    for timeline in timelines:
        parts.append(arrange(timeline.table.to_pylist(), top_px))
        top_px = (parts[-1][-1].bottom_px if parts[-1] else top_px) + _HEAD_PX
    rows = [row for part in parts for row in part]
    bars = [bar for row in rows for bar in row.bars]
    span_us = _span_us(bars)
    figure = go.Figure(
        [
            *(trace for kind, style in look.kinds.items() for trace in _kind_traces(kind, style, bars)),
            _whiskers("begin", -_WHISKER_SHIFT_PX, bars, look),
            _whiskers("end", _WHISKER_SHIFT_PX, bars, look),
            _block_counts(bars, look),
        ]
    )
    for timeline, part in zip(timelines, parts, strict=True):
        _mark_stops(figure, part, timeline.stops, span_us, look)
        _mark_title(figure, part, timeline.title, look)
    is_stop = [row.op in of.stops for of, part in zip(timelines, parts, strict=True) for row in part]
    _lay_out(figure, rows, is_stop, bool(timelines[0].title), span_us, theme_name)
    return figure


def _span_us(bars: Sequence[Bar]) -> tuple[float, float]:
    first = min((bar.values["begin_p10_ns"] for bar in bars), default=0) / US
    last = max((bar.values["end_p90_ns"] for bar in bars), default=1) / US
    return min(first, 0.0), max(last, first + 0.001)


def _kind_traces(kind: str, style: KindStyle, bars: Sequence[Bar]) -> list[go.Bar | go.Scatter]:
    """The bars of a kind, and unseen points in their middles, so that the thinnest bar can be hovered."""
    mine = [bar for bar in bars if _drawn_as(bar.values["kind"]) == kind]
    if not mine:
        return []
    begin = [bar.values["begin_p50_ns"] / US for bar in mine]
    length = [(bar.values["end_p50_ns"] - bar.values["begin_p50_ns"]) / US for bar in mine]
    shared = {
        "y": [bar.y_px for bar in mine],
        "customdata": [_hover_texts(bar) for bar in mine],
        "hovertemplate": _HOVER,
        "name": kind,
    }
    middle = [first + half / 2 for first, half in zip(begin, length, strict=True)]
    return [
        go.Bar(base=begin, x=length, width=BAR_PX, orientation="h", marker=style.bar, **shared),
        go.Scatter(
            x=middle, mode="markers", marker={"size": BAR_PX, "opacity": 0, "color": style.line}, **shared
        ),
    ]


def _drawn_as(kind: str) -> str:
    return kind if kind in theme(None).kinds else "compute"


def _hover_texts(bar: Bar) -> list[str]:
    values = bar.values
    times = [exact_ns(values[name]) for name in _TIMES]
    width = max(map(len, times))
    off = [""] + [f"  {plus_minus(values[f'{edge}_uncertainty_ns'])}" for edge in ("begin", "end")]
    lines = [
        "  ".join(text.rjust(width) for text in texts) + behind
        for texts, behind in zip((("p10", "p50", "p90"), times[:3], times[3:]), off, strict=True)
    ]
    durations = [
        f"{exact_ns(values[f'dur_{name}_ns'])} {plus_minus(values[f'dur_{of}_ns'])}"
        for name, of in (("p50", "uncertainty"), ("mean", "mean_uncertainty"))
    ]
    blocks = f"{values['blocks']:,} of {values['blocks_total']:,} blocks"
    return [shown(values["op"]), shown(values["kind"]), *lines, *durations, f"{values['n']:,}", blocks]


def _whiskers(edge: str, shift_px: float, bars: Sequence[Bar], look: Theme) -> go.Scatter:
    """From p10 to p90, all of them one path: error bars would cost a browser four nodes each."""
    ordered = sorted(bars, key=lambda bar: bar.y_px)
    low, high = (
        np.array([bar.values[f"{edge}_p{percent}_ns"] for bar in ordered], dtype=np.float64) / US
        for percent in (10, 90)
    )
    y_px = np.array([bar.y_px + shift_px for bar in ordered], dtype=np.float64)
    half = _WHISKER_PX / 2
    x, y = comb_path(y_px, low, high, -half, half, x0=float(low.min(initial=0.0)))
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 0, "simplify": False}, fill="toself", fillcolor=look.soft_ink,
        opacity=0.75, hoverinfo="skip", name=f"{edge} p10 to p90",
    )  # fmt: skip


def _block_counts(bars: Sequence[Bar], look: Theme) -> go.Scatter:
    partial = [bar for bar in bars if bar.values["blocks"] < bar.values["blocks_total"]]
    return go.Scatter(
        x=[bar.values["end_p90_ns"] / US for bar in partial],
        y=[bar.y_px for bar in partial],
        text=[f"\N{NO-BREAK SPACE}({bar.values['blocks']:,})" for bar in partial],
        mode="text",
        textposition="middle right",
        textfont={"size": 10, "color": look.soft_ink},
        hoverinfo="skip",
        cliponaxis=False,
        name="blocks",
    )


def _mark_stops(
    figure: go.Figure, rows: Sequence[OpRow], stops: Sequence[str], span_us: tuple[float, float], look: Theme
) -> None:
    """A number above the rows and a line down to the stop's row, where its wait typically ends."""
    last_on_level = [span_us[0] - span_us[1]] * 2
    row_of = {row.op: row for row in rows}
    # One without a number in its name goes by its place among those that are shown.
    for place, op in enumerate([op for op in stops if op in row_of], start=1):
        row, number = row_of[op], stop_number(op) or place
        waits = [bar.values["end_p50_ns"] for bar in row.bars if bar.values["kind"] == "wait"]
        if not waits:
            continue
        x, top_px = min(waits) / US, rows[0].top_px
        level = int(x - last_on_level[0] < _MARK_SHARE * (span_us[1] - span_us[0]))
        last_on_level[level] = x
        figure.add_shape(
            type="line", x0=x, x1=x, y0=top_px, y1=row.top_px, layer="below",
            line={"color": look.faint_ink, "width": 1, "dash": "2px,3px"},
        )  # fmt: skip
        figure.add_annotation(
            x=x, y=top_px, yshift=9 + 15 * level, width=13, height=12, borderpad=1,
            text=str(number), font={"size": 10, "color": look.paper}, bgcolor=look.soft_ink, showarrow=False,
        )  # fmt: skip


def _mark_title(figure: go.Figure, rows: Sequence[OpRow], title: str, look: Theme) -> None:
    if title and rows:
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=rows[0].top_px, yanchor="bottom", yshift=_TITLE_SHIFT_PX,
            text=f"<b>{shown(title)}</b>", font={"size": 12, "color": look.ink}, showarrow=False,
        )  # fmt: skip


def _lay_out(
    figure: go.Figure,
    rows: Sequence[OpRow],
    is_stop: Sequence[bool],
    titled: bool,
    span_us: tuple[float, float],
    theme_name: str,
) -> None:
    look = theme(theme_name)
    for row in rows[1:]:
        figure.add_shape(
            type="line", xref="paper", x0=0, x1=1, y0=row.top_px, y1=row.top_px, layer="below",
            line={"color": look.grid, "width": 1},
        )  # fmt: skip
    labels = [shown(row.op, _LABEL_CHARACTERS) for row in rows]
    marked = [f"<b>{label}</b>" if stop else label for label, stop in zip(labels, is_stop, strict=True)]
    height_px = rows[-1].bottom_px if rows else 0
    top_px = _TOP_PX + (_TITLE_SHIFT_PX if titled else 0)
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        height=height_px + top_px + _BOTTOM_PX,
        margin={"l": left_margin_px([row.op[:_LABEL_CHARACTERS] for row in rows]), "r": _RIGHT_PX,
                "t": top_px, "b": _BOTTOM_PX},
        hoverdistance=12,
        xaxis=time_axis(span_us, "\N{MICRO SIGN}s from the launch's begin"),
        yaxis={
            "range": [height_px, 0],
            "fixedrange": True,
            "tickvals": [row.middle_px for row in rows],
            "ticktext": marked,
            "ticklabelstandoff": 8,
        },
    )  # fmt: skip
