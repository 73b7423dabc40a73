"""The figures of a comparison."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from musetrace.analysis import Comparison
from musetrace.dashboard.views.compare_view.compared_tables import idle_parts, time_rows
from musetrace.figures.blank import sentence_figure
from musetrace.figures.difference_forest import MOST_ROWS, difference_forest_figure
from musetrace.figures.idle_pairs import MOST_CAUSES, idle_pairs_figure
from musetrace.wording.numbers import NOTHING

FOREST_READING = (
    "triangle: told faster or slower; square: the same; ring: cannot tell; grey: what is taken for the same"
)
PAIRS_READING = "outlined: A; filled: B"

Drawn = tuple[go.Figure, str]


def draw_times(found: Comparison, theme_name: str) -> go.Figure:
    """Differences of steps, launches and gaps, in % of A; those of no time in A are in the table alone."""
    rows = [row for row in time_rows(found) if row["share"] is not None]
    names = [f"{row['what']} {row['of']}" for row in rows]
    return _or_blank(
        bool(rows),
        "No time that both runs have.",
        theme_name,
        lambda: difference_forest_figure(rows, names, theme_name, as_share=True),
    )


def draw_ops(found: Comparison, theme_name: str) -> Drawn:
    """Differences of ops in us, told ones first; and how many are not drawn."""
    rows = found.ops.to_pylist()
    one = found.layer_kind is not None
    names = [" ".join(([] if one else [row["launch"]]) + [row["op"], row["kind"]]) for row in rows]
    figure = _or_blank(
        bool(rows),
        "Not both runs have spans.",
        theme_name,
        lambda: difference_forest_figure(rows, names, theme_name),
    )
    more = len(rows) - MOST_ROWS
    return figure, f"{more:,} more in the table" if more > 0 else ""


def draw_idle(found: Comparison, theme_name: str) -> Drawn:
    """Idle time by cause of both runs; and how many causes are not drawn."""
    rows = idle_parts(found)
    one = found.layer_kind is not None
    names = [
        ("" if one else f"{row['launch']}: ")
        + row["in"]
        + ("" if row["for"] == NOTHING else f" for {row['for']}")
        for row in rows
    ]
    figure = _or_blank(
        bool(rows),
        "Not both runs have spans.",
        theme_name,
        lambda: idle_pairs_figure(rows, names, theme_name),
    )
    more = len(rows) - MOST_CAUSES
    return figure, f"{more:,} more in the table" if more > 0 else ""


def _or_blank(some: bool, sentence: str, theme_name: str, draw: Callable[[], go.Figure]) -> go.Figure:
    return draw() if some else sentence_figure(sentence, theme_name)
