"""How much of what an answer is about was recorded: said wherever it is less than all."""

from __future__ import annotations

import pyarrow as pa

from musetrace import analysis
from musetrace.wording.numbers import count

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
