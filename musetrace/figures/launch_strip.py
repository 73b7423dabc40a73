"""The launches of a step in order: a strip of cells by their time, and one by how idle their blocks are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.heat import heat_scale
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

_ROW_PX, _TOP_PX, _BOTTOM_PX, _LEFT_PX, _RIGHT_PX = 34, 8, 44, 76, 116
_LEAST_SPAN = 0.1  # of the largest value: a smaller spread is shown faint, as it is
_MOST_TICKS, _MOST_GAPS = 32, 160
_LABEL_CHARACTERS = 10
_TIME, _IDLE = 0, 1
_HOVER = (
    "<b>%{customdata[0]}</b><br>median %{customdata[1]}<br>p10 to p90 %{customdata[2]}<br>"
    "median idle share %{customdata[3]}<br>n %{customdata[4]}<extra></extra>"
)


def launch_strip_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.launch_strip``: a column per row, in order.

    The upper strip is the median length, the lower one the median idle share; each has a scale of its own,
    whose ends stand behind it.
    """
    look = theme(theme_name)
    rows = table.to_pylist()
    times = [row["launch_p50_ns"] / US for row in rows]
    shares = [row["idle_share_p50"] for row in rows]
    texts = [_texts(row) for row in rows]
    strips = [
        _strip(_TIME, times, texts, look, look.accent),
        _strip(_IDLE, shares, texts, look, look.poor),
    ]
    figure = go.Figure(strips)
    figure.update_layout(
        template=template(theme_name),
        uirevision="launches",
        height=2 * _ROW_PX + _TOP_PX + _BOTTOM_PX,
        margin={"l": _LEFT_PX, "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        xaxis={
            "range": [-0.5, max(len(rows), 1) - 0.5],
            "showgrid": False,
            **_ticks(rows),
        },
        yaxis={
            "range": [1.5, -0.5],
            "fixedrange": True,
            "tickvals": [_TIME, _IDLE],
            "ticktext": ["time", "idle"],
            "ticklabelstandoff": 8,
        },
    )
    for at, text in ((_TIME, _range_us(times)), (_IDLE, _range_share(shares))):
        figure.add_annotation(
            text=text,
            x=1,
            xref="paper",
            xanchor="left",
            xshift=8,
            y=at,
            showarrow=False,
            font={"size": 11, "color": look.soft_ink},
        )
    return figure


def _strip(
    at: int, values: Sequence[float | None], texts: Sequence[Sequence[str]], look: Theme, hue: str
) -> go.Heatmap:
    known = [value for value in values if value is not None]
    high = max(known, default=1.0) or 1.0
    gap = 1 if len(values) <= _MOST_GAPS else 0
    return go.Heatmap(
        x=list(range(len(values))),
        y=[at],
        z=np.array([[np.nan if value is None else value for value in values]]),
        zmin=min(min(known, default=0.0), (1 - _LEAST_SPAN) * high),
        zmax=high,
        colorscale=heat_scale(look, hue),
        showscale=False,
        xgap=gap,
        ygap=3,
        customdata=[list(texts)],
        hovertemplate=_HOVER,
        name="idle" if at == _IDLE else "time",
    )


def _ticks(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Layers by their number, what is none by its kind; of many every so many."""
    layered = len({row["layer"] for row in rows if row["layer"] >= 0}) > 1
    labels = [str(row["layer"]) if layered and row["layer"] >= 0 else str(row["kind"]) for row in rows]
    every = -(-len(labels) // _MOST_TICKS) if labels else 1
    at = [place for place in range(len(labels)) if place % every == 0]
    return {
        "tickvals": at,
        "ticktext": [shown(labels[place], _LABEL_CHARACTERS) for place in at],
        "tickangle": 0 if layered else None,
        "title": {"text": "layer" if layered else "launch"},
    }


def _texts(row: Mapping[str, Any]) -> list[str]:
    where = f"launch {row['launch']}" + (f", layer {row['layer']}" if row["layer"] >= 0 else "")
    low, middle, high = (exact_ns(row[f"launch_p{percent}_ns"]) for percent in (10, 50, 90))
    off = plus_minus(row["launch_uncertainty_ns"])
    return [
        f"{where}, {shown(row['kind'])}",
        f"{middle} ns {off}",
        f"{low} to {high} ns",
        _share(row["idle_share_p50"], row["idle_share_uncertainty"]),
        f"{row['n']:,}",
    ]


def _share(share: float | None, off: float | None) -> str:
    if share is None:
        return "\N{EN DASH}"
    sign = "\N{PLUS-MINUS SIGN}"
    return f"{100 * share:.1f} % {sign} {'unknown' if off is None else f'{100 * off:.1f} %'}"


def _range_us(values: Sequence[float]) -> str:
    if not values:
        return ""
    decimals = 1 if max(values) < 1_000 else 0  # noqa: PLR2004
    return f"{_range([f'{one:,.{decimals}f}' for one in (min(values), max(values))])} \N{MICRO SIGN}s"


def _range_share(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    return f"{_range([f'{one:.1f}' for one in (min(known), max(known))])} %" if known else "not known"


def _range(ends: Sequence[str]) -> str:
    return "\N{EN DASH}".join(dict.fromkeys(ends))
