"""How long steps take and what they are made of, in a table and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from dash import html

from musetrace.analysis.timeline.steps import PARTS, STEP
from musetrace.dashboard.voice import VOICE
from musetrace.wording.numbers import NOTHING, bounded_us, count, decimals_for, percent, whole_ns
from musetrace.wording.step_sentences import launches_words, slow_step_words

_MOST_OUTLIERS = 3


def step_table(times: pa.Table, parts: pa.Table) -> Any:
    """Medians of the step by each clock, then of its parts."""
    titles = ("", "launches", "p10", "median, us", "p90", "\N{PLUS-MINUS SIGN} ns", "of step")
    steps = [(f"step, {row['clock']}", row, "step", None) for row in times.to_pylist()]
    made_of = [(row["part"], row, "part", row) for row in parts.to_pylist() if row["part"] != STEP]
    launches = {row["part"]: launches_words(row) for row in parts.to_pylist()}
    body = [
        html.Tr(
            [
                html.Td(VOICE.shown(name)),
                html.Td(_launches(name, of_part, launches), className="number"),
                *(html.Td(text, className="number") for text in _times(row, prefix)),
                html.Td(percent(of_part["share"]) if of_part else NOTHING, className="number"),
            ]
        )
        for name, row, prefix, of_part in [*steps, *made_of]
    ]
    head = html.Thead(html.Tr([html.Th(title, className="number" if title else "") for title in titles]))
    return html.Div(html.Table([head, html.Tbody(body)]), className="table-frame")


def _launches(name: str, part: Any, launches: dict[str, str]) -> str:
    return launches.get(name if part else STEP if name == "step, device" else "", NOTHING)


def _times(row: dict[str, Any], prefix: str) -> list[str]:
    off = row[f"{prefix}_uncertainty_ns"]
    decimals = decimals_for(row[f"{prefix}_p90_ns"])
    values = [bounded_us(row[f"{prefix}_p{part}_ns"], off, decimals) for part in (10, 50, 90)]
    return [*values, whole_ns(off)]


def absent_words(parts: pa.Table) -> str:
    """Which parts of a decode step the run does not have; nothing for kernels of other people."""
    found = [row["part"] for row in parts.to_pylist()]
    absent = [part for part in PARTS if part not in found]
    if not found or len(absent) == len(PARTS):
        return ""
    return f"no {' and no '.join(absent)} in this run" if absent else ""


def outlier_words(outliers: pa.Table) -> str:
    """The slowest steps that are unlike the others."""
    rows: Sequence[dict[str, Any]] = outliers.to_pylist()
    words = [slow_step_words(row) for row in rows[:_MOST_OUTLIERS]]
    if len(rows) > _MOST_OUTLIERS:
        words.append(f"and {count(len(rows) - _MOST_OUTLIERS)} more slow steps")
    return "; ".join(words)
