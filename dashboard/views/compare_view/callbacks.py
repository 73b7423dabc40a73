"""What happens when runs or a kind of launch are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, Input, Output, html

from musetrace.cli.compare.sentences import SKEW_SENTENCE, count_sentence
from musetrace.dashboard import ids
from musetrace.dashboard.api.tables import COMPARISONS
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.pair import Pair, compared, usual_kind
from musetrace.dashboard.scope import ALL, Scope
from musetrace.dashboard.views.both_timelines import draw_both
from musetrace.dashboard.views.compare_view import compare_ids as at
from musetrace.dashboard.views.compare_view.compare_figures import (
    FOREST_READING,
    PAIRS_READING,
    draw_idle,
    draw_ops,
    draw_times,
)
from musetrace.dashboard.views.compare_view.compare_words import (
    head_parts,
    only_parts,
    rule_parts,
    saved_parts,
    stamp_parts,
)
from musetrace.dashboard.views.compare_view.compared_tables import (
    SKEW_COLUMNS,
    TIME_COLUMNS,
    block_columns,
    op_columns,
    parts_of_blocks,
    skew_rows,
    time_rows,
    with_numbers,
)
from musetrace.dashboard.views.grid import grid
from musetrace.dashboard.views.parts import table_links
from musetrace.figures.blank import sentence_figure

NO_STOPS = "The runs have no stop in common at which ranks wait for each other."

_PAIR = tuple(Input(ids.field(name), "value") for name in ("a", "b", "kind"))
# What says something, beside the figures.
_TEXTS = (at.SAYS, at.STAMPS, at.RULE, at.OP_NOTE, at.OP_ONLY, at.SAVED, at.FILES)
_FIGURES = (at.TIMES, at.OPS, at.IDLE)
# Where there is nothing to show. A graph that is not displayed at all would be drawn without a size.
UNSEEN = {at.CONTENT: "unseen", at.OF_SPANS: "unseen"}


def register(app: Dash, runs: OpenRuns) -> None:
    """Connect the pickers with all that is shown."""

    @app.callback(
        *(Output(name, "children") for name in _TEXTS),
        *(Output(name, "figure") for name in _FIGURES),
        Output(at.CONTENT, "className"),
        Output(at.OF_SPANS, "className"),
        Input(ids.RUN, "data"),
        *_PAIR,
        Input(ids.THEME, "data"),
    )
    def on_pair(_: object, a: str, b: str, kind: str, theme_name: str) -> tuple[Any, ...]:
        shown = compare_parts(runs, Pair.of(runs, a, b), kind, theme_name)
        blank = dict.fromkeys(_FIGURES, sentence_figure("", theme_name))
        return tuple({**blank, **UNSEEN, **shown}.get(name) for name in (*_TEXTS, *_FIGURES, *UNSEEN))

    @app.callback(
        Output(at.NUMBERS, "children"),
        Input(ids.RUN, "data"),
        *_PAIR,
        Input(ids.field(at.TABLE), "value"),
    )
    def on_numbers(_: object, a: str, b: str, kind: str, table: str) -> Any:
        return numbers(runs, Pair.of(runs, a, b), kind, table)

    @app.callback(
        Output(at.LINES, "figure"),
        Output(at.LINES_NOTE, "children"),
        Input(ids.RUN, "data"),
        *_PAIR,
        Input(ids.THEME, "data"),
    )
    def on_lines(_: object, a: str, b: str, kind: str, theme_name: str) -> tuple[Any, str]:
        pair = Pair.of(runs, a, b)
        drawn = or_sentence(lambda: usual_kind(runs, pair), lambda _: ALL) if kind == ALL else kind
        figure, notes = draw_both(runs, pair.refs(runs), Scope(drawn), theme_name)
        words = "all kinds of launch" if drawn == ALL else f"launches of kind {drawn}"
        return figure, "; ".join([f"{words}, of all steps and ranks of each run", *notes])


def compare_parts(runs: OpenRuns, pair: Pair, kind: str, theme_name: str) -> Mapping[str, Any]:
    """All that a comparison shows, by id; only a sentence where the runs cannot be compared."""

    def make() -> Mapping[str, Any]:
        found = compared(runs, pair, kind)
        run_a, run_b = (runs.run(ref) for ref in pair.refs(runs))
        ops, more_ops = draw_ops(found, theme_name)
        idle, more_idle = draw_idle(found, theme_name)
        idle_note = "; ".join(filter(None, [PAIRS_READING, more_idle]))
        return {
            at.SAYS: head_parts(found),
            at.STAMPS: stamp_parts(run_a, run_b, found),
            at.RULE: rule_parts(found),
            at.OP_NOTE: "; ".join(filter(None, [count_sentence(found), more_ops, FOREST_READING])),
            at.OP_ONLY: only_parts(found),
            at.SAVED: [*saved_parts(found), html.P(idle_note, className="note")],
            at.FILES: file_links(pair, kind),
            at.TIMES: draw_times(found, theme_name),
            at.OPS: ops,
            at.IDLE: idle,
            at.CONTENT: "",
            at.OF_SPANS: "" if found.ops.num_rows else "unseen",
        }

    def refused(sentence: str) -> Mapping[str, Any]:
        return {at.SAYS: html.P(sentence, className="sentence"), at.FILES: []}

    return or_sentence(make, refused)


def numbers(runs: OpenRuns, pair: Pair, kind: str, table: str) -> Any:
    """The table that is picked, that of times where there is none of spans. All at once are a heavy page."""

    def make() -> Any:
        found = compared(runs, pair, kind)
        if table == at.OF_OPS and found.ops.num_rows:
            rows = with_numbers(found.ops.to_pylist(), "launch", "op", "kind")
            return grid("compare-op-grid", op_columns(found), rows)
        if table == at.OF_BLOCKS and found.ops.num_rows:
            rows = with_numbers(parts_of_blocks(found), "launch", "in", "for")
            return grid("compare-block-grid", block_columns(found), rows)
        if table == at.OF_STOPS:
            return _stops(skew_rows(found))
        return grid("compare-time-grid", TIME_COLUMNS, with_numbers(time_rows(found), "what", "of"))

    return or_sentence(make, lambda _: None)  # the head says why


def _stops(rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return [html.P(NO_STOPS, className="note")]
    return [html.P(SKEW_SENTENCE, className="note"), grid("compare-skew-grid", SKEW_COLUMNS, rows)]


def file_links(pair: Pair, kind: str) -> list[Any]:
    """Every table of the comparison."""
    fields = {"a": str(pair.a), "b": str(pair.b), "kind": kind}
    return [
        html.Span([f"{name} ", *table_links(question, fields)], className="files")
        for question, name in COMPARISONS.items()
    ]
