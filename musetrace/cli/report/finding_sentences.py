"""What to fix first, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from musetrace.analysis.priorities.findings import IDLE_CAUSE
from musetrace.cli.idle_words import cause_words
from musetrace.cli.numbers import bounded_us, decimals_for, percent, us
from musetrace.cli.output import Screen
from musetrace.cli.report.section_names import SECTION_NAMES

Row = Mapping[str, Any]

_WHOSE = {"block": "its own block", "rank": "its rank", "ranks": "the ranks"}
_NO_WAIT = {
    "head": "blocks are launched later than the first of their launch",
    "tail": "blocks have no work left before their launch ends",
    "load_only": "blocks do nothing but load, and no wait is stamped",
    "unlabelled": "no job says what blocks do",
    "short": "gaps between work are too short to be told",
}
_WHY = {
    "attribution": "what lies between its end and the wait's",
    "loads_ahead": "how far ahead the load begins",
    "stops": "which rank is late",
    "launch_edges": "when their launch's blocks have all come, and when the launch before goes",
    "blocks": "which have less to do",
}
_MOST_KINDS = 4


def cause_item(row: Row, screen: Screen) -> list[str]:
    """One cause of idle time: who waits for whom, how much of a step; which launches; where to look next."""
    details = [_launches(row["launches"], screen), _not_ready(row, screen), *_who(row), _if_gone(row, screen)]
    shown_in = ", ".join(SECTION_NAMES[key] for key in row["shown_in"])
    return [
        f"{_what(row, screen)}: {_amount(row, screen)}",
        "; ".join(filter(None, details)),
        f"next: {_next(row, screen)} (numbers: {shown_in})",
    ]


def behind_sentence(row: Row, screen: Screen) -> str:
    """Behind which op the idle time of a kind of launch gathers."""
    kind, op = screen.shown(row["launches"][0]["kind"]), screen.shown(row["op"])
    return (
        f"from the end of {op} to the end of {kind} launches: {_amount(row, screen)}; "
        f"{percent(row['share_of_launch_idle'])} of the idle time of these launches lies in "
        f"{percent(row['share_of_launch_time'])} of their time"
    )


def name_of(row: Row, screen: Screen) -> str:
    """A cause in a few words: its wait, or what it is instead."""
    return screen.shown(cause_words(row))


def whole_sentence(rows: Sequence[Row], step_mean_ns: int | None) -> str:
    """How much of a step an average block is idle, over all causes."""
    idle_ns = sum(row["per_step_ns"] for row in rows if row["finding"] == IDLE_CAUSE)
    text = f"an average block is idle for {us(idle_ns, decimals_for(idle_ns))} us of a step"
    if not step_mean_ns:
        return text
    of = f"{us(step_mean_ns, decimals_for(step_mean_ns))} us by the device's clock"
    return f"{text} of {of}, {percent(idle_ns / step_mean_ns)} of it"


def _amount(row: Row, screen: Screen) -> str:
    text = _bounded(row["per_step_ns"], row["per_step_uncertainty_ns"], screen)
    shares = f"{percent(row['share_of_step'])} of it, {percent(row['share_of_idle'])} of all idle time"
    return f"{text} us a step, {shares}"


def _what(row: Row, screen: Screen) -> str:
    if row["wait"] is None:
        return _NO_WAIT[row["cause"]]
    op, wait = screen.shown(row["op"]), screen.shown(row["wait"])
    if row["awaits"] is None:
        return f"{op} waits in {wait}"
    whose = f" of {_WHOSE[row['scope']]}" if row["scope"] else ""
    return f"{op} waits for {screen.shown(row['awaits'])}{whose}"


def _launches(launches: Sequence[Row], screen: Screen) -> str:
    """Which launches the time of a step is made of: ``4 sliding x 3.45 us, 2 global x 3.16 us``."""
    largest = sorted(launches, key=lambda one: -one["per_step"] * one["idle_mean_ns"])[:_MOST_KINDS]
    decimals = decimals_for(max((one["idle_mean_ns"] for one in launches), default=0))
    texts = [
        f"{one['per_step']:,.4g} {screen.shown(one['kind'])} x {_mean(one, decimals)} us"
        for one in launches
        if one in largest
    ]
    more = len(launches) - len(texts)
    return f"in {', '.join(texts)}" + (f", and {more} kinds more" if more else "")


def _mean(launch: Row, decimals: int) -> str:
    return bounded_us(launch["idle_mean_ns"], launch["idle_mean_uncertainty_ns"], decimals)


def _not_ready(row: Row, screen: Screen) -> str:
    share = row["not_ready_share"]
    if share is None:
        return ""
    waits, awaits = screen.shown(row["wait"]), screen.shown(row["awaits"])
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


def _if_gone(row: Row, screen: Screen) -> str:
    """What a step would gain, which is no more than what the critical path has of the wait."""
    saved, off = row["gone_saves_ns"], row["gone_saves_uncertainty_ns"]
    if saved is None:
        return ""
    if off is not None and saved < off:
        return "without this wait a step would be no shorter, as far as the clock tells"
    return f"without this wait a step would be {_bounded(saved, off, screen)} us shorter"


def gains_sentence(rows: Sequence[Row], start: str, screen: Screen) -> str:
    """What some changes would save of a step, with their places."""
    saved = [_bounded(row["per_step_ns"], row["per_step_uncertainty_ns"], screen) for row in rows]
    texts = [f"{screen.shown(row['target'])} {time} us" for row, time in zip(rows, saved, strict=True)]
    return f"{start}: {', '.join(texts)}"


def _bounded(time_ns: int, uncertainty_ns: int | None, screen: Screen) -> str:
    """A time in us, and what the clock leaves open in it where that is known and less."""
    decimals = decimals_for(time_ns)
    text = bounded_us(time_ns, uncertainty_ns, decimals)
    if uncertainty_ns is None or time_ns < uncertainty_ns:
        return text
    last_digit_ns = 10 ** (3 - decimals)
    return f"{text} {screen.plus_minus}{us(-(-uncertainty_ns // last_digit_ns) * last_digit_ns, decimals)}"


def _next(row: Row, screen: Screen) -> str:
    there, op = SECTION_NAMES[row["look_at"]], row["producer_op"]
    if row["look_at"] != "ops":
        return f"{there}, {_WHY[row['look_at']]}"
    if op:
        return f"{there}, what {screen.shown(op)} does until then"
    return there if row["cause"] == "short" else f"{there}, where it has no job"
