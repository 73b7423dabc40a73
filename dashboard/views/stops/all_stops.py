"""All stops: pictures, note and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis import alignment_error_ns, arrivals, below_tick_spans, ignored_spans, stops, tick_ns
from musetrace.analysis.gaps.one_stop import no_lead_sentence
from musetrace.analysis.priorities.late import leader
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import Column
from musetrace.dashboard.views.span_quality import nothing_stamped, observed_words, quality
from musetrace.figures.blank import sentence_figure
from musetrace.figures.stop_rows import (
    MOST_RANKS,
    keys_of,
    last_figure,
    lead_figure,
    spread_figure,
    wait_figure,
)
from musetrace.figures.wording import aligned_words

GRID = "stops-grid"
_PERCENT, _SENTENCE_PX = 100.0, 96
SEEN_NOWHERE = "No launch in scope was seen on every rank: whoever is not seen may have been last."

Answers = tuple[pa.Table, pa.Table] | str


def small_sentence(sentence: str, theme_name: str) -> go.Figure:
    """A sentence in the place of one of several small pictures."""
    return sentence_figure(sentence, theme_name).update_layout(height=_SENTENCE_PX)


def no_stops_sentence(run: RecordedRun) -> str:
    """Why there is no stop to be shown."""
    if not run.job_table.jobs:
        return "This run's job table is not known, so neither are its stops."
    return "The kernel has no stop between ranks: an op with a wait job of its name and _wait_ranks."


def ask(run: RecordedRun, scope: Scope) -> Answers:
    """``stops`` and ``arrivals`` over a scope, or the sentence that says why there are none."""
    of = scope.arguments
    waits = stops(run, layer_kind=of["layer_kind"], step=of["step"])
    arrived = arrivals(run, layer_kind=of["layer_kind"], step=of["step"])
    return nothing_stamped(run) if waits.num_rows == arrived.num_rows == 0 else (waits, arrived)


def draw_stops(run: RecordedRun, answers: Answers, stop: str, theme_name: str) -> tuple[go.Figure, ...]:
    """Four pictures of all stops: waits, how far ranks arrive apart, who is last, and how far blocks do.

    The rows of the picked one stand out.
    """

    def draw() -> tuple[go.Figure, ...]:
        if isinstance(answers, str):
            return (small_sentence(answers, theme_name),) * 4
        waits, arrived = answers
        keys, error_ns = keys_of(waits, arrived), alignment_error_ns(run) or 0
        why = no_lead_sentence(run) or ("" if any(arrived["lead_n"].to_pylist()) else SEEN_NOWHERE)
        nobody = small_sentence(why, theme_name)
        return (
            wait_figure(waits, keys, stop, theme_name),
            nobody if why else lead_figure(arrived, keys, stop, error_ns, theme_name),
            nobody if why else last_figure(waits, keys, stop, theme_name),
            spread_figure(arrived, keys, stop, theme_name),
        )

    return or_sentence(draw, lambda sentence: (small_sentence(sentence, theme_name),) * 4)


def list_stops(run: RecordedRun, answers: Answers) -> tuple[str, list[dict[str, Any]]]:
    """The note above the pictures, and the rows of the table."""

    def make() -> tuple[str, list[dict[str, Any]]]:
        if isinstance(answers, str):
            return "", []
        return stops_note(run, *answers), stop_table(*answers)

    return or_sentence(make, lambda sentence: (sentence, []))


def stops_note(run: RecordedRun, waits: pa.Table, arrived: pa.Table) -> str:
    """How to read the pictures, how well ranks are placed, and what is left out."""
    parts = ["dot: median; line: p10 to p90; the picked stop has no colour"]
    error_ns = alignment_error_ns(run)
    if len(run.ranks) > 1 and error_ns != 0:
        parts.append(aligned_words(error_ns))
    if tick_ns(run) is None:
        parts.append("the clock's tick is not known: nobody is called last")
    if len(run.ranks) > MOST_RANKS:
        parts.append(f"the first {MOST_RANKS} of {len(run.ranks):,} ranks are drawn")
    return "; ".join(
        [*parts, *observed_words(arrived), *quality(ignored_spans(waits), below_tick_spans(waits))]
    )


_OFF = "\N{PLUS-MINUS SIGN}"
STOP_COLUMNS = (
    Column("stop", "stop", None, 92),
    Column("rank", "rank", 0, 66),
    Column("wait_p50_ns", "waits p50", 0, 98, "of the warps that wait for the ranks"),
    Column("wait_p90_ns", "p90", 0, 74),
    Column(
        "lead_mean_ns", "rank ahead", 0, 108, "what skew between ranks costs this rank: mean before the last"
    ),
    Column("lead_mean_uncertainty_ns", f"{_OFF} ns", 0, 68, "the error of the clocks' alignment is in it"),
    Column("last", "rank last, %", 1, 112, "of launches seen on every rank it was last for certain"),
    Column("tied", "tied, %", 1, 84, "it was one of several that the clock cannot tell apart"),
    Column("spread_p50_ns", "apart p50", 0, 104, "from the rank's first block to its last, of a launch"),
    Column("spread_p90_ns", "p90", 0, 74),
    Column(
        "early_mean_ns", "block early", 0, 110, "what skew between blocks costs a block: mean before the last"
    ),
    Column("early_mean_uncertainty_ns", f"{_OFF} ns", 0, 68),
    Column("block", "last block", None, 128, "the block that was last most often, beyond clock and chance"),
    Column("wait_uncertainty_ns", f"each {_OFF} ns", 0, 90, "of a wait and of a percentile"),
)


def stop_table(waits: pa.Table, arrived: pa.Table) -> list[dict[str, Any]]:
    """A row for each stop and rank that waits or arrives there, in the order of the answers."""
    of_waits = {(row["stop"], row["rank"]): row for row in waits.to_pylist()}
    of_arrivals = {(row["stop"], row["rank"]): row for row in arrived.to_pylist()}
    return [
        _stop_row(key, of_waits.get(key, {}), of_arrivals.get(key, {}))
        for key in dict.fromkeys([*of_waits, *of_arrivals])
    ]


def _stop_row(key: tuple[str, int], wait: Mapping[str, Any], arrival: Mapping[str, Any]) -> dict[str, Any]:
    both = {**arrival, **wait}
    found = {column.field: both.get(column.field) for column in STOP_COLUMNS}
    last, tied = wait.get("last_share"), wait.get("tied_share")
    return {
        **found,
        "stop": key[0],
        "rank": key[1],
        "last": None if last is None else _PERCENT * last,
        "tied": None if tied is None else _PERCENT * tied,
        "block": last_block_words(arrival),
    }


def last_block_words(arrival: Mapping[str, Any]) -> str:
    """The block that leads beyond what the clock and chance leave open."""
    if arrival.get("last_blocks") is None:
        return "not known"
    first = leader(arrival["last_blocks"], arrival["cannot_tell_share"], arrival["n"])
    return "cannot tell" if first is None else f"block {first['block']}, {_PERCENT * first['share']:.0f} %"
