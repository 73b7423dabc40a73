"""The op view: when each op of a kind of launch runs, over blocks, layers, steps and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from dash import Dash, Input, Output, dcc, html

from musetrace.analysis import below_tick_spans, ignored_spans, op_timeline
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.dashboard import ids
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Option, Scope, ScopeChoices
from musetrace.dashboard.views.both_timelines import draw_both
from musetrace.dashboard.views.parts import (
    SCOPE_INPUTS,
    downloads,
    graph,
    legend,
    picker,
    scope_pickers,
    section,
)
from musetrace.dashboard.views.span_quality import nothing_stamped, quality
from musetrace.dashboard.views.view import Page, View
from musetrace.figures.blank import sentence_figure
from musetrace.figures.op_timeline import op_timeline_figure

GRAPH, NOTE, FILES = "op-graph", "op-note", "op-files"
NOTHING = "none"
_READING = "bar: median begin to median end; whiskers: p10 to p90; in brackets: blocks, where not all run it"


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope, and the op timeline."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query)
    beside = beside_of(runs, ref, query.get("beside", NOTHING))
    pickers = [*scope_pickers(choices, scope), _beside_picker(runs, ref, beside)]
    below = [legend(), html.P(id=NOTE, className="note"), html.Span(id=FILES)]
    body = section("Op timeline", pickers, below, graph(GRAPH))
    fields = {**scope.fields(), "beside": beside}
    return Page(body, fields, {**choices.default.fields(), "beside": NOTHING})


def beside_of(runs: OpenRuns, ref: RunRef, text: str) -> str:
    """The run below this one, by its place on the command line; NOTHING where that is none of the others."""
    return text if text in [place for place, _ in _others(runs, ref)] else NOTHING


def _others(runs: OpenRuns, ref: RunRef) -> list[tuple[str, str]]:
    return [(str(place), name) for place, name in enumerate(runs.names) if place != ref.index]


def _beside_picker(runs: OpenRuns, ref: RunRef, beside: str) -> Any:
    others = _others(runs, ref)
    if not others:
        # It keeps the callbacks alike.
        return dcc.Input(id=ids.field("beside"), type="hidden", value=beside)
    options = [Option(NOTHING, "nothing"), *(Option(place, name) for place, name in others)]
    return picker("beside", "beside it", options, beside)


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers and the graph."""

    @app.callback(
        Output(GRAPH, "figure"),
        Output(NOTE, "children"),
        Output(FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field("beside"), "value"),
        Input(ids.THEME, "data"),
    )
    def on_scope(
        ref: object, kind: str, rank: str, step: str, beside: str, theme_name: str
    ) -> tuple[go.Figure, str, list[Any]]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        files = downloads("op_timeline", of, scope)
        if beside_of(runs, of, beside) == NOTHING:
            return *draw_ops(runs.run(of), scope, theme_name), files
        below = runs.ref(int(beside))
        figure, notes = draw_both(runs, (of, below), scope, theme_name)
        other = downloads("op_timeline", below, scope)
        both = [
            html.Span([f"{letter} ", *links], className="files")
            for letter, links in (("A", files), ("B", other))
        ]
        return figure, "; ".join([_READING, *notes]), both


def draw_ops(run: RecordedRun, scope: Scope, theme_name: str) -> tuple[go.Figure, str]:
    """The op timeline over a scope, and the note above it."""

    def draw() -> tuple[go.Figure, str]:
        table = op_timeline(run, **scope.arguments)
        if table.num_rows == 0:
            return sentence_figure(nothing_stamped(run), theme_name), ""
        figure = op_timeline_figure(table, list(stop_jobs(run.job_table)), theme_name)
        figure.update_layout(uirevision=str(scope))
        return figure, "; ".join([_READING, *quality(ignored_spans(table), below_tick_spans(table))])

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


VIEW = View("ops", "Ops", layout, register)
