"""The block view of the timeline: rows of spans over time, drawn by the scripts in ``assets/timeline``.

The page gives an empty element and the fields of the address bar; the scripts ask ``/api`` for all else.
"""

from __future__ import annotations

from collections.abc import Mapping

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.views.view import Page, View

CANVAS, STATE, MOUNTED = "timeline", "timeline-state", "timeline-mounted"
# Those of assets/timeline/state.js, which knows what each may hold; all texts, empty for the default.
FIELDS = (
    "rows",
    "block",
    "ranks",
    "from",
    "to",
    "row_from",
    "row_to",
    "zero",
    "span",
    "area",
    "measure",
    "find",
    "least_ns",
    "most_ns",
)
_LONGEST_VALUE = 300


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """An empty element that the scripts fill, and a hidden field for each part of the state."""
    state = {name: query.get(name, "")[:_LONGEST_VALUE] for name in FIELDS}
    hidden = [dcc.Input(id=ids.field(name), type="hidden", value=value) for name, value in state.items()]
    body = html.Section(
        [html.Div(id=CANVAS), dcc.Store(id=STATE), dcc.Store(id=MOUNTED), *hidden], className="timeline-view"
    )
    return Page(body, state, dict.fromkeys(FIELDS, ""))


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the scripts with the fields: at first these tell them what to show, then they the fields."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("musetrace_timeline", "mount"),
        Output(MOUNTED, "data"),
        Input(ids.RUN, "data"),
        *(State(ids.field(name), "value") for name in FIELDS),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("musetrace_timeline", "fields"),
        *(Output(ids.field(name), "value") for name in FIELDS),
        Input(STATE, "data"),
        prevent_initial_call=True,
    )


VIEW = View("timeline", "Timeline", layout, register)
