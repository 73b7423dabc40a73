"""What a comparison says in words, the same on the page and in Markdown."""

from __future__ import annotations

import math
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.bootstrap import LEAST_VALUES
from musetrace.analysis.difference import is_told
from musetrace.cli.compare_limit import Limit
from musetrace.cli.numbers import NOTHING, percent, us

_NAMES_SHOWN = 4
_BY_CHANCE = 0.05
_DECIMALS = 2


def rule_sentence(found: Comparison) -> str:
    """How verdicts are made, and what they do not know."""
    band = percent(found.rule.band)
    return (
        "faster or slower: the 95 % interval over steps has no zero in it, and the difference is not below "
        f"what the clocks leave open; same: the interval is within {band} of A's time, or within that; "
        f"else, or of fewer than {LEAST_VALUES} steps, cannot tell. No interval holds what differs between "
        "two recordings of one build: compare two such recordings first"
    )


def count_sentence(found: Comparison) -> str:
    """How many ops there are of each verdict, and how many 95 % intervals tell by chance."""
    verdicts = found.ops["verdict"].to_pylist()
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
    by_chance = math.ceil(_BY_CHANCE * len(verdicts))
    told = any(map(is_told, found.ops.to_pylist()))
    return f"ops: {counts}" + (f"; the steps' chance alone tells up to {by_chance}" if told else "")


def saved_sentence(row: dict[str, Any]) -> str:
    """What became of the time that ops of one kind of launch saved."""
    saved, grew = (us(row[name], _DECIMALS) for name in ("saved_ns", "waits_grew_ns"))
    text = (
        f"{row['launch']}: {saved} us per block and launch that {_named(row['ops'])} saved {row['verdict']}"
    )
    return f"{text}: {grew} us more in the waits of {_named(row['waits'])}" if row["waits"] else text


def limit_sentence(found: Comparison, limit: Limit) -> str:
    """What passed the limit."""
    passed = [" ".join(name) for name in limit.passed(found)]
    if not passed:
        return f"nothing is slower by more than {percent(limit.share)} for certain"
    return f"slower by more than {percent(limit.share)} for certain: {', '.join(passed)}"


def _named(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def share_text(row: dict[str, Any]) -> str:
    """The share of A's time with its sign; ``-`` for a difference below what the clocks leave open."""
    if row["share"] is None or abs(row["difference_ns"]) < (row["uncertainty_ns"] or 0):
        return NOTHING
    return f"{100 * row['share']:+.1f}"
