"""How much of what a section is about was recorded: said wherever it is less than all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from musetrace import analysis
from musetrace.cli.numbers import count

_SHOWN_STEPS = 1000  # tenths of a per cent


def observed_note(table: pa.Table) -> str:
    """Says the share and what it is made of; empty where everything was recorded."""
    share = analysis.observed(table)
    if share is None or share >= 1:
        return ""
    parts = [
        f"{count(seen)} of {count(expected)} {name}"
        for name, (seen, expected) in analysis.observed_counts(table).items()
        if seen < expected
    ]
    return f"observed {below_all(share)}: {', '.join(parts)}"


def below_all(share: float) -> str:
    """A share of less than 1 in %, rounded down: it never reads as everything."""
    return f"{int(share * _SHOWN_STEPS) * 100 / _SHOWN_STEPS:.1f} %"


def observed_json(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The same of every answer of a report, by kind of launch where an answer is."""
    return {
        name: observed_json(found) if isinstance(found, dict) else _told(found)
        for name, found in answers.items()
    }


def _told(table: pa.Table) -> dict[str, Any]:
    counts = analysis.observed_counts(table)
    return {
        "share": analysis.observed(table),
        **{name: {"seen": seen, "expected": expected} for name, (seen, expected) in counts.items()},
    }
