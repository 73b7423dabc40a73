"""What happens when something is chosen, clicked or dragged."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, html

from musetrace.dashboard import ids
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import grid
from musetrace.dashboard.views.parts import SCOPE_INPUTS, SCOPE_STATES, as_options, downloads
from musetrace.dashboard.views.path_view import path_ids as at
from musetrace.dashboard.views.path_view.levers import Levers, Setting, lever_parts
from musetrace.dashboard.views.path_view.path_answers import (
    EDGE_COLUMNS,
    STRETCH_COLUMNS,
    clicked,
    draw_parts,
    draw_strip,
    picked,
    read_stretch,
)
from musetrace.dashboard.views.path_view.path_scope import Examples
from musetrace.dashboard.views.path_view.what_answers import (
    RANKED_COLUMNS,
    draw_what_if,
    ranked_rows,
    what_ifs_of,
)


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the graphs, the levers and the address."""
    _register_path(app, runs)
    _register_launch(app, runs)
    _register_what_if(app, runs)
    _register_levers(app)


def _register_path(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(at.PARTS, "figure"),
        Output(at.NOTE, "children"),
        Output(at.EDGES, "children"),
        Output(at.FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field("of"), "value"),
        Input(ids.THEME, "data"),
    )
    def on_scope(
        ref: object, kind: str, rank: str, step: str, of: str, theme_name: str
    ) -> tuple[go.Figure, str, Any, list[Any]]:
        where, scope = RunRef.of(ref), Scope(kind, rank, step)
        figure, note, rows = draw_parts(runs, where, scope, of, theme_name)
        return figure, note, grid(at.EDGE_ROWS, EDGE_COLUMNS, rows), file_links(where, scope, of)


def file_links(ref: RunRef, scope: Scope, of: str) -> list[Any]:
    """The tables of the view."""
    names = {"critical_path": "path", "critical_edges": "ways", "what_ifs": "what-ifs"}
    return [
        html.Span([f"{name} ", *downloads(question, ref, scope, of=of)], className="files")
        for question, name in names.items()
    ]


def _register_launch(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(ids.field("drawn"), "options"),
        Output(ids.field("drawn"), "value"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        State(ids.field("drawn"), "value"),
        prevent_initial_call=True,
    )
    def on_launches(
        ref: object, kind: str, rank: str, step: str, launch: str
    ) -> tuple[list[dict[str, str]], str]:
        scope = Scope(kind, rank, step)
        examples = runs.kept(
            RunRef.of(ref), ("examples", scope, launch), lambda run: Examples(run, scope, launch)
        )
        return as_options(examples.options()), examples.value

    @app.callback(
        Output(at.STRIP, "figure"),
        Output(at.WHICH, "children"),
        Output(at.ROWS, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field("drawn"), "value"),
        Input(ids.THEME, "data"),
    )
    def on_launch(
        ref: object, kind: str, rank: str, step: str, launch: str, theme_name: str
    ) -> tuple[go.Figure, str, Any]:
        figure, which, rows = draw_strip(runs, RunRef.of(ref), Scope(kind, rank, step), launch, theme_name)
        return figure, which, grid(at.STRETCHES, STRETCH_COLUMNS, rows, selected=True)

    @app.callback(
        Output(at.STRETCH, "children"),
        Input(at.STRIP, "clickData"),
        Input(at.STRETCHES, "selectedRows"),
        Input(at.STRIP, "figure"),
        State(ids.RUN, "data"),
        *SCOPE_STATES,
        State(ids.field("drawn"), "value"),
        prevent_initial_call=True,
    )
    def on_stretch(
        click: object, selected: object, _: object, ref: object, kind: str, rank: str, step: str, launch: str
    ) -> Any:
        by = {at.STRIP: clicked(click), at.STRETCHES: picked(selected)}
        place = by[ctx.triggered_id] if f"{at.STRIP}.figure" not in ctx.triggered_prop_ids else None
        return read_stretch(runs, RunRef.of(ref), Scope(kind, rank, step), launch, place)


def _register_what_if(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(at.LEVERS, "children"),
        Output(at.NAMES, "data"),
        Output(at.BEST, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        State(at.LIVE, "data"),
    )
    def on_levers(ref: object, kind: str, rank: str, step: str, what: str) -> tuple[Any, Any, Any]:
        return make_levers(runs, RunRef.of(ref), Scope(kind, rank, step), what)

    @app.callback(
        Output(at.BAR, "figure"),
        Output(at.RESULT, "children"),
        Output(at.DONE, "data"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(at.LIVE, "data"),
        Input(ids.THEME, "data"),
    )
    def on_live(
        ref: object, kind: str, rank: str, step: str, what: str, theme_name: str
    ) -> tuple[go.Figure, list[Any], str]:
        answer = draw_what_if(runs, RunRef.of(ref), Scope(kind, rank, step), what or "", theme_name)
        return *answer, what


def make_levers(runs: OpenRuns, ref: RunRef, scope: Scope, what: str) -> tuple[Any, Any, Any]:
    """The levers of a scope, set by a list of changes, their names, and the table of what brings most."""

    def make() -> tuple[Any, Any, Any]:
        table, ranked = runs.run(ref).job_table, what_ifs_of(runs, ref, scope)
        levers = Levers.of(table, ranked)
        setting = Setting.of(table, levers, what or "")
        best = grid(at.RANKED, RANKED_COLUMNS, ranked_rows(ranked), selected=True)
        return lever_parts(levers, setting), levers.names(setting.others), best

    return or_sentence(make, lambda sentence: (sentence, {"ops": [], "others": []}, None))


def _register_levers(app: Dash) -> None:
    """The scripts of assets/what_if.js: what the levers say, and what sets them."""
    script = "what_if"
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction(script, "changed"),
        Output(at.PERCENTS, "children"),
        Input(at.OPS, "value"),
        Input(at.WAITS, "value"),
        State(at.NAMES, "data"),
        State(at.LIVE, "data"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction(script, "set"),
        Output(at.OPS, "value"),
        Output(at.WAITS, "value"),
        Output(at.NAMES, "data", allow_duplicate=True),
        Input(at.RANKED, "selectedRows"),
        Input(at.RESET, "n_clicks"),
        State(at.OPS, "value"),
        State(at.WAITS, "value"),
        State(at.WAITS, "options"),
        State(at.NAMES, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction(script, "done"), Input(at.DONE, "data")
    )
