"""The lanes of one launch: every span of its blocks, or of the warps of one block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, html

from musetrace.dashboard import ids
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.lane_choices import LaneChoices, LaneState, parse_rows
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.readout import describe, pointer_of, span_at
from musetrace.dashboard.scope import ALL
from musetrace.dashboard.views.parts import as_options, graph, picker, section, span_readout
from musetrace.dashboard.views.span_quality import nothing_stamped, quality
from musetrace.dashboard.views.view import Page, View
from musetrace.figures.blank import sentence_figure
from musetrace.figures.block_lanes import MOST_STRIP_ROWS, block_lanes_figure
from musetrace.figures.lane_spans import LaneChoice, LaneSpans, lane_spans
from musetrace.figures.wording import aligned_words, many

GRAPH, NOTE, READOUT = "lane-graph", "lane-note", "lane-readout"
FIELDS = ("step", "launch", "lanes")
_HINT = "Point at a lane to read its spans to the nanosecond."

Load = Callable[[LaneState], LaneSpans]


def layout(runs: OpenRuns, ref: RunRef, query: Mapping[str, str]) -> Page:
    """The pickers of a launch, and its lanes."""
    choices = runs.kept(ref, LaneChoices, LaneChoices)
    state = choices.settle(query)
    options = choices.options(state)
    labels = {
        "step": "step",
        "launch": "launch" if runs.run(ref).job_table.kernels else "layer",
        "lanes": "lanes",
    }
    pickers = [picker(name, labels[name], options[name], state.fields()[name]) for name in FIELDS]
    below = [html.Div(_HINT, id=READOUT, className="readout"), html.P(id=NOTE, className="note")]
    return Page(section("One launch", pickers, below, graph(GRAPH)), state.fields(), choices.default.fields())


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers, the graph and the readout."""
    fields = [Input(ids.field(name), "value") for name in FIELDS]

    def load_of(ref: RunRef) -> Load:
        return lambda state: runs.kept(ref, state, lambda run: load_lanes(run, state))

    @app.callback(
        Output(ids.field("launch"), "options"),
        Output(ids.field("launch"), "value"),
        Output(ids.field("lanes"), "options"),
        Input(ids.RUN, "data"),
        Input(ids.field("step"), "value"),
        State(ids.field("launch"), "value"),
        State(ids.field("lanes"), "value"),
        prevent_initial_call=True,
    )
    def on_step(ref: object, step: str, launch: str, lanes: str) -> tuple[Any, ...]:
        choices = runs.kept(RunRef.of(ref), LaneChoices, LaneChoices)
        state = choices.settle({"step": step, "launch": launch, "lanes": lanes})
        options = choices.options(state)
        return as_options(options["launch"]), state.launch, as_options(options["lanes"])

    @app.callback(
        Output(GRAPH, "figure"),
        Output(NOTE, "children"),
        Input(ids.RUN, "data"),
        *fields,
        Input(ids.THEME, "data"),
    )
    def on_lanes(ref: object, step: str, launch: str, lanes: str, theme_name: str) -> tuple[go.Figure, str]:
        of = RunRef.of(ref)
        return draw_lanes(runs.run(of), load_of(of), LaneState(step, launch, lanes), theme_name)

    @app.callback(
        Output(READOUT, "children"),
        Input(GRAPH, "hoverData"),
        State(ids.RUN, "data"),
        *(State(ids.field(name), "value") for name in FIELDS),
        prevent_initial_call=True,
    )
    def on_hover(hover: object, ref: object, step: str, launch: str, lanes: str) -> Any:
        return read_lane(load_of(RunRef.of(ref)), hover, LaneState(step, launch, lanes))


def load_lanes(run: RecordedRun, state: LaneState) -> LaneSpans:
    """The spans that the lanes show. Raises AnalysisError when nothing was stamped."""
    return lane_spans(run, int(state.step), int(state.launch), parse_rows(state.lanes) or LaneChoice())


def draw_lanes(run: RecordedRun, load: Load, state: LaneState, theme_name: str) -> tuple[go.Figure, str]:
    """The lanes of a step, launch and rows, and the note above them."""

    def draw() -> tuple[go.Figure, str]:
        if ALL in (state.step, state.launch):
            return sentence_figure(nothing_stamped(run), theme_name), ""
        spans = load(state)
        figure = block_lanes_figure(spans, theme_name)
        figure.update_layout(uirevision=str(state))
        return figure, lanes_note(spans)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def lanes_note(spans: LaneSpans) -> str:
    """How much is drawn, and what is not."""
    parts = [many(len(spans.job), "span")]
    if spans.stride > 1:
        parts.append(f"one block in {spans.stride}")
    parts += quality(spans.flagged, spans.below_tick)
    if spans.apart_ns != 0:
        parts.append(aligned_words(spans.apart_ns))
    if not spans.per_warp:
        strips = len(spans.lanes) <= MOST_STRIP_ROWS
        parts.append("top down: loads, work, sends, waits" if strips else "work over loads over waits")
    return "; ".join(parts)


def read_lane(load: Load, hover: object, state: LaneState) -> Any:
    """What the readout says about the span under the pointer."""

    def read() -> Any:
        pointer = pointer_of(hover)
        if pointer is None or ALL in (state.step, state.launch):
            return _HINT
        spans = load(state)
        index = span_at(spans, *pointer)
        return _HINT if index is None else span_readout(describe(spans, index, pointer[0]))

    return or_sentence(read, lambda sentence: sentence)


VIEW = View("lanes", "Lanes", layout, register)
