"""What to fix first, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from musetrace.analysis.paths.what_if import FASTER_PERCENT
from musetrace.analysis.priorities.findings import IDLE_CAUSE
from musetrace.analysis.priorities.gains import FASTER, GONE
from musetrace.wording.idle_words import cause_words
from musetrace.wording.numbers import bounded_us, decimals_for, percent, us
from musetrace.wording.voice import Voice

Row = Mapping[str, Any]

_WHOSE = {"block": "its own block", "rank": "its rank", "ranks": "the ranks"}
_NO_WAIT = {
    "head": "blocks are launched later than the first of their launch",
    "tail": "blocks have no work left before their launch ends",
    "load_only": "blocks do nothing but load, and no wait is stamped",
    "unlabelled": "no job says what blocks do",
    "short": "gaps between work are too short to be told",
}
NOT_RANKED = "the clock's tick is not known, so nothing is ranked: in the order of the job table"

_MOST_KINDS = 4
_LEAST_SHARE_BEHIND = 0.1  # of all idle time

# How sentences on changes of a step begin, by the way they are made.
GAIN_STARTS = {
    GONE: "a step would be shorter, by replay, if nobody waited in",
    FASTER: f"a step would be shorter, by replay, if an op were {FASTER_PERCENT} % faster",
}


def place_marks(causes: Sequence[Row]) -> list[str]:
    """``1.``, ``2=`` for each of those that are tied for the second place; ``-`` where nothing is ranked."""
    if any(row["per_step_uncertainty_ns"] is None for row in causes):
        return ["-"] * len(causes)
    places = [row["place"] for row in causes]
    return [f"{places.index(place) + 1}{'=' if places.count(place) > 1 else '.'}" for place in places]


def tied_sentence(causes: Sequence[Row], shown: int, voice: Voice) -> str:
    """Which causes behind those ``shown`` the clock cannot tell from the last of these; empty for none."""
    if len(causes) <= shown or any(row["per_step_uncertainty_ns"] is None for row in causes):
        return ""
    others = [row for row in causes[shown:] if row["place"] == causes[shown - 1]["place"]]
    names = ", ".join(name_of(row, voice) for row in others)
    return f"tied with the last of these: {names}" if others else ""


def cause_headline(row: Row, voice: Voice) -> str:
    """One cause of idle time: who waits for whom, and how much of a step that is."""
    return f"{cause_sentence(row, voice)}: {_amount(row, voice)}"


def cause_details(row: Row, voice: Voice) -> str:
    """In which launches, whether what it waits for was ready, who was late, and what a step would gain."""
    details = [_launches(row["launches"], voice), _not_ready(row, voice), *_who(row), _if_gone(row, voice)]
    return "; ".join(filter(None, details))


def is_worth_telling(row: Row) -> bool:
    """Whether enough of all idle time lies behind an op."""
    return (row["share_of_idle"] or 0.0) >= _LEAST_SHARE_BEHIND


def behind_sentence(row: Row, voice: Voice) -> str:
    """Behind which op the idle time of a kind of launch gathers."""
    kind, op = voice.shown(row["launches"][0]["kind"]), voice.shown(row["op"])
    return (
        f"from the end of {op} to the end of {kind} launches: {_amount(row, voice)}; "
        f"{percent(row['share_of_launch_idle'])} of the idle time of these launches lies in "
        f"{percent(row['share_of_launch_time'])} of their time"
    )


def name_of(row: Row, voice: Voice) -> str:
    """A cause in a few words: its wait, or what it is instead."""
    return voice.shown(cause_words(row))


def whole_sentence(rows: Sequence[Row], step_mean_ns: int | None) -> str:
    """How much of a step an average block is idle, over all causes."""
    idle_ns = sum(row["per_step_ns"] for row in rows if row["finding"] == IDLE_CAUSE)
    text = f"an average block is idle for {us(idle_ns, decimals_for(idle_ns))} us of a step"
    if not step_mean_ns:
        return text
    of = f"{us(step_mean_ns, decimals_for(step_mean_ns))} us by the device's clock"
    return f"{text} of {of}, {percent(idle_ns / step_mean_ns)} of it"


def _amount(row: Row, voice: Voice) -> str:
    text = _bounded(row["per_step_ns"], row["per_step_uncertainty_ns"], voice)
    shares = f"{percent(row['share_of_step'])} of it, {percent(row['share_of_idle'])} of all idle time"
    return f"{text} us a step, {shares}"


def cause_sentence(row: Row, voice: Voice) -> str:
    """A cause by what blocks wait for: a row of ``findings``, or one of ``idle``, which has no scope."""
    if row["wait"] is None:
        return _NO_WAIT[row["cause"]]
    op, wait = voice.shown(row["op"]), voice.shown(row["wait"])
    if row["awaits"] is None:
        return f"{op} waits in {wait}"
    whose = f" of {_WHOSE[row['scope']]}" if row.get("scope") else ""
    return f"{op} waits for {voice.shown(row['awaits'])}{whose}"


def _launches(launches: Sequence[Row], voice: Voice) -> str:
    """Which launches the time of a step is made of: ``4 sliding x 3.45 us, 2 global x 3.16 us``."""
    largest = sorted(launches, key=lambda one: -one["per_step"] * one["idle_mean_ns"])[:_MOST_KINDS]
    decimals = decimals_for(max((one["idle_mean_ns"] for one in launches), default=0))
    texts = [
        f"{one['per_step']:,.4g} {voice.shown(one['kind'])} x {_mean(one, decimals)} us"
        for one in launches
        if one in largest
    ]
    more = len(launches) - len(texts)
    return f"in {', '.join(texts)}" + (f", and {more} kinds more" if more else "")


def _mean(launch: Row, decimals: int) -> str:
    return bounded_us(launch["idle_mean_ns"], launch["idle_mean_uncertainty_ns"], decimals)


def _not_ready(row: Row, voice: Voice) -> str:
    share = row["not_ready_share"]
    if share is None:
        return ""
    waits, awaits = voice.shown(row["wait"]), voice.shown(row["awaits"])
    if share == 0:
        return f"{awaits} was done whenever {waits} began"
    return f"in {percent(share)} of the time of {waits} {awaits} was not done"


def _who(row: Row) -> list[str]:
    """The rank and block that were last for certain."""
    texts = []
    if row["late_rank"] is not None:
        texts.append(f"rank {row['late_rank']} was last in {percent(row['late_rank_share'])} of the waits")
    if row["late_block"] is not None:
        place = f"block {row['late_block']} of rank {row['late_block_rank']}"
        texts.append(f"{place} was last in {percent(row['late_block_share'])} of the waits")
    return texts


def _if_gone(row: Row, voice: Voice) -> str:
    """What a step would gain, which is no more than what the critical path has of the wait."""
    saved, off = row["gone_saves_ns"], row["gone_saves_uncertainty_ns"]
    if saved is None:
        return ""
    if off is not None and saved < off:
        return "without this wait a step would be no shorter, as far as the clock tells"
    return f"without this wait a step would be {_bounded(saved, off, voice)} us shorter"


def gains_sentence(rows: Sequence[Row], start: str, voice: Voice) -> str:
    """What some changes would save of a step, with their places."""
    return f"{start}: {', '.join(gain_words(row, voice) for row in rows)}"


def gain_words(row: Row, voice: Voice) -> str:
    """One of them: what is changed, and what that saves."""
    saved = _bounded(row["per_step_ns"], row["per_step_uncertainty_ns"], voice)
    return f"{voice.shown(row['target'])} {saved} us"


def _bounded(time_ns: int, uncertainty_ns: int | None, voice: Voice) -> str:
    """A time in us, and what the clock leaves open in it where that is known and less."""
    decimals = decimals_for(time_ns)
    text = bounded_us(time_ns, uncertainty_ns, decimals)
    if uncertainty_ns is None or time_ns < uncertainty_ns:
        return text
    last_digit_ns = 10 ** (3 - decimals)
    return f"{text} {voice.plus_minus}{us(-(-uncertainty_ns // last_digit_ns) * last_digit_ns, decimals)}"
