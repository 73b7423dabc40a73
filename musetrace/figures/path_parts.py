"""What the critical path of launches or steps is made of: a bar per op, largest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import combined_ns, largest_first
from musetrace.figures.axes import NamedRows, time_axis
from musetrace.figures.theme import KindStyle, Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

MOST_BARS = 24

_BAR = 0.62
_ROWS = NamedRows(row_px=22, top_px=8, bottom_px=44, right_px=110, characters=24)
_HOVER = (
    "<b>%{customdata[0]}</b> %{customdata[1]}<br>%{customdata[2]}<br>%{customdata[3]}<br>"
    "on the path of %{customdata[4]}<extra></extra>"
)

Rows = list[Mapping[str, Any]]
NameOf = Callable[[Mapping[str, Any]], str]


def path_parts_figure(parts: pa.Table, name_of: NameOf, theme_name: str, each: str = "launch") -> go.Figure:
    """Draw the ``parts`` of an answer of ``musetrace.analysis.critical_path``: what each op has of the path.

    ``name_of`` gives the name of a row. x is in us of a launch (of ``each``, a step), a segment for each kind
    of job; a line at the end of a bar is what the clock leaves open in it. Largest first, and those that
    cannot be told apart in job-table order; at most MOST_BARS bars.
    """
    look = theme(theme_name)
    bars = _bars(parts, name_of)[:MOST_BARS]
    segments = [segment for bar in bars for segment in bar["segments"]]
    kinds = dict.fromkeys(segment["drawn_as"] for segment in segments)
    places = {bar["name"]: place for place, bar in enumerate(bars)}
    traces = [_kind_trace(kind, segments, places, look, each) for kind in kinds]
    figure = go.Figure([*traces, _amounts(bars, look)])
    longest = max((bar["mean_ns"] + (bar["uncertainty_ns"] or 0) for bar in bars), default=1) / US
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        xaxis=time_axis((0.0, longest), f"\N{MICRO SIGN}s of a {each} on its critical path"),
        **_ROWS.layout([bar["name"] for bar in bars]),
    )
    return figure


def _bars(parts: pa.Table, name_of: NameOf) -> list[dict[str, Any]]:
    """The rows by name, largest first; a row's ``from_ns`` is where its segment begins."""
    by_name: dict[str, Rows] = {}
    for row in parts.to_pylist():
        by_name.setdefault(name_of(row), []).append(row)
    bars = [_bar(name, rows) for name, rows in by_name.items()]
    return largest_first(bars, "mean_ns", "uncertainty_ns")


def _bar(name: str, rows: Rows) -> dict[str, Any]:
    segments, at = [], 0
    for row in rows:
        kind = row["kind"] if row["op"] else ""
        segments.append({**row, "name": name, "from_ns": at, "drawn_as": "" if kind == "gap" else kind})
        at += row["mean_ns"]
    return {
        "name": name,
        "mean_ns": at,
        "share": sum(row["share"] or 0 for row in rows),
        "uncertainty_ns": combined_ns(*(row["mean_uncertainty_ns"] for row in rows)),
        "segments": segments,
    }


def _kind_trace(kind: str, segments: Rows, places: Mapping[str, int], look: Theme, each: str) -> go.Bar:
    mine = [segment for segment in segments if segment["drawn_as"] == kind]
    plain = KindStyle(look.rule, look.faint_ink, look.ink, look.rule)
    style = look.kinds.get(kind, look.kinds["compute"]) if kind else plain
    return go.Bar(
        base=[segment["from_ns"] / US for segment in mine],
        x=[segment["mean_ns"] / US for segment in mine],
        y=[places[segment["name"]] for segment in mine],
        width=_BAR,
        orientation="h",
        marker=style.bar,
        customdata=[_hover_texts(segment, each) for segment in mine],
        hovertemplate=_HOVER,
        name=kind or "between",
    )


def _hover_texts(row: Mapping[str, Any], each: str) -> list[str]:
    off = row["share_uncertainty"]
    share = "" if row["share"] is None else f"{100 * row['share']:.2f} %"
    open_share = "" if off is None else f" \N{PLUS-MINUS SIGN} {100 * off:.2f}"
    time = f"{exact_ns(row['mean_ns'])} ns a {each} {plus_minus(row['mean_uncertainty_ns'])}"
    kind = "before its jobs" if row["kind"] == "gap" else row["kind"] if row["op"] else ""
    with_n = f"{row['with_n']:,} of {row['n']:,} {each}{'es' if each == 'launch' else 's'}"
    return [shown(row["name"]), shown(kind), time, share + open_share, with_n]


def _amounts(bars: Sequence[Mapping[str, Any]], look: Theme) -> go.Scatter:
    """Times in us and shares, behind what the clock leaves open."""
    off = [(bar["uncertainty_ns"] or 0) / US for bar in bars]
    return go.Scatter(
        x=[bar["mean_ns"] / US + open_us for bar, open_us in zip(bars, off, strict=True)],
        y=list(range(len(bars))),
        error_x={"symmetric": False, "array": [0] * len(bars), "arrayminus": [2 * one for one in off],
                 "color": look.soft_ink, "thickness": 1, "width": 2},
        text=[f"\N{NO-BREAK SPACE}{bar['mean_ns'] / US:,.2f}\N{EN SPACE}{100 * bar['share']:.1f} %"
              for bar in bars],
        mode="text",
        textposition="middle right",
        textfont={"color": look.soft_ink, "size": 11},
        hoverinfo="skip",
        cliponaxis=False,
        name="us",
    )  # fmt: skip
