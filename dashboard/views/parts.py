"""Parts that every view is made of: pickers, graphs, the legend of the kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Input, State, dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.address import RUN
from musetrace.dashboard.open_runs import RunRef
from musetrace.dashboard.scope import Option, Scope, ScopeChoices
from musetrace.figures.graph_config import GRAPH_CONFIG

# For the callbacks of a view with scope_pickers(): kind, rank and step, as Scope takes them.
SCOPE_INPUTS = tuple(Input(ids.field(name), "value") for name in Scope().fields())
SCOPE_STATES = tuple(State(ids.field(name), "value") for name in Scope().fields())

_NOTHING_YET = {
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
_SEARCH_FROM = 12
_LEGEND = ("load", "prefetch", "wait", "compute", "send", "recv", "sync")


def section(title: str, pickers: Sequence[Any], below: Sequence[Any], *body: Any) -> html.Section:
    """A part of a view: its title, pickers on the right, a line below them, and what it shows."""
    head = html.Div([html.H2(title), html.Div(list(pickers), className="pickers")], className="section-head")
    return html.Section([head, html.Div(list(below), className="section-sub"), *body], className="view")


def picker(field: str, label: str, options: Sequence[Option], value: str) -> html.Label:
    """A labelled dropdown that always has a value, which the address bar has as ``field``."""
    dropdown = dcc.Dropdown(
        id=ids.field(field),
        options=as_options(options),
        value=value,
        clearable=False,
        searchable=len(options) > _SEARCH_FROM,
        maxHeight=300,
    )
    return html.Label([html.Span(label), dropdown], className="picker")


def scope_pickers(
    choices: ScopeChoices, scope: Scope, names: Sequence[str] = ("kind", "rank", "step")
) -> list[Any]:
    """The pickers of the kind of launch, the ranks and the steps; a view may leave some out."""
    labels = {"kind": "kernel" if choices.has_kernels else "layer kind", "rank": "ranks", "step": "steps"}
    options, values = choices.options(), scope.fields()
    return [picker(name, labels[name], options[name], values[name]) for name in names]


def downloads(question: str, ref: RunRef, scope: Scope, **more: str) -> list[Any]:
    """Links to the whole table behind a view, as CSV and as an Arrow file."""
    return table_links(question, {RUN: str(ref.index), **scope.fields(), **more})


def table_links(question: str, fields: Mapping[str, str]) -> list[Any]:
    """Links to a table of ``dashboard.api.tables``, as CSV and as an Arrow file."""
    query = urlencode(fields)
    return [
        html.A(
            words,
            href=f"/api/table/{question}.{suffix}?{query}",
            download="",
            className="download",
            title=why,
        )
        for suffix, words, why in (
            ("csv", "CSV", "the table behind this, integers in ns"),
            ("arrow", "Arrow", "the same as an Arrow file"),
        )
    ]


def as_options(options: Sequence[Option]) -> list[dict[str, str]]:
    """The entries as a dropdown takes them."""
    return [{"value": option.value, "label": option.label} for option in options]


def graph(component_id: str, height: int = 420) -> html.Div:
    """An empty graph, which a callback fills, and buttons that save it as a picture."""
    drawn = dcc.Graph(
        id=component_id,
        config=GRAPH_CONFIG,
        figure={"data": [], "layout": {**_NOTHING_YET, "height": height}},
        className="graph",
    )
    # assets/export.js knows them by their class and finds the graph beside them.
    buttons = [
        html.Button(name, className="save-picture", value=name.lower(), title=f"save this picture as {name}")
        for name in ("PNG", "SVG")
    ]
    return html.Div([html.Div(buttons, className="save-pictures"), drawn], className="graph-frame")


def legend() -> html.Ul:
    """One swatch for each kind of job."""
    return html.Ul(
        [html.Li([html.I(className=f"swatch swatch-{kind}"), kind]) for kind in _LEGEND],
        className="legend",
    )
