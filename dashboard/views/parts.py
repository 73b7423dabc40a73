"""Parts that every view is made of: pickers, graphs, the legend of the kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import dcc, html

from musetrace.dashboard.choices import Option
from musetrace.figures.graph_config import GRAPH_CONFIG
from musetrace.figures.wording import exact_ns, lane_uncertainty

_NOTHING_YET = {
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "height": 420,
}
_SEARCH_FROM = 12
_LEGEND = ("load", "prefetch", "wait", "compute", "send", "recv", "sync")


def picker(component_id: str, label: str, options: Sequence[Option], value: str) -> html.Label:
    """A labelled dropdown that always has a value."""
    dropdown = dcc.Dropdown(
        id=component_id,
        options=as_options(options),
        value=value,
        clearable=False,
        searchable=len(options) > _SEARCH_FROM,
        maxHeight=300,
    )
    return html.Label([html.Span(label), dropdown], className="picker")


def as_options(options: Sequence[Option]) -> list[dict[str, str]]:
    """The entries as a dropdown takes them."""
    return [{"value": option.value, "label": option.label} for option in options]


def graph(component_id: str) -> dcc.Graph:
    """An empty graph, which a callback fills."""
    return dcc.Graph(
        id=component_id,
        config=GRAPH_CONFIG,
        figure={"data": [], "layout": _NOTHING_YET},
        className="graph",
    )


def legend() -> html.Ul:
    """One swatch for each kind of job."""
    return html.Ul(
        [html.Li([html.I(className=f"swatch swatch-{kind}"), kind]) for kind in _LEGEND],
        className="legend",
    )


def span_readout(span: Mapping[str, Any]) -> list[Any]:
    """A span in full, every time an exact integer, and what the clock leaves open in it."""
    place = f"rank {span['rank']}, block {span['block']}, warp {span['warp']}"
    return [
        html.I(className=f"swatch swatch-{span['kind']}"),
        html.B(span["job"]),
        html.Span(place if span["hit"] else f"nearest, {place}"),
        html.Span(["begin ", html.Data(exact_ns(span["begin_ns"]), value=str(span["begin_ns"])), " ns"]),
        html.Span(["end ", html.Data(exact_ns(span["end_ns"]), value=str(span["end_ns"])), " ns"]),
        html.Span([html.Data(exact_ns(span["dur_ns"]), value=str(span["dur_ns"])), " ns long"]),
        html.Span(f"each {lane_uncertainty(span['uncertainty_ns'], span['apart_ns'])}"),
    ]
