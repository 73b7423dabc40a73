"""What steps are made of and which are slow, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musetrace.wording.numbers import count, decimals_for, percent, us
from musetrace.wording.voice import Voice

Row = Mapping[str, Any]


def launches_words(row: Row) -> str:
    """How many launches a part of a step has: ``64``, or ``60-64`` where steps differ."""
    low, high = row["launches_p10"], row["launches_p90"]
    return count(low) if low == high else f"{count(low)}-{count(high)}"


def alone_sentence(step: Row, part: Row, voice: Voice) -> str:
    """Of a step that has one part; the rows are those of ``musetrace.analysis.step_parts``."""
    return f"a step is {voice.shown(part['part'])} alone, launches: {launches_words(step)}"


def slow_step_words(row: Row) -> str:
    """A row of ``musetrace.analysis.outlier_steps``."""
    decimals = decimals_for(row["step_ns"])
    slowest = "" if row["rank"] is None else f" on rank {row['rank']}"
    return (
        f"step {row['step']} takes {us(row['step_ns'], decimals)} us{slowest}, "
        f"{us(row['growth_ns'], decimals)} more than the median"
    )


def grown_words(row: Row, voice: Voice) -> str:
    """A row of ``musetrace.analysis.step_growth``."""
    what = {"busy": "busy in", "idle": "idle:", "gap": "gap after"}[row["what"]]
    decimals = decimals_for(row["growth_ns"])
    return f"{what} {voice.shown(row['of'])} +{us(row['growth_ns'], decimals)} us ({percent(row['share'])})"
