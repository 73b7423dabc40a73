"""How much of what each answer is about was recorded, as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from musetrace import analysis


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
