"""Causes of idle time in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "head": "launched later",
    "tail": "no work left",
    "load_only": "only a load",
    "unlabelled": "no job says",
    "short": "too short to tell",
}


def cause_words(row: Mapping[str, Any]) -> str:
    """The cause of a row of ``musetrace.analysis.idle``: a wait by its job's name."""
    return str(row["wait"] or _WORDS[row["cause"]])
