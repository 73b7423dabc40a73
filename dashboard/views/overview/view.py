"""The overview's page and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from dash import Dash, Input, Output, State, html, no_update

from musetrace import analysis
from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.spans.selection import LaunchColumns
from musetrace.analysis.timeline.outlier_steps import LEAST_STEPS
from musetrace.dashboard import ids
from musetrace.dashboard.address import to_location
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.overview.finding_list import finding_list, whole_words
from musetrace.dashboard.views.overview.step_summary import absent_words, outlier_words, step_table
from musetrace.dashboard.views.parts import downloads, graph, section
from musetrace.dashboard.views.places import Places
from musetrace.dashboard.views.span_quality import nothing_stamped
from musetrace.dashboard.views.view import Page, View
from musetrace.figures.blank import sentence_figure
from musetrace.figures.launch_strip import launch_strip_figure
from musetrace.figures.step_times import step_times_figure
from musetrace.wording.observed import observed_note

STEPS, STEP_TABLE, STEP_NOTE, STEP_FILES = (
    "overview-steps",
    "overview-step-table",
    "overview-step-note",
    "overview-step-files",
)
STRIP, STRIP_NOTE, STRIP_FILES = "overview-strip", "overview-strip-note", "overview-strip-files"
FINDINGS, FINDING_NOTE, FINDING_FILES = "overview-findings", "overview-finding-note", "overview-finding-files"
_STRIP = "launches of a step in order: median time, median idle share of the blocks; a click shows one"
_SLOWEST = "each step on its slowest rank"
_NO_STEPS = "No step was recorded, so there are no step times."


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """Three sections, which callbacks fill."""
    del runs, ref, query
    body = [
        section(
            "Steps",
            [],
            [html.P(id=STEP_NOTE, className="note"), html.Span(id=STEP_FILES)],
            html.Div([graph(STEPS, 210), html.Div(id=STEP_TABLE)], className="beside"),
        ),
        section(
            "Launches of a step",
            [],
            [html.P(id=STRIP_NOTE, className="note"), html.Span(id=STRIP_FILES)],
            graph(STRIP, 120),
        ),
        section(
            "What to fix first",
            [],
            [html.P(id=FINDING_NOTE, className="note"), html.Span(id=FINDING_FILES)],
            html.Div(id=FINDINGS),
        ),
    ]
    return Page(body)


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the sections with the run and the theme."""

    @app.callback(
        *(Output(STEPS, "figure"), Output(STEP_TABLE, "children")),
        *(Output(STEP_NOTE, "children"), Output(STEP_FILES, "children")),
        Input(ids.RUN, "data"),
        Input(ids.THEME, "data"),
    )
    def on_steps(ref: object, theme_name: str) -> tuple[Any, ...]:
        of = RunRef.of(ref)
        return (*show_steps(runs.run(of), theme_name), downloads("step_lengths", of, Scope()))

    @app.callback(
        Output(STRIP, "figure"),
        Output(STRIP_NOTE, "children"),
        Output(STRIP_FILES, "children"),
        Input(ids.RUN, "data"),
        Input(ids.THEME, "data"),
    )
    def on_strip(ref: object, theme_name: str) -> tuple[go.Figure, str, list]:  # type: ignore[type-arg]
        of = RunRef.of(ref)
        return (*draw_strip(runs.run(of), theme_name), downloads("launch_strip", of, Scope()))

    @app.callback(
        Output(ids.URL, "pathname", allow_duplicate=True),
        Output(ids.URL, "search", allow_duplicate=True),
        Input(STRIP, "clickData"),
        State(ids.RUN, "data"),
        prevent_initial_call=True,
    )
    def on_cell(click: object, ref: object) -> tuple[Any, Any]:
        of = RunRef.of(ref)
        where = launch_clicked(runs.run(of), of, click)
        return to_location(where) if where else (no_update, no_update)

    @app.callback(
        Output(FINDINGS, "children"),
        Output(FINDING_NOTE, "children"),
        Output(FINDING_FILES, "children"),
        Input(ids.RUN, "data"),
    )
    def on_findings(ref: object) -> tuple[Any, ...]:
        of = RunRef.of(ref)
        run = runs.run(of)
        shown = or_sentence(
            lambda: runs.kept(of, "finding list", lambda _: show_findings(run, of)),
            lambda sentence: (html.P(sentence, className="sentence"), ""),
        )
        return (*shown, downloads("findings", of, Scope()))


def show_steps(run: RecordedRun, theme_name: str) -> tuple[go.Figure, Any, str]:
    """Step times one after the other, what a step is made of, and what is odd about them."""

    def show() -> tuple[go.Figure, Any, str]:
        lengths = analysis.step_lengths(run)
        if not lengths.num_rows:
            return sentence_figure(_NO_STEPS, theme_name), [], ""
        parts = analysis.step_parts(run)
        table = step_table(analysis.step_times(run), parts)
        seen = len(set(lengths["step"].to_pylist()))
        few = f"outliers are marked from {LEAST_STEPS} steps on" if seen < LEAST_STEPS else ""
        notes = [_SLOWEST if len(run.ranks) > 1 else "", outlier_words(analysis.outlier_steps(run)), few]
        notes.append(absent_words(parts))
        return step_times_figure(lengths, theme_name), table, "; ".join(filter(None, notes))

    return or_sentence(show, lambda sentence: (sentence_figure(sentence, theme_name), [], ""))


def draw_strip(run: RecordedRun, theme_name: str) -> tuple[go.Figure, str]:
    """The launches of a step, and how to read them."""

    def draw() -> tuple[go.Figure, str]:
        table = analysis.launch_strip(run)
        if not table.num_rows:
            return sentence_figure(nothing_stamped(run), theme_name), ""
        notes = [_STRIP, observed_note(table)]
        return launch_strip_figure(table, theme_name), "; ".join(filter(None, notes))

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def launch_clicked(run: RecordedRun, ref: RunRef, click: object) -> str:
    """Where the timeline shows the launch of a cell that was clicked: one that is as long as its median."""
    rows = analysis.launch_strip(run).to_pylist()
    try:
        row = rows[int(click["points"][0]["x"])]  # type: ignore[index]
    except (TypeError, KeyError, IndexError, ValueError):
        return ""
    clocks = rank_times(run)
    for rank in run.ranks:
        launches = LaunchColumns.of(run.launches(rank))
        mine = launches.stamped & (launches.launch == row["launch"]) & (launches.kind == row["kind"])
        mine &= launches.end_ns - launches.begin_ns == row["launch_p50_ns"]
        for at in np.flatnonzero(mine)[:1]:
            edges = clocks[rank].aligned(np.array([launches.begin_ns[at], launches.end_ns[at]]))
            return Places.of(run, ref).launch(rank, *edges.tolist())
    return ""


def show_findings(run: RecordedRun, ref: RunRef) -> tuple[Any, str]:
    """What to fix first, in words and links, and how idle blocks are on the whole."""
    table = analysis.findings(run)
    if not table.num_rows:
        return html.P(nothing_stamped(run), className="sentence"), ""
    return finding_list(table, Places.of(run, ref)), whole_words(table, analysis.step_times(run))


VIEW = View("overview", "Overview", layout, register)
