"""The report's section on what to fix first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.paths.what_if import FASTER_PERCENT
from musetrace.analysis.priorities.findings import IDLE_AFTER, IDLE_CAUSE, WHAT_IF
from musetrace.analysis.priorities.gains import FASTER, GONE
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Block, Ranking, Sentence
from musetrace.cli.report.finding_sentences import (
    behind_sentence,
    cause_item,
    gains_sentence,
    name_of,
    whole_sentence,
)

MOST_CAUSES = 5

_LEAST_SHARE_BEHIND = 0.1
_GAINS = {
    GONE: "a step would be shorter, by replay, if nobody waited in",
    FASTER: f"a step would be shorter, by replay, if an op were {FASTER_PERCENT} % faster",
}
_NOT_RANKED = "the clock's tick is not known, so nothing is ranked: in the order of the job table"


def finding_blocks(table: pa.Table, steps: pa.Table, screen: Screen) -> list[Block]:
    """How idle blocks are over a step, the largest causes, then behind which ops idle time gathers."""
    rows = table.to_pylist()
    causes = [row for row in rows if row["finding"] == IDLE_CAUSE]
    shown = causes[:MOST_CAUSES]
    unknown = any(row["per_step_uncertainty_ns"] is None for row in causes)
    means = [row["step_mean_ns"] for row in steps.to_pylist() if row["clock"] == "device"]
    behind = [row for row in rows if row["finding"] == IDLE_AFTER and _is_worth_it(row)]
    return [
        Sentence(whole_sentence(rows, means[0] if means else None)),
        *([Sentence(_NOT_RANKED)] if unknown else []),
        Ranking(_marks(causes, unknown)[: len(shown)], [cause_item(row, screen) for row in shown]),
        *_tied(causes, screen, unknown),
        *(Sentence(behind_sentence(row, screen), "  ") for row in behind),
        *_gains(rows, screen),
    ]


def _gains(rows: Sequence[dict[str, Any]], screen: Screen) -> list[Block]:
    """What a step would gain by the best changes, waits and work apart."""
    blocks: list[Block] = []
    for how, start in _GAINS.items():
        mine = [row for row in rows if row["finding"] == WHAT_IF and row["how"] == how]
        if mine:
            blocks.append(Sentence(gains_sentence(mine, start, screen), "  "))
    return blocks


def named_causes(table: pa.Table) -> frozenset[str]:
    """The causes that the section names, by their wait or what they are instead: others show them too."""
    causes = [row for row in table.to_pylist() if row["finding"] == IDLE_CAUSE]
    return frozenset(row["wait"] or row["cause"] for row in causes[:MOST_CAUSES])


def _is_worth_it(row: dict[str, Any]) -> bool:
    return (row["share_of_idle"] or 0.0) >= _LEAST_SHARE_BEHIND


def _marks(causes: Sequence[dict[str, Any]], unknown: bool) -> list[str]:
    """``1.``, ``2=`` for each of those that are tied for the second place; ``-`` where nothing is ranked."""
    if unknown:
        return ["-"] * len(causes)
    places = [row["place"] for row in causes]
    return [f"{places.index(place) + 1}{'=' if places.count(place) > 1 else '.'}" for place in places]


def _tied(causes: Sequence[dict[str, Any]], screen: Screen, unknown: bool) -> list[Block]:
    """Which other causes the clock cannot tell from the last one that is shown."""
    if unknown or len(causes) <= MOST_CAUSES:
        return []
    last = causes[MOST_CAUSES - 1]
    others = [row for row in causes[MOST_CAUSES:] if row["place"] == last["place"]]
    names = ", ".join(name_of(row, screen) for row in others)
    return [Sentence(f"tied with the last of these: {names}", "  ")] if others else []
