"""How idle blocks are, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musetrace.wording.numbers import bounded_us, decimals_for, percent
from musetrace.wording.voice import Voice


def after_sentence(row: Mapping[str, Any], voice: Voice) -> str:
    """Behind which op idle time gathers: a row of ``musetrace.analysis.idle_after``."""
    idle = bounded_us(row["idle_mean_ns"], row["idle_mean_uncertainty_ns"], decimals_for(row["idle_mean_ns"]))
    return (
        f"from the end of {voice.shown(row['op'])} to the launch's end: {idle} us of idle per block, "
        f"{percent(row['share'])} of all idle in {percent(row['share_of_time'])} of the time"
    )
