"""The critical path of one launch as a bar: what its end waited for, from its begin on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.axes import time_axis
from musetrace.figures.theme import KindStyle, Theme, template, theme
from musetrace.figures.wording import US, exact_ns, shown

_HEIGHT_PX, _TOP_PX, _BOTTOM_PX, _SIDE_PX = 92, 8, 44, 24
_LABEL_SHARE = 0.012  # of the axis, for each character of a label
_WORDS = {
    "own": "in the span",
    "gap": "before the span",
    "way": "behind what it waited for",
    "piece": "for a piece of what is under way",
    "last_piece": "behind the end of what it takes pieces of",
    "hand_off": "from another warp",
}
_HOVER = (
    "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>begin %{customdata[2]} ns, %{customdata[3]} ns long<br>"
    "%{customdata[4]}<extra></extra>"
)


def critical_bar_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.critical_spans``: its stretches end to end, x in us.

    A stretch has the colour of its job's kind; what is of no job, or lies between two, is plain. The last of
    a bar's ``customdata`` is its row's place in the table.
    """
    look = theme(theme_name)
    rows = [{**row, "place": at} for at, row in enumerate(table.to_pylist()) if row["dur_ns"] > 0]
    styles = {name: _style(name, look) for name in dict.fromkeys(map(_drawn_as, rows))}
    traces = [_bars([row for row in rows if _drawn_as(row) == name], name, of) for name, of in styles.items()]
    last_us = max((row["begin_ns"] + row["dur_ns"] for row in rows), default=1) / US
    figure = go.Figure([*traces, _labels(rows, styles, last_us)])
    figure.update_layout(
        template=template(theme_name),
        barmode="overlay",
        height=_HEIGHT_PX,
        margin={"l": _SIDE_PX, "r": _SIDE_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        xaxis=time_axis((0.0, last_us), "\N{MICRO SIGN}s from the launch's begin"),
        yaxis={"visible": False, "range": [-0.5, 0.5], "fixedrange": True},
    )
    return figure


def _drawn_as(row: Mapping[str, Any]) -> str:
    """The kind whose colour a stretch has; empty for one of no job or between two."""
    return str(row["kind"]) if row["job"] is not None and row["how"] != "gap" else ""


def _style(kind: str, look: Theme) -> KindStyle:
    plain = KindStyle(look.panel, look.faint_ink, look.ink, look.panel)
    return look.kinds.get(kind, look.kinds["compute"]) if kind else plain


def _bars(rows: Sequence[Mapping[str, Any]], kind: str, style: KindStyle) -> go.Bar:
    return go.Bar(
        base=[row["begin_ns"] / US for row in rows],
        x=[row["dur_ns"] / US for row in rows],
        y=[0] * len(rows),
        width=0.8,
        orientation="h",
        marker={"color": style.fill, "line": {"color": style.line, "width": 1}},
        customdata=[[*_hover_texts(row), row["place"]] for row in rows],
        hovertemplate=_HOVER,
        name=kind or "between",
    )


def _hover_texts(row: Mapping[str, Any]) -> list[str]:
    begin, length = exact_ns(row["begin_ns"]), exact_ns(row["dur_ns"])
    return [shown(stretch_name(row)), stretch_place(row), begin, length, shown(stretch_words(row), 200)]


def stretch_name(row: Mapping[str, Any]) -> str:
    """What a stretch of the path is of: a job, or what lies between two."""
    return str(row["job"]) if row["job"] is not None else str(row["how"]).replace("_", " ")


def stretch_place(row: Mapping[str, Any]) -> str:
    """Where a stretch was; empty where it is of no span."""
    return "" if row["block"] is None else f"rank {row['rank']}, block {row['block']}, warp {row['warp']}"


def stretch_words(row: Mapping[str, Any]) -> str:
    """How a stretch belongs to its span, and what it came from."""
    came = "" if row["from_job"] is None else f": {row['from_job']}, block {row['from_block']}"
    return f"{_WORDS.get(str(row['how']), '')}{came}"


def _labels(rows: Sequence[Mapping[str, Any]], styles: Mapping[str, KindStyle], last_us: float) -> go.Scatter:
    """The op of each stretch that is long enough for its name."""
    long = [
        row
        for row in rows
        if row["op"] and row["dur_ns"] / US > _LABEL_SHARE * last_us * len(row["op"]) and _drawn_as(row)
    ]
    return go.Scatter(
        x=[(row["begin_ns"] + row["dur_ns"] / 2) / US for row in long],
        y=[0] * len(long),
        text=[shown(row["op"]) for row in long],
        mode="text",
        textfont={"size": 11, "color": [styles[_drawn_as(row)].text for row in long]},
        hoverinfo="skip",
        name="ops",
    )
