"""The op view: when each op of a layer runs over many launches, and every span of one launch below it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, ctx, html, no_update

from musetrace.analysis import below_tick_spans, ignored_spans, op_timeline
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.dashboard import ids
from musetrace.dashboard.choices import Choices
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence, sentence_of
from musetrace.dashboard.op_state import ALL, FIELDS, number, parse_rows
from musetrace.dashboard.readout import describe, pointer_of, span_at
from musetrace.dashboard.views.parts import as_options, graph, legend, picker, span_readout
from musetrace.figures.blank import sentence_figure
from musetrace.figures.block_lanes import MOST_STRIP_ROWS, block_lanes_figure
from musetrace.figures.lane_spans import LaneChoice, LaneSpans, lane_spans
from musetrace.figures.op_timeline import op_timeline_figure
from musetrace.figures.wording import aligned_words, many

OVER, LANES = FIELDS[:3], FIELDS[3:]
PICKERS = {
    "kind": ids.KIND,
    "rank": ids.RANK,
    "step": ids.STEP,
    "lane_step": ids.LANE_STEP,
    "launch": ids.LANE_LAUNCH,
    "rows": ids.LANE_ROWS,
}
_LABELS = {
    "kind": "layer kind",
    "rank": "ranks",
    "step": "steps",
    "lane_step": "step",
    "launch": "layer",
    "rows": "lanes",
}
_LABELS_OF_KERNELS = {"kind": "kernel", "launch": "launch"}
_KEPT_LANES = 8
_HINT = "Point at a lane to read its spans to the nanosecond."
_READING = "bar: median begin to median end; whiskers: p10 to p90; in brackets: blocks, where not all run it"

Drawn = tuple[go.Figure, str]
LoadLanes = Callable[[str, str, str], LaneSpans]


def layout(run: RecordedRun) -> html.Div:
    """Two sections: the op timeline, and the lanes of one launch."""
    try:
        choices = Choices(run)
    except Exception as error:
        return html.Div(html.P(sentence_of(error), className="sentence"))
    options = choices.options(choices.default)

    labels = _LABELS | (_LABELS_OF_KERNELS if run.job_table.kernels else {})

    def pickers(names: tuple[str, ...]) -> html.Div:
        found = [
            picker(PICKERS[name], labels[name], options[name], getattr(choices.default, name))
            for name in names
        ]
        return html.Div(found, className="pickers")

    note, lane_note = html.P(id=ids.OP_NOTE, className="note"), html.P(id=ids.LANE_NOTE, className="note")
    readout = html.Div(_HINT, id=ids.LANE_READOUT, className="readout")
    return html.Div(
        [
            _section("Op timeline", pickers(OVER), [legend(), note], ids.OP_GRAPH),
            _section("One launch", pickers(LANES), [readout, lane_note], ids.LANE_GRAPH),
        ]
    )


def _section(title: str, pickers: html.Div, below: list[Any], graph_id: str) -> html.Section:
    head = html.Div([html.H2(title), pickers], className="section-head")
    return html.Section([head, html.Div(below, className="section-sub"), graph(graph_id)], className="view")


def register(app: Dash, run: RecordedRun) -> None:
    """Connect the pickers, the address bar and the two graphs."""
    try:
        choices = Choices(run)
    except Exception:
        return  # the layout says why
    load = lru_cache(maxsize=_KEPT_LANES)(partial(load_lanes, run))
    over, lanes = ([Input(PICKERS[name], "value") for name in names] for names in (OVER, LANES))
    look = Input(ids.THEME, "data")

    @app.callback(
        Output(ids.URL, "search"),
        *(Output(PICKERS[name], "value") for name in FIELDS),
        Output(ids.LANE_LAUNCH, "options"),
        Output(ids.LANE_ROWS, "options"),
        Input(ids.URL, "search"),
        *over,
        *lanes,
    )
    def on_choice(search: str | None, *values: str) -> tuple[Any, ...]:
        return synchronise(choices, ctx.triggered_id in (None, ids.URL), search, values)

    # The first call comes when the page knows its theme; then the pickers hold what the address bar says.
    @app.callback(
        Output(ids.OP_GRAPH, "figure"),
        Output(ids.OP_NOTE, "children"),
        *over,
        look,
        prevent_initial_call=True,
    )
    def on_over(kind: str, rank: str, step: str, theme_name: str) -> Drawn:
        return draw_ops(run, kind, rank, step, theme_name)

    @app.callback(
        Output(ids.LANE_GRAPH, "figure"),
        Output(ids.LANE_NOTE, "children"),
        *lanes,
        look,
        prevent_initial_call=True,
    )
    def on_lanes(step: str, launch: str, rows: str, theme_name: str) -> Drawn:
        return draw_lanes(run, load, (step, launch, rows), theme_name)

    @app.callback(
        Output(ids.LANE_READOUT, "children"),
        Input(ids.LANE_GRAPH, "hoverData"),
        *(State(PICKERS[name], "value") for name in LANES),
        prevent_initial_call=True,
    )
    def on_hover(hover: object, step: str, launch: str, rows: str) -> Any:
        return read_lane(load, hover, (step, launch, rows))


def synchronise(
    choices: Choices, from_address: bool, search: str | None, values: tuple[str, ...]
) -> tuple[Any, ...]:
    """Make the address bar follow the pickers, or they it; both then hold only what the run has.

    Returns the query, a value for each picker, and the entries of the two pickers whose entries vary.
    """
    try:
        wanted = {name: str(value) for name, value in zip(FIELDS, values, strict=True)}
        state = choices.parse(search) if from_address else choices.settle(wanted)
        options = choices.options(state)
    except Exception as error:
        sentence_of(error)
        return (no_update,) * (len(FIELDS) + 3)
    query = no_update if from_address else choices.query(state)
    settled = [getattr(state, name) for name in FIELDS]
    return query, *settled, as_options(options["launch"]), as_options(options["rows"])


def draw_ops(run: RecordedRun, kind: str, rank: str, step: str, theme_name: str) -> Drawn:
    """The op timeline over what was chosen, and the note above it."""

    def draw() -> Drawn:
        layer_kind = None if kind == ALL else kind
        table = op_timeline(run, layer_kind=layer_kind, rank=number(rank), step=number(step))
        if table.num_rows == 0:
            return sentence_figure(nothing_stamped(run), theme_name), ""
        figure = op_timeline_figure(table, list(stop_jobs(run.job_table)), theme_name)
        figure.update_layout(uirevision=f"{kind} {rank} {step}")
        return figure, "; ".join([_READING, *_quality(ignored_spans(table), below_tick_spans(table))])

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def nothing_stamped(run: RecordedRun) -> str:
    """Why there is nothing to draw."""
    if run.manifest.get("stamps") == "off":
        return "This run was recorded with stamps off: it has launches and step times, but no timeline."
    return "Nothing was stamped in what was chosen, so there is no timeline to draw."


def load_lanes(run: RecordedRun, step: str, launch: str, rows: str) -> LaneSpans:
    """The spans that the lanes show. Raises AnalysisError when nothing was stamped."""
    return lane_spans(run, int(step), int(launch), parse_rows(rows) or LaneChoice())


def draw_lanes(run: RecordedRun, load: LoadLanes, chosen: tuple[str, str, str], theme_name: str) -> Drawn:
    """The lanes of a step, launch and rows, and the note above them."""

    def draw() -> Drawn:
        if ALL in chosen[:2]:
            return sentence_figure(nothing_stamped(run), theme_name), ""
        spans = load(*chosen)
        figure = block_lanes_figure(spans, theme_name)
        figure.update_layout(uirevision=" ".join(chosen))
        return figure, lanes_note(spans)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def _quality(flagged: int, below_tick: int | None) -> list[str]:
    """What is to be known of the spans that are drawn."""
    parts = [f"{many(flagged, 'flagged span')} left out"] if flagged else []
    return parts + ([f"{below_tick:,} shorter than the clock's tick"] if below_tick else [])


def lanes_note(spans: LaneSpans) -> str:
    """How much is drawn, and what is not."""
    parts = [many(len(spans.job), "span")]
    if spans.stride > 1:
        parts.append(f"one block in {spans.stride}")
    parts += _quality(spans.flagged, spans.below_tick)
    if spans.apart_ns != 0:
        parts.append(aligned_words(spans.apart_ns))
    if not spans.per_warp:
        strips = len(spans.lanes) <= MOST_STRIP_ROWS
        parts.append("top down: loads, work, sends, waits" if strips else "work over loads over waits")
    return "; ".join(parts)


def read_lane(load: LoadLanes, hover: object, chosen: tuple[str, str, str]) -> Any:
    """What the readout says about the span under the pointer."""

    def read() -> Any:
        pointer = pointer_of(hover)
        if pointer is None or ALL in chosen[:2]:
            return _HINT
        spans = load(*chosen)
        index = span_at(spans, *pointer)
        return _HINT if index is None else span_readout(describe(spans, index, pointer[0]))

    return or_sentence(read, lambda sentence: sentence)
