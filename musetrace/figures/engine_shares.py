"""How much of the blocks' time each engine is at work, alone and beside others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.axes import NamedRows
from musetrace.figures.theme import KindStyle, Theme, template, theme
from musetrace.figures.wording import exact_ns, plus_minus

STATE_WORDS = {
    "loads": "loads",
    "compute": "compute",
    "communication": "communication",
    "loads_and_compute": "loads + compute",
    "loads_and_communication": "loads + communication",
    "compute_and_communication": "compute + communication",
    "all_three": "all three",
    "waiting_only": "waits only",
    "nothing": "nothing",
}
_KIND_OF_STATE = {"loads": "load", "compute": "compute", "communication": "send", "waiting_only": "wait"}

_BAR, _ALONE_BAR = 0.62, 0.26
_ROWS = NamedRows(row_px=24, top_px=8, bottom_px=44, right_px=118, characters=60)
_PERCENT = 100.0
_HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{customdata[2]}<extra></extra>"


def engine_shares_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.overlap``: a bar for each state, in its order.

    x is in percent of the blocks' time. The whole bar is the time in which at least these engines are at
    work, the dark line in it that in which no other is. A line at its end is what the clock leaves open.
    """
    look = theme(theme_name)
    rows = table.to_pylist()
    names = [STATE_WORDS.get(row["state"], row["state"]) for row in rows]
    figure = go.Figure([_bars(rows, look), _alone(rows, look), _numbers(rows, look)])
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        xaxis={
            "range": [0, _PERCENT],
            "title": {"text": "% of the blocks' time"},
            "showline": True,
            "fixedrange": True,
        },
        **_ROWS.layout(names),
    )
    return figure


def share_words(share: float | None, uncertainty: float | None) -> str:
    """``79.91 % ± 0.05``, with as many decimals as the uncertainty leaves; a dash where there is no share."""
    if share is None:
        return "\N{EN DASH}"
    sign = "\N{PLUS-MINUS SIGN}"
    if uncertainty is None:
        return f"{_PERCENT * share:.1f} % {sign} unknown"
    off = _PERCENT * uncertainty
    decimals = next((places for places, least in ((0, 9.5), (1, 0.095), (2, 0.0)) if off >= least), 2)
    # Rounded up: what is left open is never more than what is said.
    return f"{_PERCENT * share:.{decimals}f} % {sign} {_rounded_up(off, decimals):.{decimals}f}"


def _rounded_up(value: float, decimals: int) -> float:
    scale = 10.0**decimals
    return math.ceil(value * scale) / scale


def _style(state: str, look: Theme) -> KindStyle:
    kind = _KIND_OF_STATE.get(state)
    if kind is not None:
        return look.kinds[kind]
    if state == "nothing":
        return KindStyle(look.paper, look.faint_ink, look.ink, look.paper)
    return KindStyle(look.faint_ink, look.faint_ink, look.ink, look.faint_ink)


def _bars(rows: Sequence[Mapping[str, Any]], look: Theme) -> go.Bar:
    styles = [_style(row["state"], look) for row in rows]
    return go.Bar(
        x=[_PERCENT * (row["share"] or 0.0) for row in rows],
        y=list(range(len(rows))),
        width=_BAR,
        orientation="h",
        marker={
            "color": [style.fill for style in styles],
            "opacity": [0.55 if _is_several(row["state"]) else 1.0 for row in rows],
            "line": {"width": 1, "color": [style.line for style in styles]},
            "pattern": {
                "shape": [style.hatch for style in styles],
                "fgcolor": [style.line for style in styles],
                "size": 5,
                "solidity": 0.25,
            },
        },
        error_x={
            "array": [_PERCENT * (row["share_uncertainty"] or 0.0) for row in rows],
            "color": look.ink,
            "thickness": 1,
            "width": 3,
        },
        customdata=[_hover(row) for row in rows],
        hovertemplate=_HOVER,
        name="at work",
    )


def _is_several(state: str) -> bool:
    return "_and_" in state or state == "all_three"


def _hover(row: Mapping[str, Any]) -> list[str]:
    mean = f"{exact_ns(row['mean_ns'])} ns per block of a launch, {row['n']:,} of them"
    total = f"{exact_ns(row['total_ns'])} ns {plus_minus(row['total_uncertainty_ns'])} in all"
    alone = f"of them {exact_ns(row['only_ns'])} ns and no other"
    return [STATE_WORDS.get(row["state"], row["state"]), f"{total}<br>{alone}", mean]


def _alone(rows: Sequence[Mapping[str, Any]], look: Theme) -> go.Bar:
    """The part of each bar in which no other engine is at work, where that is not all of it."""
    some = [place for place, row in enumerate(rows) if row["only_ns"] < row["total_ns"]]
    return go.Bar(
        x=[_PERCENT * (rows[place]["only_share"] or 0.0) for place in some],
        y=some,
        width=_ALONE_BAR,
        orientation="h",
        marker={"color": look.ink, "opacity": 0.75},
        hoverinfo="skip",
        name="and no other",
    )


def _numbers(rows: Sequence[Mapping[str, Any]], look: Theme) -> go.Scatter:
    return go.Scatter(
        x=[_PERCENT] * len(rows),
        y=list(range(len(rows))),
        text=["\N{NO-BREAK SPACE}" + share_words(row["share"], row["share_uncertainty"]) for row in rows],
        mode="text",
        textposition="middle right",
        textfont={"color": look.soft_ink, "size": 12},
        hoverinfo="skip",
        cliponaxis=False,
        name="share",
    )
