"""How long a launch is, and how long it would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from musetrace.figures.axes import time_axis
from musetrace.figures.theme import template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus

_ROW_PX, _BAR = 24, 0.6
_TOP_PX, _BOTTOM_PX, _LEFT_PX, _RIGHT_PX = 6, 44, 76, 24
_HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>"
_ROWS = ("recorded", "then")


def what_if_figure(row: Mapping[str, Any], theme_name: str) -> go.Figure:
    """Draw a row of ``musetrace.analysis.what_if``: the mean length of a launch as it was and as it would be.

    x is in us. The line at the end of the second is what the clock leaves open in the difference.
    """
    look = theme(theme_name)
    lengths = [row["length_mean_ns"], row["new_mean_ns"]]
    off = row["saved_mean_uncertainty_ns"]
    told = [f"{exact_ns(lengths[0])} ns", f"{exact_ns(lengths[1])} ns {plus_minus(off)}"]
    figure = go.Figure(
        go.Bar(
            x=[length / US for length in lengths],
            y=[0, 1],
            width=_BAR,
            orientation="h",
            marker={"color": [look.rule, look.accent]},
            error_x={"array": [0, (off or 0) / US], "color": look.ink, "thickness": 1, "width": 3},
            customdata=[list(pair) for pair in zip(_ROWS, told, strict=True)],
            hovertemplate=_HOVER,
            name="length",
        )
    )
    figure.update_layout(
        template=template(theme_name),
        height=2 * _ROW_PX + _TOP_PX + _BOTTOM_PX,
        margin={"l": _LEFT_PX, "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        xaxis=time_axis((0.0, max(*lengths, 1) / US), "\N{MICRO SIGN}s of a launch, mean"),
        yaxis={"range": [1.5, -0.5], "fixedrange": True, "tickvals": [0, 1], "ticktext": list(_ROWS)},
    )
    return figure
