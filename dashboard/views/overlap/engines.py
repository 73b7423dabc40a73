"""Which engines are at work beside each other, and when in a launch: pictures and what is said of them."""

from __future__ import annotations

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis import below_tick_spans, ignored_spans, overlap, tick_ns, utilisation
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import ALL, Scope
from musetrace.dashboard.views.span_quality import nothing_stamped, observed_words, quality
from musetrace.figures.blank import sentence_figure
from musetrace.figures.engine_shares import engine_shares_figure
from musetrace.figures.engine_use import engine_use_figure
from musetrace.figures.wording import exact_ns

_READING = "whole bar: at least these engines are at work; dark line: and no other"
# A bin is at least so many ticks long, or it would show the clock.
_MOST_BINS, _LEAST_TICKS = 240, 8


def draw_shares(run: RecordedRun, scope: Scope, theme_name: str) -> tuple[go.Figure, str]:
    """The engines' shares over a scope, and the note above them."""

    def draw() -> tuple[go.Figure, str]:
        table = overlap(run, **scope.arguments)
        if not any(row["total_ns"] for row in table.to_pylist()):
            return sentence_figure(nothing_stamped(run), theme_name), ""
        parts = [_READING, *observed_words(table), *quality(ignored_spans(table), below_tick_spans(table))]
        return engine_shares_figure(table, theme_name), "; ".join(parts)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def draw_use(run: RecordedRun, scope: Scope, theme_name: str) -> tuple[go.Figure, str]:
    """Each engine over the time of a launch, and the note above it."""

    def draw() -> tuple[go.Figure, str]:
        table = use_over_time(run, scope)
        rows = table.to_pylist()
        if not any(row["block_ns"] for row in rows):
            return sentence_figure(nothing_stamped(run), theme_name), ""
        figure = engine_use_figure(table, theme_name)
        figure.update_layout(uirevision=str(scope))
        return figure, use_note(run, scope, rows[0]["end_ns"])

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def use_over_time(run: RecordedRun, scope: Scope) -> pa.Table:
    """``utilisation`` in as many bins as the clock allows, up to 240."""
    table = utilisation(run, **scope.arguments, bins=_MOST_BINS)
    tick = tick_ns(run)
    if table.num_rows == 0 or tick is None:
        return table
    bins = _MOST_BINS * table["end_ns"][0].as_py() // (_LEAST_TICKS * tick)
    return table if bins >= _MOST_BINS else utilisation(run, **scope.arguments, bins=max(bins, 1))


def use_note(run: RecordedRun, scope: Scope, bin_ns: int) -> str:
    """How the picture is made, and what blurs it."""
    tick = tick_ns(run)
    clock = "the clock's tick is not known" if tick is None else f"the clock's tick is {exact_ns(tick)} ns"
    parts = [f"mean share of blocks in bins of {exact_ns(bin_ns)} ns; {clock}"]
    if scope.kind == ALL:
        parts.append("launches of all kinds are laid over each other: choose one kind")
    return "; ".join(parts)
