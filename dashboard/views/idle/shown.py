"""What the idle view shows of a scope, as functions of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from dash import html, no_update

from musetrace import analysis
from musetrace.analysis.gaps.idle_after import gathering
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope_answers import ScopeAnswers
from musetrace.dashboard.views.idle import tables
from musetrace.dashboard.views.idle.examples import examples_panel
from musetrace.dashboard.views.parts import downloads
from musetrace.dashboard.views.places import Places
from musetrace.dashboard.views.span_quality import nothing_stamped, quality
from musetrace.dashboard.voice import VOICE
from musetrace.figures.blank import sentence_figure
from musetrace.figures.idle_blocks import MOST_CAUSES, idle_blocks_figure
from musetrace.figures.wording import many
from musetrace.wording.idle_sentences import after_sentence
from musetrace.wording.idle_words import cause_words
from musetrace.wording.observed import observed_note

_NEVER_IDLE = "No block was idle in what was chosen."
_READING = (
    "the stronger the colour, the larger the share of the block's time; "
    "a click on a cell chooses its cause, which is framed"
)


def show_causes(answers: ScopeAnswers, cause: str) -> tuple[Any, Any, str]:
    """How busy, idle and whole time go together, the table of causes, and the note above it."""

    def show() -> tuple[Any, Any, str]:
        table = answers.table("idle")
        if not table.num_rows:
            return [], html.P(nothing_idle(answers), className="sentence"), ""
        rows = tables.ranked_causes(table)
        notes = [observed_note(table), tables.ranked_note(rows)]
        notes += quality(analysis.ignored_spans(table), analysis.below_tick_spans(table))
        chosen = cause or tables.key_of(rows[0])
        sums = tables.sums(table, answers.table("block_busy"))
        return sums, tables.cause_table(rows, chosen), "; ".join(filter(None, notes))

    return or_sentence(show, lambda sentence: ([], html.P(sentence, className="sentence"), ""))


def nothing_idle(answers: ScopeAnswers) -> str:
    """Why there are no causes."""
    return _NEVER_IDLE if answers.table("block_busy").num_rows else nothing_stamped(answers.run)


def causes_of(answers: ScopeAnswers) -> list[tuple[str, str]]:
    """The causes in the order of the table, as the address has them and as they are called."""
    ranked = tables.ranked_causes(answers.table("idle"))
    return list(dict.fromkeys((tables.key_of(row), cause_words(row)) for row in ranked))


def show_examples(answers: ScopeAnswers, cause: str) -> tuple[Any, Any]:
    """The examples of a cause, or of the first; and the links to their table."""

    def show() -> tuple[Any, Any]:
        causes = causes_of(answers)
        if not causes:
            return html.P(nothing_idle(answers), className="note"), []
        chosen = cause or causes[0][0]
        table = answers.table("idle_examples", cause=chosen)
        panel = examples_panel(table, chosen, answers.scope, Places.of(answers.run, answers.ref))
        return panel, downloads("idle_examples", answers.ref, answers.scope, cause=chosen)

    return or_sentence(show, lambda sentence: (html.P(sentence, className="note"), []))


def draw_blocks(answers: ScopeAnswers, cause: str, theme_name: str) -> tuple[go.Figure, str]:
    """Which blocks are idle for what, and how to read it."""

    def draw() -> tuple[go.Figure, str]:
        table = answers.table("idle_blocks")
        if not table.num_rows:
            return sentence_figure(nothing_idle(answers), theme_name), ""
        causes = causes_of(answers)
        strongest = f"strongest: {100 * max(table['share_of_time'].to_pylist()):.1f} %"
        more = len(causes) - MOST_CAUSES
        notes = [_READING, strongest, *([f"{many(more, 'smaller cause')} not drawn"] if more > 0 else [])]
        figure = idle_blocks_figure(table, causes, cause or causes[0][0], theme_name)
        figure.update_layout(uirevision=str(answers.scope))
        return figure, "; ".join(notes)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), ""))


def show_places(answers: ScopeAnswers) -> tuple[Any, Any, str]:
    """The tables by rank and block, the one by op, and the op behind which idle time gathers."""

    def show() -> tuple[Any, Any, str]:
        busy = answers.table("block_busy")
        if not busy.num_rows:
            return html.P(nothing_stamped(answers.run), className="note"), [], ""
        after = answers.table("idle_after")
        row = gathering(after)
        found = [tables.block_table(busy, answers.table("idle_blocks"))]
        if len(set(busy["rank"].to_pylist())) > 1:
            found += [html.H3("Ranks, the most idle first"), tables.rank_table(busy)]
        note = "" if row is None else after_sentence(row, VOICE)
        return found, tables.after_table(after), note

    return or_sentence(show, lambda sentence: (html.P(sentence, className="note"), [], ""))


def cause_of_row(chosen: object, cause: str) -> Any:
    """The cause of the row that was clicked; the first row is chosen without a click."""
    if not (isinstance(chosen, list) and chosen and isinstance(chosen[0], Mapping)):
        return no_update
    name = chosen[0].get("name")
    return no_update if name in (None, cause) or (not cause and chosen[0].get("key") == "0") else name


def cause_of_cell(answers: ScopeAnswers, click: object) -> tuple[Any, Any]:
    """The cause of the cell of the heat map that was clicked, and its row of the table."""
    try:
        chosen = causes_of(answers)[int(click["points"][0]["y"])][0]  # type: ignore[index]
        rows = map(tables.key_of, tables.ranked_causes(answers.table("idle")))
        return chosen, {"ids": [str(list(rows).index(chosen))]}
    except (TypeError, KeyError, IndexError, ValueError):
        return no_update, no_update
