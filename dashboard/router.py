"""Which view the page shows: the address bar decides, and pickers write what they are set to into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, html, no_update

from musetrace.dashboard import ids
from musetrace.dashboard.address import RUN, parse_query, run_index, write_query
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.page import POLL_LIVE_MS, POLL_MS, navigation, run_conditions
from musetrace.dashboard.views.view import Page, View

_FIELDS = {"type": "field", "name": ALL}


def register(app: Dash, runs: OpenRuns, views: Sequence[View]) -> None:
    """Connect the address bar with the view, the pickers with it, and the runs with their files."""

    # Not before the page knows its theme, or every graph would be drawn twice.
    @app.callback(
        Output(ids.VIEW, "children"),
        Output(ids.NAVIGATION, "children"),
        Output(ids.CONDITIONS, "children"),
        Output(ids.RUN_PICKER, "value"),
        Output(ids.RUN, "data"),
        Output(ids.SHOWN, "data"),
        Output(ids.POLL, "interval"),
        Input(ids.URL, "pathname"),
        Input(ids.URL, "search"),
        Input(ids.THEME, "data"),
        State(ids.SHOWN, "data"),
    )
    def on_address(path: str | None, search: str | None, theme: str | None, shown: Any) -> tuple[Any, ...]:
        if theme is None or is_shown(path, search, shown):
            return (no_update,) * 7
        return show(runs, views, path, search)

    @app.callback(
        Output(ids.URL, "search"),
        Output(ids.SHOWN, "data", allow_duplicate=True),
        Input(_FIELDS, "value"),
        State(_FIELDS, "id"),
        State(ids.SHOWN, "data"),
        prevent_initial_call=True,
    )
    def on_choice(values: list[Any], names: list[dict[str, str]], shown: Any) -> tuple[Any, Any]:
        chosen = {key["name"]: value for key, value in zip(names, values, strict=True)}
        return write_choice(chosen, shown)

    @app.callback(
        Output(ids.URL, "search", allow_duplicate=True),
        Input(ids.RUN_PICKER, "value"),
        State(ids.RUN, "data"),
        prevent_initial_call=True,
    )
    def on_run(value: str, ref: Any) -> Any:
        index = run_index({RUN: str(value)})
        return no_update if ref is None or index == RunRef.of(ref).index else write_query({RUN: str(index)})

    @app.callback(
        Output(ids.RUN, "data", allow_duplicate=True),
        Output(ids.CONDITIONS, "children", allow_duplicate=True),
        Output(ids.POLL, "interval", allow_duplicate=True),
        Input(ids.POLL, "n_intervals"),
        State(ids.RUN, "data"),
        prevent_initial_call=True,
    )
    def on_poll(_: int, ref: Any) -> tuple[Any, Any, Any]:
        return follow(runs, RunRef.of(ref))

    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("musetrace", "title"), Output(ids.TITLE, "data"), Input(ids.SHOWN, "data")
    )


def is_shown(path: str | None, search: str | None, shown: Any) -> bool:
    """Whether the page shows what an address asks for: it was the page that wrote it."""
    return isinstance(shown, Mapping) and (shown.get("path"), shown.get("search")) == (path, search or "")


def show(
    runs: OpenRuns, views: Sequence[View], path: str | None, search: str | None
) -> tuple[Any, Any, Any, str, dict[str, int], dict[str, Any], int]:
    """All of the page for an address: view, navigation, conditions, the run and what is shown."""
    query = parse_query(search)
    ref = runs.ref(run_index(query))
    view = find(views, path)
    try:
        page = view.layout(runs, ref, query)
    except Exception as error:
        page = Page(html.P(sentence_of(error), className="sentence"))
    shown = {
        "path": path,
        "search": search or "",
        "view": view.title,
        "run": runs.names[ref.index],
        "fields": dict(page.fields),
        "defaults": dict(page.defaults),
    }
    run = runs.run(ref)
    return (
        # The key makes a new view of the same kind a new component, whose callbacks are called.
        html.Div(page.body, key=f"{path}{search}"),
        navigation([(one.name, one.title) for one in views], view.name, ref.index),
        run_conditions(run, runs.trouble(ref.index), runs.busy(ref.index)),
        str(ref.index),
        ref.data(),
        shown,
        poll_ms(run),
    )


def find(views: Sequence[View], path: str | None) -> View:
    """The view under a path; the first for one that there is not."""
    name = (path or "/").strip("/")
    return next((view for view in views if view.name == name), views[0])


def write_choice(chosen: Mapping[str, Any], shown: Any) -> tuple[Any, Any]:
    """The query for what the pickers are set to, and what the page then shows; nothing if as before."""
    fields = {name: "" if value is None else str(value) for name, value in chosen.items()}
    if not isinstance(shown, Mapping) or not fields or set(fields) != set(shown["fields"]):
        return no_update, no_update  # a view that just comes or goes
    if fields == shown["fields"]:
        return no_update, no_update
    query = parse_query(shown["search"])
    kept = {RUN: query[RUN]} if RUN in query else {}
    told = {name: value for name, value in fields.items() if value != shown["defaults"].get(name)}
    search = write_query({**kept, **told})
    return search, {**shown, "search": search, "fields": fields}


def follow(runs: OpenRuns, ref: RunRef) -> tuple[Any, Any, int]:
    """What has changed with a run's files: a newer version of it, and its conditions."""
    newest = runs.refresh(ref.index)
    run = runs.run(newest)
    data = no_update if newest == ref else newest.data()
    busy = runs.busy(ref.index)
    interval_ms = POLL_LIVE_MS if busy else poll_ms(run)
    return data, run_conditions(run, runs.trouble(ref.index), busy), interval_ms


def poll_ms(run: Any) -> int:
    """How often to look at a run's files."""
    return POLL_LIVE_MS if getattr(run, "is_being_recorded", False) else POLL_MS
