"""The causes of idle time over a step, largest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis.priorities.findings import IDLE_CAUSE
from musetrace.figures.axes import NamedRows, time_axis
from musetrace.figures.theme import KindStyle, Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

MOST_CAUSES = 12

_BAR = 0.62
_ROWS = NamedRows(row_px=22, top_px=8, bottom_px=44, right_px=72, characters=32)
_DECIMAL_BELOW_NS = (1_000_000, 100_000)  # a decimal of a us more below each
_HOVER = "<b>%{customdata[0]}</b> %{customdata[1]}<br>%{customdata[2]}<extra></extra>"


def idle_causes_figure(
    table: pa.Table, name_of: Callable[[Mapping[str, Any]], str], theme_name: str
) -> go.Figure:
    """Draw the causes of an answer of ``musetrace.analysis.findings``: a bar each, at most MOST_CAUSES.

    ``name_of`` gives the name of a row's cause. x is in us of a step of an average block; a line at the
    end of a bar is what the clock leaves open. Waits are hatched as everywhere, loads have their colour;
    what is neither is plain.
    """
    look = theme(theme_name)
    rows = [row for row in table.to_pylist() if row["finding"] == IDLE_CAUSE][:MOST_CAUSES]
    called = [name_of(row) for row in rows]
    bars = [_bar(row, name, place, look) for place, (row, name) in enumerate(zip(rows, called, strict=True))]
    figure = go.Figure([*bars, _amounts(rows, look)])
    longest = max((row["per_step_ns"] for row in rows), default=1) / US
    figure.update_layout(
        template=template(theme_name),
        xaxis=time_axis((0.0, longest), "\N{MICRO SIGN}s of a step that an average block is idle"),
        **_ROWS.layout(called),
    )
    return figure


def _style(row: Mapping[str, Any], look: Theme) -> KindStyle:
    if row["cause"] == "load_only":
        return look.kinds["load"]
    if row["wait"] is None:
        return KindStyle(look.rule, look.faint_ink, look.ink, look.rule)
    return look.kinds["wait"]


def _bar(row: Mapping[str, Any], name: str, place: int, look: Theme) -> go.Bar:
    style, off = _style(row, look), row["per_step_uncertainty_ns"]
    amount = f"{exact_ns(row['per_step_ns'])} ns {plus_minus(off)}"
    awaited = "" if row["awaits"] is None else f"for {shown(row['awaits'])}"
    return go.Bar(
        x=[row["per_step_ns"] / US],
        y=[place],
        width=_BAR,
        orientation="h",
        marker=style.bar,
        error_x={
            "array": [(off or 0) / US],
            "color": look.soft_ink,
            "thickness": 1,
            "width": 2,
        },
        customdata=[[shown(name), awaited, amount]],
        hovertemplate=_HOVER,
        name=row["cause"],
    )


def _amounts(rows: Sequence[Mapping[str, Any]], look: Theme) -> go.Scatter:
    """The times in us, behind what the clock leaves open in them."""
    longest_ns = max((row["per_step_ns"] for row in rows), default=0)
    decimals = sum(longest_ns < limit for limit in _DECIMAL_BELOW_NS)
    return go.Scatter(
        x=[(row["per_step_ns"] + (row["per_step_uncertainty_ns"] or 0)) / US for row in rows],
        y=list(range(len(rows))),
        text=[f"\N{NO-BREAK SPACE}{row['per_step_ns'] / US:,.{decimals}f}" for row in rows],
        mode="text",
        textposition="middle right",
        textfont={"color": look.soft_ink, "size": 11},
        hoverinfo="skip",
        cliponaxis=False,
        name="us",
    )
