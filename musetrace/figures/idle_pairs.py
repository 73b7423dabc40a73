"""Idle time by cause of two runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from musetrace.figures.axes import NamedRows, time_axis
from musetrace.figures.difference_forest import verdict_colour
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

MOST_CAUSES = 16

_BAR, _SHIFT = 0.34, 0.19
_ROWS = NamedRows(row_px=30, top_px=8, bottom_px=44, right_px=116, characters=44)
_HOVER = (
    "<b>%{customdata[0]}</b> in %{customdata[1]}<br>%{customdata[2]} ns<br>%{customdata[3]}<extra></extra>"
)


def idle_pairs_figure(rows: Sequence[Mapping[str, Any]], names: Sequence[str], theme_name: str) -> go.Figure:
    """Draw rows of idle time of ``musetrace.analysis.compare``, each under its name: run A above run B.

    x is in us of a launch that an average block is idle; the difference and its verdict stand behind.
    At most MOST_CAUSES rows.
    """
    look = theme(theme_name)
    rows, names = rows[:MOST_CAUSES], names[:MOST_CAUSES]
    figure = go.Figure(
        [
            _bars(
                "A", rows, names, -_SHIFT, {"color": look.paper, "line": {"color": look.soft_ink, "width": 1}}
            ),
            _bars("B", rows, names, _SHIFT, {"color": look.soft_ink}),
            _verdicts(rows, look),
        ]
    )
    longest = max((max(row["a_ns"], row["b_ns"]) for row in rows), default=1) / US
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        xaxis=time_axis((0.0, longest), "\N{MICRO SIGN}s of a launch that an average block is idle"),
        **_ROWS.layout(names),
    )
    return figure


def _bars(
    run: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], shift: float, marker: dict[str, Any]
) -> go.Bar:
    times = [row[f"{run.lower()}_ns"] for row in rows]
    return go.Bar(
        x=[time_ns / US for time_ns in times],
        y=[place + shift for place in range(len(rows))],
        width=_BAR,
        orientation="h",
        marker=marker,
        customdata=[
            [shown(name), run, exact_ns(time_ns), _difference(row)]
            for name, time_ns, row in zip(names, times, rows, strict=True)
        ],
        hovertemplate=_HOVER,
        name=run,
    )


def _difference(row: Mapping[str, Any]) -> str:
    return f"B - A {exact_ns(row['difference_ns'])} ns {plus_minus(row['uncertainty_ns'])}: {row['verdict']}"


def _verdicts(rows: Sequence[Mapping[str, Any]], look: Theme) -> go.Scatter:
    return go.Scatter(
        x=[max(row["a_ns"], row["b_ns"]) / US for row in rows],
        y=list(range(len(rows))),
        text=[f"\N{NO-BREAK SPACE}{row['difference_ns'] / US:+,.2f} {row['verdict']}" for row in rows],
        mode="text",
        textposition="middle right",
        textfont={"size": 11, "color": [verdict_colour(row["verdict"], look) for row in rows]},
        hoverinfo="skip",
        cliponaxis=False,
        name="verdict",
    )
