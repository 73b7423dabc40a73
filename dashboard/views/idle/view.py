"""The idle view's page and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope, ScopeChoices
from musetrace.dashboard.scope_answers import ScopeAnswers
from musetrace.dashboard.views.idle import tables
from musetrace.dashboard.views.idle.shown import (
    cause_of_cell,
    cause_of_row,
    draw_blocks,
    show_causes,
    show_examples,
    show_places,
)
from musetrace.dashboard.views.parts import (
    SCOPE_INPUTS,
    SCOPE_STATES,
    downloads,
    graph,
    scope_pickers,
    section,
)
from musetrace.dashboard.views.view import Page, View

CAUSE = "cause"
SUMS, TABLE, NOTE, FILES = "idle-sums", "idle-cause-table", "idle-note", "idle-files"
EXAMPLES, EXAMPLE_FILES = "idle-examples", "idle-example-files"
HEAT, HEAT_NOTE, HEAT_FILES = "idle-heat", "idle-heat-note", "idle-heat-files"
AFTER, AFTER_NOTE, AFTER_FILES = "idle-after-table", "idle-after-note", "idle-after-files"
BLOCKS = "idle-block-tables"


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope; causes with their examples, then where they are."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query)
    cause = query.get(CAUSE, "")
    # A click sets it; empty: the first of the table.
    hidden = dcc.Input(id=ids.field(CAUSE), type="hidden", value=cause)
    body = [
        section(
            "Idle time by cause",
            [*scope_pickers(choices, scope), hidden],
            [html.Div(id=SUMS), html.Span(id=FILES)],
            html.P(id=NOTE, className="note"),
            html.Div(
                [
                    html.Div(id=TABLE),
                    _panel("Its longest examples", EXAMPLES, EXAMPLE_FILES),
                ],
                className="beside",
            ),
        ),
        section(
            "By block",
            [],
            [html.P(id=HEAT_NOTE, className="note"), html.Span(id=HEAT_FILES)],
            graph(HEAT),
            html.Div(
                [
                    _panel("Blocks, the most idle first", BLOCKS),
                    _panel("From the end of each op to the launch's end", AFTER, AFTER_FILES, AFTER_NOTE),
                ],
                className="beside",
            ),
        ),
    ]
    return Page(body, {**scope.fields(), CAUSE: cause}, {**choices.default.fields(), CAUSE: ""})


def _panel(title: str, body: str, files: str = "", note: str = "") -> html.Div:
    """A part of a section, which callbacks fill by these ids."""
    head = [html.H3(title), *([html.Span(id=files)] if files else [])]
    below = [html.P(id=note, className="note")] if note else []
    return html.Div([html.Div(head, className="panel-head"), *below, html.Div(id=body)], className="panel")


Answers = Callable[..., ScopeAnswers]


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the tables and the heat map."""

    def answers(ref: object, *scope: str) -> ScopeAnswers:
        return ScopeAnswers(runs, RunRef.of(ref), Scope(*scope))

    _show_what_was_chosen(app, answers)
    _choose_by_clicks(app, answers)


def _show_what_was_chosen(app: Dash, answers: Answers) -> None:
    """Fill tables and figure from the pickers and the cause."""

    @app.callback(
        *(Output(one, "children") for one in (SUMS, TABLE, NOTE, FILES)),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        State(ids.field(CAUSE), "value"),
    )
    def on_scope(ref: object, kind: str, rank: str, step: str, cause: str) -> tuple[Any, ...]:
        of = answers(ref, kind, rank, step)
        return (*show_causes(of, cause or ""), downloads("idle", of.ref, of.scope))

    @app.callback(
        Output(EXAMPLES, "children"),
        Output(EXAMPLE_FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field(CAUSE), "value"),
    )
    def on_cause(ref: object, kind: str, rank: str, step: str, cause: str) -> tuple[Any, Any]:
        return show_examples(answers(ref, kind, rank, step), cause or "")

    @app.callback(
        Output(HEAT, "figure"),
        Output(HEAT_NOTE, "children"),
        Output(HEAT_FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field(CAUSE), "value"),
        Input(ids.THEME, "data"),
    )
    def on_blocks(
        ref: object, kind: str, rank: str, step: str, cause: str, theme_name: str
    ) -> tuple[go.Figure, str, list]:  # type: ignore[type-arg]
        of = answers(ref, kind, rank, step)
        return (*draw_blocks(of, cause or "", theme_name), downloads("idle_blocks", of.ref, of.scope))

    @app.callback(
        Output(BLOCKS, "children"),
        Output(AFTER, "children"),
        Output(AFTER_NOTE, "children"),
        Output(AFTER_FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
    )
    def on_places(ref: object, kind: str, rank: str, step: str) -> tuple[Any, ...]:
        of = answers(ref, kind, rank, step)
        return (*show_places(of), downloads("idle_after", of.ref, of.scope))


def _choose_by_clicks(app: Dash, answers: Answers) -> None:
    """A row of the table, or a cell of the heat map, sets the cause."""

    @app.callback(
        Output(ids.field(CAUSE), "value"),
        Input(tables.CAUSES, "selectedRows"),
        State(ids.field(CAUSE), "value"),
        prevent_initial_call=True,
    )
    def on_row(chosen: object, cause: str) -> Any:
        return cause_of_row(chosen, cause or "")

    @app.callback(
        Output(ids.field(CAUSE), "value", allow_duplicate=True),
        Output(tables.CAUSES, "selectedRows"),
        Input(HEAT, "clickData"),
        State(ids.RUN, "data"),
        *SCOPE_STATES,
        prevent_initial_call=True,
    )
    def on_cell(click: object, ref: object, kind: str, rank: str, step: str) -> Any:
        return cause_of_cell(answers(ref, kind, rank, step), click)


VIEW = View("idle", "Idle", layout, register)
