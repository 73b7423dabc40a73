"""The stops view: its layout and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update

from musetrace.analysis.gaps.stops import first_stop, stop_jobs
from musetrace.dashboard import ids
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import ALL, Option, Scope, ScopeChoices
from musetrace.dashboard.views.grid import grid
from musetrace.dashboard.views.parts import downloads, graph, picker, scope_pickers, section
from musetrace.dashboard.views.stops.all_stops import (
    GRID,
    STOP_COLUMNS,
    Answers,
    ask,
    draw_stops,
    list_stops,
    no_stops_sentence,
)
from musetrace.dashboard.views.stops.one_stop import draw_one_stop, examples, one_note
from musetrace.dashboard.views.view import Page, View

WAITS, LEADS, RANK_LASTS, SPREADS = "stop-waits", "stop-leads", "stop-rank-lasts", "stop-spreads"
NOTE, FILES, TABLE = "stops-note", "stops-files", "stops-table"
BY_RANK, OF_RANKS, MEANS, LASTS = "stop-by-rank", "stop-of-ranks", "stop-means", "stop-lasts"
ONE_NOTE, ONE_FILES, EXAMPLES = "one-stop-note", "one-stop-files", "one-stop-examples"
STOP, NONE = "stop", ""
_ALL_STOPS = (WAITS, LEADS, RANK_LASTS, SPREADS)

_SCOPE = [Input(ids.field("kind"), "value"), Input(ids.field("step"), "value")]
_STOP = Input(ids.field(STOP), "value")


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers, all stops, and one of them."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    names = list(stop_jobs(runs.run(ref).job_table))
    scope = choices.settle(query)
    first = first_stop(runs.run(ref).job_table) or NONE
    stop = query[STOP] if query.get(STOP) in names else first
    fields = {"kind": scope.kind, "step": scope.step, STOP: stop}
    default = choices.default
    defaults = {"kind": default.kind, "step": default.step, STOP: first}
    if not names:
        return Page(html.P(no_stops_sentence(runs.run(ref)), className="sentence"))
    options = [Option(name, name) for name in names]
    body = [
        section(
            "Stops between ranks",
            scope_pickers(choices, scope, ("kind", "step")),
            [html.P(id=NOTE, className="note"), html.Span(id=FILES)],
            html.Div([graph(name, 200) for name in _ALL_STOPS], className="panels four"),
            html.Div(grid(GRID, (), selected=True), id=TABLE),
        ),
        section(
            "One stop",
            [picker(STOP, "stop", options, stop)],
            [html.P(id=ONE_NOTE, className="note"), html.Span(id=ONE_FILES)],
            html.Div([graph(BY_RANK, 160), graph(OF_RANKS, 160)], className="panels"),
            html.Div([graph(MEANS, 160), graph(LASTS, 160)], className="panels"),
            html.Div(id=EXAMPLES),
        ),
    ]
    return Page(body, fields, defaults)


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the graphs and the table; a click on a stop picks it."""
    _connect_all_stops(app, runs)
    _connect_one_stop(app, runs)
    app.callback(
        Output(ids.field(STOP), "value"),
        *(Input(name, "clickData") for name in _ALL_STOPS),
        Input(GRID, "selectedRows"),
        State(ids.field(STOP), "options"),
        prevent_initial_call=True,
    )(on_pick)


def on_pick(*given: Any) -> Any:
    """What was clicked on last, of pictures and table, as the value of the picker."""
    picked = picked_stop(ctx.triggered[0]["value"] if ctx.triggered else None, given[-1])
    return no_update if picked is None else picked


def _connect_all_stops(app: Dash, runs: OpenRuns) -> None:
    def answers_of(ref: RunRef, scope: Scope) -> Answers:
        return or_sentence(lambda: runs.kept(ref, ("stops", scope), lambda run: ask(run, scope)), str)

    @app.callback(
        *(Output(name, "figure") for name in _ALL_STOPS),
        Input(ids.RUN, "data"),
        *_SCOPE,
        _STOP,
        Input(ids.THEME, "data"),
    )
    def on_stops(ref: object, kind: str, step: str, stop: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, ALL, step)
        return draw_stops(runs.run(of), answers_of(of, scope), stop, theme_name)

    # Not with the pictures: the table keeps its place when a stop is picked.
    @app.callback(
        Output(NOTE, "children"),
        Output(FILES, "children"),
        Output(TABLE, "children"),
        Output(TABLE, "hidden"),
        Input(ids.RUN, "data"),
        *_SCOPE,
    )
    def on_scope(ref: object, kind: str, step: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, ALL, step)
        note, rows = list_stops(runs.run(of), answers_of(of, scope))
        files = ["waits ", *downloads("stops", of, scope), " arrivals ", *downloads("arrivals", of, scope)]
        table = grid(GRID, STOP_COLUMNS, rows, selected=True)
        return note, html.Span(files, className="note"), table, not rows


def _connect_one_stop(app: Dash, runs: OpenRuns) -> None:
    @app.callback(
        Output(BY_RANK, "figure"),
        Output(OF_RANKS, "figure"),
        Output(MEANS, "figure"),
        Output(LASTS, "figure"),
        Output(ONE_NOTE, "children"),
        Output(ONE_FILES, "children"),
        Input(ids.RUN, "data"),
        *_SCOPE,
        _STOP,
        Input(ids.THEME, "data"),
    )
    def on_stop(ref: object, kind: str, step: str, stop: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, ALL, step)
        drawn = draw_one_stop(runs.run(of), scope, stop, theme_name)
        return *drawn, one_note(stop, scope, of.index), downloads("block_arrivals", of, scope, stop=stop)

    @app.callback(Output(EXAMPLES, "children"), Input(ids.RUN, "data"), *_SCOPE, _STOP)
    def on_examples(ref: object, kind: str, step: str, stop: str) -> Any:
        of = RunRef.of(ref)
        return examples(runs.run(of), Scope(kind, ALL, step), stop, of.index)


def picked_stop(value: Any, options: Sequence[Mapping[str, str]] | None) -> str | None:
    """The stop of a click on a picture or on a row of the table; None where it is none of the picker's."""
    name: object = None
    if isinstance(value, Mapping) and value.get("points"):
        data = value["points"][0].get("customdata") if isinstance(value["points"][0], Mapping) else None
        name = data[-1] if isinstance(data, list) and data else None
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        name = value[0].get("stop")
    known = {option["value"] for option in options or ()}
    return name if isinstance(name, str) and name in known else None


VIEW = View("stops", "Stops", layout, register)
