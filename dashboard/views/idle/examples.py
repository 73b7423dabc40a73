"""Examples of a cause of idle time: where each is in the timeline, and whom it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from dash import dcc, html

from musetrace.analysis.gaps.example_places import TIED, UNDER_WAY
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.places import Places
from musetrace.dashboard.voice import VOICE
from musetrace.figures.wording import exact_ns, plus_minus
from musetrace.wording.finding_sentences import cause_sentence
from musetrace.wording.numbers import us

Row = Mapping[str, Any]


def examples_panel(table: pa.Table, cause: str, scope: Scope, places: Places) -> list[Any]:
    """An answer of ``musetrace.analysis.idle_examples``: what it is, where to go on, and a row each."""
    rows = table.to_pylist()
    if not rows:
        return [
            html.P(f"{VOICE.shown(cause)}: no block was idle for it in what was chosen", className="note")
        ]
    return [
        html.P(cause_sentence(rows[0], VOICE), className="finding-title"),
        html.P(links(rows[0], scope, places), className="links"),
        html.Div(html.Table([_head(rows), html.Tbody(_body(rows, places))]), className="table-frame"),
    ]


def links(row: Row, scope: Scope, places: Places) -> list[Any]:
    """Where else a cause is shown: its what-if, its stop, its launches or ops."""
    found = []
    if row["wait"] is not None:
        found.append(("if this wait were gone", places.what_if(scope, f"{row['wait']}=gone")))
    if row["cause"] == "stop":
        found.append((f"who is late at {VOICE.shown(row['op'])}", places.stop(scope, row["op"])))
    if row["cause"] in ("head", "tail"):
        found.append(("how launches follow each other", places.launches(scope)))
    found.append(("when its ops run", places.ops(scope)))
    return [dcc.Link(words, href=href) for words, href in found]


def _head(rows: Sequence[Row]) -> html.Thead:
    off = plus_minus(rows[0]["length_uncertainty_ns"])
    titles = [("", ""), ("idle, ns", "number"), ("in the timeline", ""), ("us in launch", "number")]
    if rows[0]["wait"] is not None:
        titles.append((f"late {VOICE.shown(rows[0]['awaits'] or 'producer')}, ns", ""))
    return html.Thead(html.Tr([html.Th(words, className=name, title=off) for words, name in titles]))


def _body(rows: Sequence[Row], places: Places) -> list[html.Tr]:
    marks = _marks(rows)
    several = len(places.ranks) > 1
    return [
        html.Tr(
            [
                html.Td(mark, className="number"),
                html.Td(
                    html.Data(exact_ns(row["length_ns"]), value=str(row["length_ns"])), className="number"
                ),
                html.Td(dcc.Link(_where(row, several), href=places.example(row), title=_layer(row))),
                html.Td(us(row["begin_ns"], 2), className="number"),
                *([html.Td(_producer(row, places, several))] if row["wait"] is not None else []),
            ]
        )
        for row, mark in zip(rows, marks, strict=True)
    ]


def _marks(rows: Sequence[Row]) -> list[str]:
    """A place each; equal ones where the clock cannot tell the lengths apart."""
    if rows[0]["length_uncertainty_ns"] is None:
        return ["-"] * len(rows)
    found = [row["place"] for row in rows]
    return [f"{found.index(place) + 1}{'=' if found.count(place) > 1 else '.'}" for place in found]


def _where(row: Row, several: bool) -> str:
    rank = f"rank {row['rank']}, " if several else ""
    return f"{rank}step {row['step']}, launch {row['launch']}, block {row['block']}"


def _layer(row: Row) -> str:
    layer = f"layer {row['layer']}, " if row["layer"] >= 0 else ""
    return f"{layer}{VOICE.shown(row['kind'])}"


def _producer(row: Row, places: Places, several: bool) -> list[Any]:
    """Who it was, and how late: from the begin of the wait."""
    if row["producer"] is None:
        return ["none in this launch"]
    rank = f"rank {row['producer_rank']}, " if several else ""
    who = dcc.Link(f"{rank}block {row['producer_block']}", href=places.producer(row))
    if row["producer"] == UNDER_WAY:
        return [who, " under way"]
    late, off = row["late_ns"], plus_minus(row["late_uncertainty_ns"])
    how = html.Span([" ", html.Data(exact_ns(late), value=str(late)), " late"], title=off)
    if late < 0:
        how = html.Span([" ready ", html.Data(exact_ns(-late), value=str(-late)), " before"], title=off)
    return [who, how, " or another" if row["producer"] == TIED else ""]
