"""The report's section on what to fix first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.priorities.findings import IDLE_AFTER, IDLE_CAUSE, WHAT_IF
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Block, Ranking, Sentence
from musetrace.cli.report.section_names import SECTION_NAMES
from musetrace.wording.finding_sentences import (
    GAIN_STARTS,
    NOT_RANKED,
    behind_sentence,
    cause_details,
    cause_headline,
    gains_sentence,
    is_worth_telling,
    place_marks,
    tied_sentence,
    whole_sentence,
)

MOST_CAUSES = 5

_WHY = {
    "attribution": "what lies between its end and the wait's",
    "loads_ahead": "how far ahead the load begins",
    "stops": "which rank is late",
    "launch_edges": "when their launch's blocks have all come, and when the launch before goes",
    "blocks": "which have less to do",
}


def finding_blocks(table: pa.Table, steps: pa.Table, screen: Screen) -> list[Block]:
    """How idle blocks are over a step, the largest causes, then behind which ops idle time gathers."""
    rows = table.to_pylist()
    causes = [row for row in rows if row["finding"] == IDLE_CAUSE]
    shown = causes[:MOST_CAUSES]
    unknown = any(row["per_step_uncertainty_ns"] is None for row in causes)
    means = [row["step_mean_ns"] for row in steps.to_pylist() if row["clock"] == "device"]
    behind = [row for row in rows if row["finding"] == IDLE_AFTER and is_worth_telling(row)]
    return [
        Sentence(whole_sentence(rows, means[0] if means else None)),
        *([Sentence(NOT_RANKED)] if unknown else []),
        Ranking(place_marks(causes)[: len(shown)], [_item(row, screen) for row in shown]),
        *([Sentence(tied, "  ")] if (tied := tied_sentence(causes, MOST_CAUSES, screen)) else []),
        *(Sentence(behind_sentence(row, screen), "  ") for row in behind),
        *_gains(rows, screen),
    ]


def _item(row: dict[str, Any], screen: Screen) -> list[str]:
    """One cause of idle time: who waits for whom, how much of a step; which launches; where to look next."""
    shown_in = ", ".join(SECTION_NAMES[key] for key in row["shown_in"])
    return [
        cause_headline(row, screen),
        cause_details(row, screen),
        f"next: {_next(row, screen)} (numbers: {shown_in})",
    ]


def _next(row: dict[str, Any], screen: Screen) -> str:
    there, op = SECTION_NAMES[row["look_at"]], row["producer_op"]
    if row["look_at"] != "ops":
        return f"{there}, {_WHY[row['look_at']]}"
    if op:
        return f"{there}, what {screen.shown(op)} does until then"
    return there if row["cause"] == "short" else f"{there}, where it has no job"


def _gains(rows: Sequence[dict[str, Any]], screen: Screen) -> list[Block]:
    """What a step would gain by the best changes, waits and work apart."""
    blocks: list[Block] = []
    for how, start in GAIN_STARTS.items():
        mine = [row for row in rows if row["finding"] == WHAT_IF and row["how"] == how]
        if mine:
            blocks.append(Sentence(gains_sentence(mine, start, screen), "  "))
    return blocks


def named_causes(table: pa.Table) -> frozenset[str]:
    """The causes that the section names, by their wait or what they are instead: others show them too."""
    causes = [row for row in table.to_pylist() if row["finding"] == IDLE_CAUSE]
    return frozenset(row["wait"] or row["cause"] for row in causes[:MOST_CAUSES])
