"""In how many of the blocks each engine is at work, over the time of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.axes import left_margin_px, time_axis
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns

STRIPS = {
    "loads": ("loads", "load"),
    "compute": ("compute", "compute"),
    "communication": ("communication", "send"),
    "waiting_only": ("waits only", "wait"),
    "nothing": ("nothing", ""),
}

_STRIP_PX, _GAP = 46, 0.16
_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 10, 44, 46
_PERCENT = 100.0
_HOVER = "%{customdata[0]}<br>%{customdata[1]}<extra></extra>"


def engine_use_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.utilisation``: a strip for each engine, 0 to 100 % of blocks.

    x is in us from the launch's begin. A bin is as high as its share; where no launch has time any more,
    there is nothing.
    """
    look = theme(theme_name)
    rows = [row for row in table.to_pylist() if row["block_ns"]]
    height = len(STRIPS)
    figure = go.Figure([_strip(rows, name, place, look) for place, name in enumerate(STRIPS)])
    axes = {}
    for place, (words, _) in enumerate(STRIPS.values()):
        low = 1 - (place + 1) / height
        high = low + (1 - _GAP) / height
        axes[f"yaxis{place + 1 if place else ''}"] = _share_axis(low, high, look)
        figure.add_annotation(
            text=words, showarrow=False, font={"color": look.soft_ink, "size": 12},
            xref="paper", x=0, xshift=-10, xanchor="right",
            yref="paper", y=(low + high) / 2, yanchor="middle",
        )  # fmt: skip
        figure.add_shape(
            type="line", xref="paper", yref="paper", x0=0, x1=1, y0=low, y1=low,
            line={"color": look.rule, "width": 1},
        )  # fmt: skip
    last_us = max((row["end_ns"] for row in rows), default=1_000) / US
    figure.update_layout(
        template=template(theme_name),
        height=_STRIP_PX * height + _TOP_PX + _BOTTOM_PX,
        margin={
            "l": left_margin_px([words for words, _ in STRIPS.values()]),
            "r": _RIGHT_PX,
            "t": _TOP_PX,
            "b": _BOTTOM_PX,
        },
        hovermode="closest",
        hoverdistance=40,
        xaxis={**time_axis((0.0, last_us), "\N{MICRO SIGN}s from the launch's begin"),
               "anchor": f"y{height}", "range": [0.0, last_us]},
        **axes,
    )  # fmt: skip
    return figure


def _share_axis(low: float, high: float, look: Theme) -> dict[str, Any]:
    return {
        "domain": [low, high],
        "range": [0, _PERCENT],
        "fixedrange": True,
        "tickvals": [_PERCENT],
        "ticktext": ["100\N{NO-BREAK SPACE}%"],
        "tickfont": {"size": 10, "color": look.faint_ink},
        "side": "right",
    }


def _strip(rows: Sequence[Mapping[str, Any]], name: str, place: int, look: Theme) -> go.Scatter:
    """A step line, closed to the ground, with a point in the middle of each bin."""
    words, kind = STRIPS[name]
    style = look.kinds.get(kind)
    shares = [_PERCENT * row[f"{name}_share"] for row in rows]
    return go.Scatter(
        x=[(row["begin_ns"] + row["end_ns"]) / 2 / US for row in rows],
        y=shares,
        yaxis=f"y{place + 1}" if place else "y",
        mode="lines",
        line={"shape": "hvh", "width": 1, "color": look.faint_ink if style is None else style.line},
        fill="tozeroy",
        fillcolor=look.grid if style is None else style.fill,
        customdata=[_hover(row, name, words) for row in rows],
        hovertemplate=_HOVER,
        name=words,
    )


def _hover(row: Mapping[str, Any], name: str, words: str) -> list[str]:
    when = f"{exact_ns(row['begin_ns'])} to {exact_ns(row['end_ns'])} ns"
    share = f"{words}: {_PERCENT * row[f'{name}_share']:.2f} % of the blocks' time"
    return [when, f"{share}<br>{exact_ns(row[f'{name}_ns'])} of {exact_ns(row['block_ns'])} ns"]
