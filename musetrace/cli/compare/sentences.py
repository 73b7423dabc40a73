"""What a comparison says in words, the same on the page and in Markdown."""

from __future__ import annotations

import math
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.certainty.bootstrap import LEAST_VALUES, least_values
from musetrace.analysis.comparing.difference import FASTER, SAME, SLOWER, is_told
from musetrace.analysis.comparing.outputs import Outputs
from musetrace.analysis.comparing.saved_time import MOST
from musetrace.cli.compare.limit import Limit
from musetrace.wording.idle_words import cause_words
from musetrace.wording.numbers import NOTHING, percent, us
from musetrace.wording.observed import below_all

_NAMES_SHOWN = 4
_BY_CHANCE = 0.05
_TIMES = 10
_DECIMALS = 2
_PERCENT = 100.0


SKEW_SENTENCE = (
    "stops: how long a rank is through with what a stop waits for before the last rank, medians over "
    "launches, means over ranks; last: who was last for certain most often"
)


def last_words(row: dict[str, Any], run: str) -> str:
    """Who was last at a stop of run ``a`` or ``b``, ``r1 62 %``; or that the clocks cannot tell."""
    share = row[f"last_share_{run}"]
    if share is None:
        return NOTHING
    if row[f"last_rank_{run}"] is None:
        return "cannot tell"
    return f"r{row[f'last_rank_{run}']} {_PERCENT * share:.0f} %"


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
    """How many ops there are of each verdict, and how many 95 % intervals tell by chance; "" for no ops."""
    if not found.ops.num_rows:
        return ""
    verdicts = found.ops["verdict"].to_pylist()
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
    by_chance = math.ceil(_BY_CHANCE * len(verdicts))
    told = any(map(is_told, found.ops.to_pylist()))
    return f"ops: {counts}" + (f"; the steps' chance alone tells up to {by_chance}" if told else "")


def saved_sentence(row: dict[str, Any]) -> str:
    """What became of the time that ops of one kind of launch saved."""
    more = "more than the " if row["share"] * MOST > 1 else ""
    saved = f"{us(row['saved_ns'], _DECIMALS)} us per block and launch"
    text = f"{row['launch']}: {more}{saved} that {_named(row['ops'])} saved {row['verdict']}"
    if row["into"]:
        text += f": {_named([_grown(into) for into in row['into']])}"
    return f"{text}; {_launch_words(row)}" if row["launch_verdict"] else text


def _grown(into: dict[str, Any]) -> str:
    awaited = f" for {into['awaits']}" if into["awaits"] else ""
    return f"{us(into['grew_ns'], _DECIMALS)} us more in {cause_words(into)}{awaited}"


def _launch_words(row: dict[str, Any]) -> str:
    verdict, change = row["launch_verdict"], us(abs(row["launch_difference_ns"]), _DECIMALS)
    if verdict in (FASTER, SLOWER):
        return f"the launch is {change} us {'shorter' if verdict == FASTER else 'longer'}"
    return "the launch is as long as before" if verdict == SAME else "of the launch's length nothing is told"


def observed_sentences(found: Comparison) -> list[str]:
    """For each run of which not everything was recorded, how much at least."""
    return [
        f"{below_all(share)} of {name} at least: the numbers are of that part"
        for name, share in zip("AB", found.observed, strict=True)
        if share is not None and share < 1
    ]


def outputs_sentence(of: Outputs) -> str:
    """Whether the steps of both runs made the same outputs."""
    if not of.compared:
        lacking = [name for name, kept in (("A", of.kept_a), ("B", of.kept_b)) if not kept]
        return f"not kept in {' and '.join(lacking)}" if lacking else "no step in common"
    steps = f"{of.compared} step{'s' * (of.compared != 1)}"
    if of.first_unlike is None:
        return f"equal bit for bit in {of.equal} of {steps}"
    unlike = of.compared - of.equal
    return f"differ in {unlike} of {steps}, first in step {of.first_unlike}"


def only_sentence(row: dict[str, Any]) -> str:
    """An op that one run does not have."""
    name = f"{row['launch']} {row['op']} {row['kind']}"
    return f"only in {row['run'].upper()}: {name}, {us(row['time_ns'], _DECIMALS)} us"


def limit_sentence(found: Comparison, limit: Limit) -> str:
    """What passed the limit."""
    said = []
    if limit.share is not None:
        slower = [" ".join(name) for name in limit.slower(found)]
        certain = f"slower by more than {percent(limit.share)} for certain"
        said.append(f"{certain}: {', '.join(slower)}" if slower else f"nothing is {certain}")
        least = least_values(found.rule.certain)
        if _fewest_steps(found) < least:
            said[-1] += f" (of {found.rule.family} rows none can be, with fewer than {least} steps)"
    if limit.same_outputs:
        said.append(f"outputs must be equal: {outputs_sentence(found.outputs)}")
    return "; ".join(said)


def _fewest_steps(found: Comparison) -> int:
    """Of the run that has fewer."""
    return max((min(row["steps_a"], row["steps_b"]) for row in found.times.to_pylist()), default=0)


def _named(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def share_text(row: dict[str, Any]) -> str:
    """The share of A's time with its sign, ``x12`` where B is twelve times as long.

    ``-`` for a difference below what the clocks leave open.
    """
    if row["share"] is None or abs(row["difference_ns"]) < (row["uncertainty_ns"] or 0):
        return NOTHING
    if row["share"] >= _TIMES and row["a_ns"] > 0:
        return f"x{row['b_ns'] / row['a_ns']:,.0f}"
    return f"{100 * row['share']:+.1f}"
