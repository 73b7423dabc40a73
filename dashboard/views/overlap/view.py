"""The overlap view: its layout and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from dash import Dash, Input, Output, html

from musetrace.dashboard import ids
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Option, Scope, ScopeChoices
from musetrace.dashboard.views.overlap.engines import draw_shares, draw_use
from musetrace.dashboard.views.overlap.roofline import LINEAR, LOG, bandwidths, draw_roofline
from musetrace.dashboard.views.parts import SCOPE_INPUTS, downloads, graph, picker, scope_pickers, section
from musetrace.dashboard.views.view import Page, View

SHARES, SHARES_NOTE, SHARES_FILES = "overlap-graph", "overlap-note", "overlap-files"
USE, USE_NOTE, USE_FILES = "use-graph", "use-note", "use-files"
ROOF, ROOF_NOTE, ROOF_FILES, ROOF_TABLE = "roof-graph", "roof-note", "roof-files", "roof-table"
SCALE = "scale"


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope, and three sections."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query)
    scale = LOG if query.get(SCALE) == LOG else LINEAR
    scales = [Option(LINEAR, "linear"), Option(LOG, "logarithmic")]
    body = [
        section(
            "Engines at work",
            scope_pickers(choices, scope),
            [html.P(id=SHARES_NOTE, className="note"), html.Span(id=SHARES_FILES)],
            graph(SHARES, 270),
        ),
        section(
            "Over the time of a launch",
            [],
            [html.P(id=USE_NOTE, className="note"), html.Span(id=USE_FILES)],
            graph(USE, 284),
        ),
        section(
            "Bandwidth against the ceiling",
            [picker(SCALE, "GB/s", scales, scale)],
            [html.P(id=ROOF_NOTE, className="note"), html.Span(id=ROOF_FILES)],
            graph(ROOF),
            html.Div(id=ROOF_TABLE),
        ),
    ]
    defaults = {**choices.default.fields(), SCALE: LINEAR}
    return Page(body, {**scope.fields(), SCALE: scale}, defaults)


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the graphs and the table."""

    @app.callback(
        Output(SHARES, "figure"),
        Output(SHARES_NOTE, "children"),
        Output(SHARES_FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.THEME, "data"),
    )
    def on_shares(ref: object, kind: str, rank: str, step: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        return *draw_shares(runs.run(of), scope, theme_name), downloads("overlap", of, scope)

    @app.callback(
        Output(USE, "figure"),
        Output(USE_NOTE, "children"),
        Output(USE_FILES, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.THEME, "data"),
    )
    def on_use(ref: object, kind: str, rank: str, step: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)
        return *draw_use(runs.run(of), scope, theme_name), downloads("utilisation", of, scope)

    @app.callback(
        Output(ROOF, "figure"),
        Output(ROOF_NOTE, "children"),
        Output(ROOF_FILES, "children"),
        Output(ROOF_TABLE, "children"),
        Input(ids.RUN, "data"),
        *SCOPE_INPUTS,
        Input(ids.field(SCALE), "value"),
        Input(ids.THEME, "data"),
    )
    def on_roof(ref: object, kind: str, rank: str, step: str, scale: str, theme_name: str) -> tuple[Any, ...]:
        of, scope = RunRef.of(ref), Scope(kind, rank, step)

        def answered() -> pa.Table:
            return runs.kept(of, ("roofline", scope), lambda run: bandwidths(run, scope))

        figure, note, table = draw_roofline(runs.run(of), answered, scale, theme_name)
        return figure, note, downloads("roofline", of, scope), table


VIEW = View("overlap", "Overlap", layout, register)
