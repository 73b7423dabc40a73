"""The page around the views: the run's conditions, the navigation, the theme, the address bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.address import address
from musetrace.dashboard.conditions import Condition, RecordedRun, conditions
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns

_MOST_NOTES = 20
POLL_MS, POLL_LIVE_MS = 10_000, 2_000


def page(runs: OpenRuns) -> html.Div:
    """The whole page, empty: the router fills it by the address."""
    return html.Div(
        [
            dcc.Location(id=ids.URL, refresh=False),
            dcc.Store(id=ids.THEME),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.RUN),
            dcc.Store(id=ids.TITLE),
            dcc.Interval(id=ids.POLL, interval=POLL_MS),
            html.Header(
                [
                    html.Div([html.H1("musetrace"), run_picker(runs)], className="brand"),
                    html.Div(id=ids.CONDITIONS, className="conditions-and-notes"),
                    theme_toggle(),
                ],
                className="top",
            ),
            html.Nav(id=ids.NAVIGATION, className="navigation"),
            html.Main(id=ids.VIEW, className="page"),
        ]
    )


def run_picker(runs: OpenRuns) -> Any:
    """The name of the run; a choice where there are several."""
    if len(runs.names) == 1:
        name = runs.names[0]
        # The hidden picker keeps the callbacks alike.
        hidden = dcc.Input(id=ids.RUN_PICKER, type="hidden", value="0")
        return html.Span([name, hidden], className="run-name", title=name)
    return dcc.Dropdown(
        id=ids.RUN_PICKER,
        options=[{"value": str(index), "label": name} for index, name in enumerate(runs.names)],
        value="0",
        clearable=False,
        className="run-picker",
    )


def theme_toggle() -> html.Button:
    """The button that chooses light, dark, or the system's."""
    return html.Button(
        [html.Span(className="theme-icon"), html.Span(className="theme-name")],
        id=ids.THEME_TOGGLE,
        className="plain-button theme-toggle",
        title="light, dark, or as the system (t)",
    )


def navigation(views: Sequence[tuple[str, str]], shown: str, run: int) -> list[Any]:
    """A link to each view, by (name, title); the one that is shown is marked."""
    return [
        dcc.Link(
            title, href=address(name, run), className="here" if name == shown else "", title=f"key {key}"
        )
        for key, (name, title) in enumerate(views, start=1)
    ]


def run_conditions(run: RecordedRun, trouble: str = "", busy: str = "") -> list[Any]:
    """The conditions of a run, what is wrong with it, and what its views wait for."""
    entries = or_sentence(lambda: conditions(run), lambda sentence: [Condition("run", sentence, tone="bad")])
    warning = [html.P(trouble, className="trouble", role="alert")] if trouble else []
    warning += [html.P(busy, className="note", role="status")] if busy else []
    return [
        html.Dl([condition(entry) for entry in entries], className="conditions"),
        *warning,
        *notes(run.notes),
    ]


def condition(entry: Condition) -> html.Div:
    """One entry of the header."""
    return html.Div(
        [html.Dt(entry.label), html.Dd(entry.value, className=f"tone-{entry.tone}")],
        className=f"condition condition-{entry.label}",
        title=entry.detail or entry.value,
    )


def notes(sentences: Sequence[str]) -> list[html.Details]:
    """What is wrong with the run, folded; nothing when nothing is."""
    if not sentences:
        return []
    shown = list(sentences[:_MOST_NOTES])
    if len(sentences) > _MOST_NOTES:
        shown.append(f"and {len(sentences) - _MOST_NOTES} more: musetrace info prints them all")
    summary = f"{len(sentences)} {'note' if len(sentences) == 1 else 'notes'} about this run"
    return [
        html.Details([html.Summary(summary), html.Ul([html.Li(text) for text in shown])], className="notes")
    ]
