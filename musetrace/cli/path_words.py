"""Critical paths and what-ifs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musetrace.wording.numbers import count, whole_ns

_PARTS = {
    "head": "launched later",
    "before": "launch before runs",
    "launch_way": "behind launch before",
    "tail": "no job says",
    "between": "between launches",
}
_EDGES = {"way": "wait", "piece": "a piece", "last_piece": "last piece", "hand_off": "hand-off"}


def part_words(row: Mapping[str, Any]) -> str:
    """What a part of ``musetrace.analysis.critical_path`` is of: its op, or words where it has none."""
    return str(row["op"] or _PARTS[row["kind"]])


def edge_words(row: Mapping[str, Any]) -> str:
    """How the path comes from one warp to another in a row of its edges."""
    return _EDGES[row["how"]]


def replayed_words(row: Mapping[str, Any]) -> str:
    """On what a row of ``musetrace.analysis.what_if`` stands."""
    exact = "are exact" if not row["residual_ns"] else f"are off by up to {whole_ns(row['residual_ns'])} ns"
    return (
        f"what a launch would be shorter, replayed on {launches_words(row['n'], row['of_n'])}: "
        f"unchanged replays {exact}; gaps, ways and all other jobs keep their time"
    )


def launches_words(n: int, of_n: int) -> str:
    """How many launches of how many."""
    launches = "launch" if of_n == 1 else "launches"
    return f"{count(n)} {launches}" if n == of_n else f"{count(n)} of {count(of_n)} {launches}"
