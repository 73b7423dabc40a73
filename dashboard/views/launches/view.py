"""The launches view: its layout and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, Input, Output, State, html, no_update

from musetrace.dashboard import ids
from musetrace.dashboard.address import to_location
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope, ScopeChoices
from musetrace.dashboard.views.launches.edges import draw_edges
from musetrace.dashboard.views.launches.one_step import clicked_launch, draw_step
from musetrace.dashboard.views.launches.steps import list_steps
from musetrace.dashboard.views.parts import SCOPE_INPUTS, downloads, graph, scope_pickers, section
from musetrace.dashboard.views.view import Page, View
from musetrace.figures.blank import sentence_figure

STRIP, STRIP_NOTE, STRIP_FILES = "strip-graph", "strip-note", "strip-files"
HOST, HOST_FRAME = "host-graph", "host-frame"
ALL_IN, GAP, LEAD = "all-in-graph", "gap-graph", "lead-graph"
EDGES_NOTE, EDGES_FILES, EDGES_TABLE = "edges-note", "edges-files", "edges-table"
STEPS_NOTE, STEPS_FILES, STEPS_TABLE = "steps-note", "steps-files", "steps-table"


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope, and three sections."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query, Scope())
    panels = html.Div([graph(ALL_IN, 160), graph(GAP, 160), graph(LEAD, 160)], className="panels")
    body = [
        section(
            "One step",
            scope_pickers(choices, scope),
            [html.P(id=STRIP_NOTE, className="note"), html.Span(id=STRIP_FILES)],
            graph(STRIP, 126),
            html.Div(graph(HOST, 78), id=HOST_FRAME),
        ),
        section(
            "From launch to launch",
            [],
            [html.P(id=EDGES_NOTE, className="note"), html.Span(id=EDGES_FILES)],
            panels,
            html.Div(id=EDGES_TABLE),
        ),
        section(
            "Steps and their parts",
            [],
            [html.P(id=STEPS_NOTE, className="note"), html.Span(id=STEPS_FILES)],
            html.Div(id=STEPS_TABLE),
        ),
    ]
    return Page(body, scope.fields(), Scope().fields())


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the graphs and the tables; a click on a launch goes to the timeline."""
    _connect_step(app, runs)
    _connect_answers(app, runs)


def _connect_step(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(STRIP, "figure"),
        Output(STRIP_NOTE, "children"),
        Output(STRIP_FILES, "children"),
        Output(HOST, "figure"),
        Output(HOST_FRAME, "hidden"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.THEME, "data"),
    )
    def on_step(ref: object, kind: str, rank: str, step: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        strip, note, host = draw_step(runs.run(of), scope, theme_name)
        files = downloads("launches_of_step", of, scope)
        return strip, note, files, host or sentence_figure("", theme_name), host is None

    @app.callback(
        Output(ids.URL, "pathname", allow_duplicate=True),
        Output(ids.URL, "search", allow_duplicate=True),
        Input(STRIP, "clickData"),
        State(ids.RUN, "data"),
        prevent_initial_call=True,
    )
    def on_click(click: object, ref: object) -> tuple[Any, Any]:
        found = clicked_launch(click, RunRef.of(ref).index)
        return (no_update, no_update) if found is None else to_location(found)


def _connect_answers(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(ALL_IN, "figure"),
        Output(GAP, "figure"),
        Output(LEAD, "figure"),
        Output(EDGES_NOTE, "children"),
        Output(EDGES_FILES, "children"),
        Output(EDGES_TABLE, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.THEME, "data"),
    )
    def on_edges(ref: object, kind: str, rank: str, step: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        *figures, note, table = draw_edges(runs.run(of), scope, theme_name)
        return *figures, note, downloads("launches", of, scope), table

    @app.callback(
        Output(STEPS_NOTE, "children"),
        Output(STEPS_FILES, "children"),
        Output(STEPS_TABLE, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
    )
    def on_steps(ref: object, kind: str, rank: str, step: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        note, table = list_steps(runs.run(of), scope)
        return note, downloads("step_parts", of, scope), table


VIEW = View("launches", "Launches", layout, register)
