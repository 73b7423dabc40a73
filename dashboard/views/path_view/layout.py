"""The page of the view: the path on the left, what a change would bring on the right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import ScopeChoices
from musetrace.dashboard.views.parts import graph, picker, scope_pickers, section
from musetrace.dashboard.views.path_view import path_ids as at
from musetrace.dashboard.views.path_view.path_answers import HINT
from musetrace.dashboard.views.path_view.path_scope import LAUNCH, MIDDLE, PATHS_OF, Examples, paths_of
from musetrace.dashboard.views.view import Page
from musetrace.dashboard.what_list import settle

_STRIP_PX, _BAR_PX = 92, 98


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of the scope, one launch's path, the path over the scope, and the what-if."""
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query)
    run = runs.run(ref)
    chosen = query.get("drawn", MIDDLE)
    examples = runs.kept(ref, ("examples", scope, chosen), lambda run: Examples(run, scope, chosen))
    what = settle(run.job_table, query.get("what", ""))
    fields = {**scope.fields(), "of": paths_of(query), "drawn": examples.value, "what": what}
    pickers = [
        picker("of", "path of", PATHS_OF, fields["of"]),
        *scope_pickers(choices, scope),
        picker("drawn", "drawn launch", examples.options(), examples.value),
    ]
    body = html.Div(
        [
            section("Critical path", pickers, [html.P(id=at.NOTE, className="note"), html.Span(id=at.FILES)],
                    *_one_launch()),
            html.Div([_parts(), _what_if(what), _edges()], className="path-columns"),
        ]
    )  # fmt: skip
    defaults = {**choices.default.fields(), "of": LAUNCH, "drawn": MIDDLE, "what": ""}
    return Page(body, fields, defaults)


def _one_launch() -> list[Any]:
    rows = html.Details(
        [html.Summary("its stretches as a table"), html.Div(id=at.ROWS)],
        className="fold",
    )
    readout = html.Div(HINT, id=at.STRETCH, className="readout")
    which = html.P(id=at.WHICH, className="note")
    return [graph(at.STRIP, _STRIP_PX), html.Div([which, readout], className="section-sub"), rows]


def _parts() -> html.Div:
    return html.Div([html.H3("What each op has of it"), graph(at.PARTS)], className="path-parts")


def _edges() -> html.Div:
    return html.Div([html.H3("Where it changes warps"), html.Div(id=at.EDGES)], className="path-edges")


def _what_if(what: str) -> html.Div:
    reset = html.Button("as recorded", id=at.RESET, className="plain-button", title="all levers back")
    return html.Div(
        [
            html.Div([html.H3("What if"), reset], className="column-head"),
            html.Div(id=at.RESULT, className="what-result"),
            graph(at.BAR, _BAR_PX),
            html.Div(id=at.LEVERS, className="lever-groups"),
            html.H3("What brings most, each alone"),
            html.Div(id=at.BEST),
            dcc.Input(id=ids.field("what"), type="hidden", value=what),
            dcc.Store(id=at.LIVE, data=what),
            dcc.Store(id=at.DONE),
            dcc.Store(id=at.NAMES, data={"ops": [], "others": []}),
        ],
        className="path-what-if",
    )
