"""The op view: when each op of a kind of launch runs, over blocks, layers, steps and ranks."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
from dash import Dash, Input, Output, html

from musetrace.analysis import below_tick_spans, ignored_spans, op_timeline
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.dashboard import ids
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope, ScopeChoices
from musetrace.dashboard.views.parts import downloads, graph, legend, scope_pickers, section
from musetrace.dashboard.views.span_quality import nothing_stamped, quality
from musetrace.dashboard.views.view import Page, View
from musetrace.figures.blank import sentence_figure
from musetrace.figures.op_timeline import op_timeline_figure

GRAPH, NOTE, FILES = "op-graph", "op-note", "op-files"
_READING = "bar: median begin to median end; whiskers: p10 to p90; in brackets: blocks, where not all run it"


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope, and the op timeline."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query)
    below = [legend(), html.P(id=NOTE, className="note"), html.Span(id=FILES)]
    body = section("Op timeline", scope_pickers(choices, scope), below, graph(GRAPH))
    return Page(body, scope.fields(), choices.default.fields())


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers and the graph."""

    @app.callback(
        Output(GRAPH, "figure"),
        Output(NOTE, "children"),
        Output(FILES, "children"),
        Input(ids.RUN, "data"),
        *(Input(ids.field(name), "value") for name in Scope().fields()),
        Input(ids.THEME, "data"),
    )
    def on_scope(
        ref: object, kind: str, rank: str, step: str, theme_name: str
    ) -> tuple[go.Figure, str, list]:  # type: ignore[type-arg]
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        figure, note = draw_ops(runs.run(of), scope, theme_name)
        return figure, note, downloads("op_timeline", of, scope)


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
