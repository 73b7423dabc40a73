"""How long each step takes, by the device's clock and by the host's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus

_HEIGHT_PX = 230
_MARGIN_PX = {"l": 84, "r": 24, "t": 10, "b": 40}
_MOST_POINTS = 400  # more are a line
_LEAST_SPAN = 0.1  # of the longest step, so that what hardly differs looks so
_MOST_NUMBERED = 12
_PANELS = {"device": (0.5, 1.0), "host": (0.0, 0.4)}
_HOVER = "step %{customdata[0]}, %{customdata[1]}<br>%{customdata[2]} ns %{customdata[3]}<extra></extra>"


def step_times_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.step_lengths``: x is the step, y its length in us.

    Each clock has a panel and an axis of its own, since the host's steps may be many times longer; an axis
    spans a tenth of its longest step at least. Outliers have a ring and their number.
    """
    look = theme(theme_name)
    rows = table.to_pylist()
    of = {clock: [row for row in rows if row["clock"] == clock] for clock in _PANELS}
    of = {clock: mine for clock, mine in of.items() if mine}
    outliers = [row for row in rows if row["is_outlier"]]
    axes = dict(zip(of, ("y", "y2"), strict=False))
    traces = [_series(clock, mine, axes[clock], look) for clock, mine in of.items()]
    figure = go.Figure([*traces, *([_rings(outliers, axes["device"], look)] if outliers else [])])
    panels = _PANELS if len(of) > 1 else dict.fromkeys(of, (0.0, 1.0))
    layout = {
        axes[clock].replace("y", "yaxis"): _axis(clock, mine, panels[clock]) for clock, mine in of.items()
    }
    steps = sorted({row["step"] for row in rows})
    figure.update_layout(
        template=template(theme_name),
        uirevision="steps",
        height=_HEIGHT_PX,
        margin=_MARGIN_PX,
        xaxis={
            "title": {"text": "step"},
            "tickformat": ",d",
            "showgrid": False,
            "showline": True,
            "anchor": axes.get("host", "y"),
            **({"tickvals": steps} if len(steps) <= _MOST_NUMBERED else {}),
        },
        **layout,
    )
    return figure


def _axis(clock: str, rows: Sequence[Mapping[str, Any]], domain: tuple[float, float]) -> dict[str, Any]:
    lengths = [row["step_ns"] / US for row in rows]
    low, high = min(lengths), max(lengths)
    room = max(high - low, _LEAST_SPAN * high) / 2
    middle = (low + high) / 2
    return {
        "title": {"text": f"{clock}, \N{MICRO SIGN}s"},
        "domain": domain,
        "range": [middle - 1.2 * room, middle + 1.3 * room],
        "tickformat": ",~r",
        "exponentformat": "none",
        "nticks": 4,
        "showgrid": True,
        "fixedrange": True,
    }


def _series(clock: str, rows: Sequence[Mapping[str, Any]], axis: str, look: Theme) -> go.Scatter:
    is_device = clock == "device"
    colour = look.accent if is_device else look.faint_ink
    return go.Scatter(
        x=[row["step"] for row in rows],
        y=[row["step_ns"] / US for row in rows],
        yaxis=axis,
        mode="lines+markers" if len(rows) <= _MOST_POINTS else "lines",
        line={"color": colour, "width": 1},
        marker={
            "size": 5,
            "color": colour if is_device else look.paper,
            "line": {"color": colour, "width": 1.2},
        },
        customdata=[_texts(row) for row in rows],
        hovertemplate=_HOVER,
        name=clock,
    )


def _rings(rows: Sequence[Mapping[str, Any]], axis: str, look: Theme) -> go.Scatter:
    return go.Scatter(
        x=[row["step"] for row in rows],
        y=[row["step_ns"] / US for row in rows],
        yaxis=axis,
        mode="markers+text",
        marker={"size": 12, "color": "rgba(0,0,0,0)", "line": {"color": look.bad, "width": 1.6}},
        text=[f"{row['step']:,}" for row in rows],
        textposition="middle right",
        textfont={"color": look.bad, "size": 11},
        hoverinfo="skip",
        cliponaxis=False,
        name="outliers",
    )


def _texts(row: Mapping[str, Any]) -> list[str]:
    off = row["step_uncertainty_ns"]
    return [f"{row['step']:,}", row["clock"], exact_ns(row["step_ns"]), plus_minus(off)]
