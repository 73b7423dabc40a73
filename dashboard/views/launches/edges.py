"""How launches follow each other: pictures, note and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from musetrace.analysis import (
    below_tick_spans,
    ignored_spans,
    launch_times,
    launches,
)
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import Scope, ScopeArguments
from musetrace.dashboard.views.grid import Column, grid
from musetrace.dashboard.views.span_quality import nothing_stamped, observed_words, quality
from musetrace.figures.blank import sentence_figure
from musetrace.figures.launch_edges import all_in_figure, gap_figure, lead_figure, pair_words

_PERCENT = 100.0


def draw_edges(run: RecordedRun, scope: Scope, theme_name: str) -> tuple[Any, ...]:
    """Three pictures of how launches follow each other, the note above them, and the table."""

    def draw() -> tuple[Any, ...]:
        table = launches(run, **scope.arguments)
        times = gaps_of(run, scope.arguments)
        if table.num_rows == 0:
            blank = sentence_figure(nothing_stamped(run), theme_name)
            return blank, blank, blank, "", None
        nothing_next = sentence_figure("No launch is followed by another.", theme_name)
        follows = any(row["next_n"] for row in table.to_pylist())
        note = [
            "dot: median; line: p10 to p90; ahead: the next began before a block of this one was free (PDL)",
            *observed_words(table),
            *quality(ignored_spans(table), below_tick_spans(table)),
        ]
        return (
            all_in_figure(table, theme_name),
            gap_figure(times, theme_name) if follows else nothing_next,
            lead_figure(table, theme_name) if follows else nothing_next,
            "; ".join(note),
            grid("edges-grid", EDGE_COLUMNS, [edge_row(row) for row in table.to_pylist()]),
        )

    def say(sentence: str) -> tuple[Any, ...]:
        figure = sentence_figure(sentence, theme_name)
        return figure, figure, figure, "", None

    return or_sentence(draw, say)


def gaps_of(run: RecordedRun, scope: ScopeArguments) -> pa.Table:
    """``launch_times`` of the kinds in scope."""
    table = launch_times(run, rank=scope["rank"], step=scope["step"])
    if scope["layer_kind"] is None:
        return table
    return table.filter(pa.array([kind == scope["layer_kind"] for kind in table["kind"].to_pylist()]))


_OFF = "\N{PLUS-MINUS SIGN}"
EDGE_COLUMNS = (
    Column("launch", "launch", None, 200),
    Column("n", "n", 0, 70),
    Column("all_in_p50_ns", "all in, ns", 0, 96, "its last block comes, median, from its begin"),
    Column("first_out_p50_ns", "first out", 0, 100, "its first block goes, median, from its begin"),
    Column("next_in_p50_ns", "launched", 0, 104, "the next launch begins, median, from this one's begin"),
    Column("next_work_p50_ns", "works", 0, 96, "the next launch's first compute begins, median"),
    Column("next_all_in_p50_ns", "landed", 0, 96, "the next launch's last block comes, median"),
    Column("lead_p10_ns", "lead p10", 0, 100, "first out minus next launched: positive with PDL"),
    Column("lead_p50_ns", "p50", 0, 84),
    Column("lead_p90_ns", "p90", 0, 84),
    Column("lead_uncertainty_ns", f"{_OFF} ns", 0, 70, "what the clock leaves open in each of these times"),
    Column("lead_mean_ns", "mean", 0, 84),
    Column("lead_mean_uncertainty_ns", f"{_OFF} ns", 0, 70, "what the clock leaves open in the mean lead"),
    Column("overlap", "overlap, %", 1, 108, "share of the pairs that overlap by at least the clock's tick"),
)


def edge_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``launches`` as the table has it."""
    found = {column.field: row.get(column.field) for column in EDGE_COLUMNS}
    some = row["overlap_n"] is not None and row["next_n"]
    return {
        **found,
        "launch": pair_words(row),
        "overlap": _PERCENT * row["overlap_n"] / row["next_n"] if some else None,
    }
