"""The launches of one step as a strip: what runs when, where one begins before the last has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.axes import left_margin_px, time_axis
from musetrace.figures.comb import comb_path
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import US, exact_ns, plus_minus, shown

MOST_RANKS = 8

# Launches take turns between two lanes, so that an overlap is seen; below them overlaps have a line.
_LANES = ((0.06, 0.42), (0.44, 0.80))
_OVERLAP = (0.86, 0.96)
_ROW_PX, _LOW_ROW_PX, _FEW_RANKS = 74, 44, 2
_TOP_PX, _BOTTOM_PX, _RIGHT_PX = 8, 44, 24
_MOST_LABELS = 200
_WORD_SHARE, _NUMBER_SHARE = 0.0075, 0.0045  # of the axis, for each character of a kind, of a layer
_HOVER = "%{customdata[0]}<extra></extra>"
Row = Mapping[str, Any]


def step_strip_figure(table: pa.Table, picked: str | None, theme_name: str) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.launches_of_step``: a row for each rank, at most MOST_RANKS.

    x is in us from the step's begin. Launches of the kind that is ``picked`` stand out. A click on a launch
    tells, as ``customdata``: hover text, rank, its begin and end in ns from the run's origin.
    """
    look = theme(theme_name)
    rows = [row for row in table.to_pylist() if row["begin_ns"] is not None]
    ranks = list(dict.fromkeys(row["rank"] for row in rows))[:MOST_RANKS]
    rows = [row for row in rows if row["rank"] in ranks]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure = go.Figure()
    for kind in kinds:
        mine = [row for row in rows if row["kind"] == kind]
        colour = _colour(kind, kinds, picked, look)
        figure.add_traces([_bars(mine, ranks, lane, kind, colour) for lane in range(len(_LANES))])
    overlapping = [row for row in rows if (row["gap_ns"] or 0) < 0]
    last_us = max((row["end_ns"] for row in rows), default=1_000) / US
    figure.add_traces(
        [
            _overlaps(overlapping, ranks, look),
            _labels(rows, ranks, picked, last_us, look),
            _points(rows, ranks),
        ]
    )
    labels = [f"rank {rank}" for rank in ranks]
    row_px = _ROW_PX if len(ranks) <= _FEW_RANKS else _LOW_ROW_PX
    figure.update_layout(
        template=template(theme_name),
        height=row_px * max(len(ranks), 1) + _TOP_PX + _BOTTOM_PX,
        margin={"l": left_margin_px(labels), "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        hoverdistance=60,
        xaxis=time_axis((0.0, last_us), "\N{MICRO SIGN}s from the step's begin, device"),
        yaxis={
            "range": [max(len(ranks), 1), 0],
            "fixedrange": True,
            "tickvals": [place + 0.43 for place in range(len(ranks))],
            "ticktext": labels,
            "ticklabelstandoff": 8,
        },
    )
    return figure


def _lane(row: Row) -> int:
    return int(row["launch"]) % len(_LANES)


def _colour(kind: str, kinds: Sequence[str], picked: str | None, look: Theme) -> str:
    """The picked kind has the accent; the others are shades of grey, as apart as their number allows."""
    if kind == picked:
        return look.accent
    others = [one for one in kinds if one != picked]
    share = 0.28 + 0.5 * others.index(kind) / max(len(others) - 1, 1)
    return _mixed(look.soft_ink, look.paper, share)


def _mixed(first: str, second: str, share: float) -> str:
    """A colour between two, ``share`` of the way to the second."""
    parts = [(int(first[at : at + 2], 16), int(second[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)


def _bars(rows: Sequence[Row], ranks: Sequence[int], lane: int, kind: str, colour: str) -> go.Scatter:
    """The launches of a kind in one of the two lanes, as one path."""
    mine = sorted(
        (row for row in rows if _lane(row) == lane),
        key=lambda row: (ranks.index(row["rank"]), row["begin_ns"]),
    )
    return _comb(mine, ranks, "begin_ns", "end_ns", _LANES[lane], colour, shown(kind))


def _overlaps(rows: Sequence[Row], ranks: Sequence[int], look: Theme) -> go.Scatter:
    spans = [{**row, "until_ns": row["end_ns"], "since_ns": row["end_ns"] + row["gap_ns"]} for row in rows]
    spans.sort(key=lambda row: (ranks.index(row["rank"]), row["since_ns"]))
    return _comb(spans, ranks, "since_ns", "until_ns", _OVERLAP, look.kinds["send"].fill, "overlap")


def _comb(
    rows: Sequence[Row], ranks: Sequence[int], begin: str, end: str, extent: tuple[float, float], colour: str,
    name: str,
) -> go.Scatter:  # fmt: skip
    place = np.array([ranks.index(row["rank"]) for row in rows], dtype=np.int64)
    begins, ends = (np.array([row[of] for row in rows], dtype=np.float64) / US for of in (begin, end))
    x, y = comb_path(place, begins, ends, *extent, x0=0.0)
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 0, "simplify": False}, fill="toself", fillcolor=colour,
        hoverinfo="skip", name=name,
    )  # fmt: skip


def _labels(
    rows: Sequence[Row], ranks: Sequence[int], picked: str | None, last_us: float, look: Theme
) -> go.Scatter:
    """The kind, or the layer where there is no room for it, in the launches that are long enough.

    Either all such launches of a rank are told or none.
    """
    told: list[tuple[float, float, str, str]] = []
    for place, rank in enumerate(ranks):
        mine = [row for row in rows if row["rank"] == rank]
        labels = [(row, text) for row in mine if (text := _label(row, last_us))]
        if len(told) + len(labels) > _MOST_LABELS:
            break
        for row, text in labels:
            colour = look.paper if row["kind"] == picked else look.ink
            middle = (row["begin_ns"] + row["end_ns"]) / 2 / US
            told.append((middle, place + sum(_LANES[_lane(row)]) / 2, shown(text, 24), colour))
    return go.Scatter(
        x=[one[0] for one in told],
        y=[one[1] for one in told],
        text=[one[2] for one in told],
        mode="text",
        textfont={"size": 11, "color": [one[3] for one in told] or look.ink},
        hoverinfo="skip",
        name="kinds",
    )


def _label(row: Row, last_us: float) -> str:
    width = (row["end_ns"] - row["begin_ns"]) / US / last_us
    layer = str(row["layer"]) if row["layer"] >= 0 else ""
    if width >= _WORD_SHARE * (len(row["kind"]) + 1):
        return str(row["kind"])
    return layer if width >= _NUMBER_SHARE * (len(layer) + 1) else ""


def _points(rows: Sequence[Row], ranks: Sequence[int]) -> go.Scatter:
    """Unseen points of every launch, at its begin, middle and end, for hover and click."""
    x: list[float] = []
    y: list[float] = []
    data: list[list[Any]] = []
    for row in rows:
        top, bottom = _LANES[_lane(row)]
        begin, end = row["begin_ns"], row["end_ns"]
        x += [begin / US, (begin + end) / 2 / US, end / US]
        y += [ranks.index(row["rank"]) + (top + bottom) / 2] * 3
        data += [[_hover(row), row["rank"], row["from_ns"], row["from_ns"] + end - begin]] * 3
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 0}, customdata=data, hovertemplate=_HOVER, name="launches"
    )


