"""The page around the views: the run's conditions, the theme, the address bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from musetrace.dashboard import ids
from musetrace.dashboard.conditions import Condition, RecordedRun, conditions
from musetrace.dashboard.failure import or_sentence

_MOST_NOTES = 20


def page(run: RecordedRun, views: Sequence[Any]) -> html.Div:
    """The whole page; ``views`` are the layouts of the views, in order."""
    return html.Div(
        [
            dcc.Location(id=ids.URL, refresh=False),
            dcc.Store(id=ids.THEME),
            header(run),
            html.Main(list(views), className="page"),
        ]
    )


def header(run: RecordedRun) -> html.Header:
    """The bar at the top that is always in sight."""
    name = getattr(getattr(run, "path", None), "name", "") or "run"
    entries = or_sentence(lambda: conditions(run), lambda sentence: [Condition("run", sentence, tone="bad")])
    toggle = html.Button(
        [html.Span(className="theme-icon"), html.Span(className="theme-name")],
        id=ids.THEME_TOGGLE,
        className="theme-toggle",
        title="light, dark, or as the system",
    )
    return html.Header(
        [
            html.Div(
                [html.H1("musetrace"), html.Span(name, className="run-name", title=name)], className="brand"
            ),
            html.Dl([condition(entry) for entry in entries], className="conditions"),
            toggle,
            *notes(run.notes),
        ],
        className="top",
    )


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
