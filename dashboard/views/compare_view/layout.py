"""The page of the view, empty: callbacks fill it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from musetrace.dashboard.address import address
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.pair import Pair, chosen_kind, shared_kinds
from musetrace.dashboard.scope import ALL, Option, ScopeChoices
from musetrace.dashboard.views.compare_view import compare_ids as at
from musetrace.dashboard.views.parts import graph, picker, section
from musetrace.dashboard.views.view import Page

ONE_RUN = (
    "One run is open, and it takes two to compare: start musetrace view A B, with the folders of both runs."
)

_TABLES = {
    at.OF_TIMES: "steps and launches",
    at.OF_OPS: "ops",
    at.OF_BLOCKS: "busy and idle time of blocks",
    at.OF_STOPS: "stops between ranks",
}
_BUSY = "Comparing. The first time, all spans of both runs are read."


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of two runs and a kind of launch, and what differs; one sentence where one run is open."""
    if len(runs.names) == 1:
        return Page(html.P(ONE_RUN, className="sentence"))
    pair = Pair.of(runs, query.get("a"), query.get("b"))
    kind = chosen_kind(runs, pair, query)
    names = [Option(str(place), name) for place, name in enumerate(runs.names)]
    has_kernels = runs.kept(pair.refs(runs)[0], ScopeChoices, ScopeChoices).has_kernels
    kinds = [
        Option(ALL, "all kernels" if has_kernels else "all kinds"),
        *(Option(one, one) for one in shared_kinds(runs, pair)),
    ]
    table = query.get(at.TABLE, at.OF_TIMES)
    fields = {"a": str(pair.a), "b": str(pair.b), "kind": kind}
    fields[at.TABLE] = table if table in _TABLES else at.OF_TIMES
    pickers = [
        picker("a", "A", names, fields["a"]),
        picker("b", "B, may be faster or slower", names, fields["b"]),
        picker("kind", "kernel" if has_kernels else "layer kind", kinds, kind),
    ]
    swapped: dict[str, str | int] = {"a": pair.b, "b": pair.a, **({} if kind == ALL else {"kind": kind})}
    swap = dcc.Link("swap A and B", href=address("compare", ref.index, **swapped), className="download")
    below = [html.Span(id=at.FILES), swap]
    body = [
        section(
            "Compare", pickers, [html.Div(_BUSY, id=at.SAYS)], html.Div(below, className="compare-links")
        ),
        html.Div(_content(fields[at.TABLE]), id=at.CONTENT, className="unseen"),
    ]
    return Page(html.Div(body), fields, {"a": "0", "b": "1", "kind": ALL, at.TABLE: at.OF_TIMES})


def _content(table: str) -> list[Any]:
    options = [Option(name, words) for name, words in _TABLES.items()]
    return [
        section("Steps and launches", [], [html.Div(id=at.STAMPS, className="said")], graph(at.TIMES),
                html.Div(id=at.RULE)),
        section("Numbers", [picker(at.TABLE, "table", options, table)], [], html.Div(id=at.NUMBERS)),
        html.Div(_of_spans(), id=at.OF_SPANS, className="unseen"),
    ]  # fmt: skip


def _of_spans() -> list[Any]:
    return [
        section("Ops", [], [html.P(id=at.OP_NOTE, className="note")], graph(at.OPS), html.Div(id=at.OP_ONLY)),
        section("Idle time by cause", [], [html.Div(id=at.SAVED, className="said")], graph(at.IDLE)),
        section("Both op timelines", [], [html.P(id=at.LINES_NOTE, className="note")], graph(at.LINES)),
    ]  # fmt: skip