def _hover(row: Row) -> str:
    layer = f", layer {row['layer']}" if row["layer"] >= 0 else ""
    begin, length = exact_ns(row["begin_ns"]), exact_ns(row["end_ns"] - row["begin_ns"])
    lines = [
        f"<b>{shown(row['kind'])}</b> launch {row['launch']}{layer}, rank {row['rank']}",
        f"begin {begin} ns, {length} ns long, each {plus_minus(row['uncertainty_ns'])}",
    ]
    if row["gap_ns"] is not None:
        gap, words = abs(row["gap_ns"]), "overlaps the next by" if row["gap_ns"] < 0 else "gap to the next"
        lines.append(f"{words} {exact_ns(gap)} ns")
    if row["blocks"] < row["blocks_total"]:
        lines.append(f"{row['blocks']:,} of {row['blocks_total']:,} blocks reported")
    return "<br>".join([*lines, "click: this launch in the timeline"])


def host_strip_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """The same step on the host's clock: how long it lasts, and when its launches were submitted."""
    look = theme(theme_name)
    rows = [row for row in table.to_pylist() if row["host_step_ns"] is not None]
    ranks = list(dict.fromkeys(row["rank"] for row in rows))[:MOST_RANKS]
    whole = {row["rank"]: row["host_step_ns"] for row in rows}
    submitted = [row for row in rows if row["rank"] in ranks and row["submit_ns"] is not None]
    last_us = max((whole[rank] for rank in ranks), default=1_000) / US
    labels = [f"rank {rank}" for rank in ranks]
    told = [[f"rank {rank}: the host's step lasts {exact_ns(whole[rank])} ns"] for rank in ranks]
    figure = go.Figure(
        [
            go.Bar(
                x=[whole[rank] / US for rank in ranks], y=list(range(len(ranks))), width=0.5, orientation="h",
                marker={"color": look.grid, "line": {"width": 1, "color": look.rule}},
                customdata=told, hovertemplate=_HOVER, name="step",
            ),
            _ticks(submitted, ranks, look),
        ]
    )  # fmt: skip
    figure.update_layout(
        template=template(theme_name),
        height=26 * max(len(ranks), 1) + _TOP_PX + _BOTTOM_PX,
        margin={"l": left_margin_px(labels), "r": _RIGHT_PX, "t": _TOP_PX, "b": _BOTTOM_PX},
        xaxis=time_axis(
            (0.0, last_us), "\N{MICRO SIGN}s from the step's begin, host; lines: launches submitted"
        ),
        yaxis={
            "range": [len(ranks) - 0.5, -0.5],
            "fixedrange": True,
            "tickvals": list(range(len(ranks))),
            "ticktext": labels,
            "ticklabelstandoff": 8,
        },
    )
    return figure


def _ticks(rows: Sequence[Row], ranks: Sequence[int], look: Theme) -> go.Scatter:
    """A short upright line for each launch, on a line from a rank's first to its last: one path a rank."""
    x: list[float | None] = []
    y: list[float | None] = []
    data: list[list[str]] = []
    for rank in ranks:
        place = ranks.index(rank)
        for row in (row for row in rows if row["rank"] == rank):
            at = row["submit_ns"]
            x += [at / US] * 3
            y += [place + 0.25, place - 0.25, place + 0.25]
            data += [[f"{shown(row['kind'])} launch {row['launch']}<br>submitted at {exact_ns(at)} ns"]] * 3
        x, y, data = [*x, None], [*y, None], [*data, [""]]
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 1, "color": look.accent, "simplify": False}, customdata=data,
        hovertemplate=_HOVER, name="submitted",
    )  # fmt: skip
