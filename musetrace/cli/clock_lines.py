"""What a page says of a run's clock: its tick, what that means for its numbers, and how the tick is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from musetrace.analysis.certainty.clock_quality import grid_ns, tick_ns_of
from musetrace.analysis.spans.run_like import RunLike
from musetrace.cli.output import Screen
from musetrace.cli.text import fit

# So many times that by chance all of them are a multiple of more than the tick once in 30,000 times.
_ENOUGH_TIMES = 16
_LONGEST_VALUE = 40


def clock_text(clock: Any, screen: Screen) -> str:
    """The clock's name and tick, and what the tick means for every number."""
    of = clock if isinstance(clock, dict) else {}
    name, tick, sign = of.get("name") or "not known", tick_ns_of(clock), screen.plus_minus
    head = fit(screen.shown(name), _LONGEST_VALUE)
    if tick is not None:
        return f"{head}, tick {tick:,} ns: times are {sign}{tick:,} ns, means and sums as {sign} says"
    told = of.get("tick_ns")
    says = "" if told is None else f" (the run says {fit(screen.shown(told), _LONGEST_VALUE)})"
    return f"{head}, tick unknown{says}: no uncertainty can be given, nothing is ranked"


def launch_times_ns(run: RunLike) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The begins and ends of all launches that were stamped."""
    found = [run.launches(rank)[name].to_numpy() for rank in run.ranks for name in ("begin_ns", "end_ns")]
    times = np.concatenate([np.zeros(0, dtype=np.uint64), *found]).astype(np.int64)
    return times[times > 0]


def seen_tick_ns(run: RunLike) -> int | None:
    """What the times of the launches are all a multiple of, in ns; None where they are too few to tell."""
    times = launch_times_ns(run)
    return grid_ns(times) if len(times) >= _ENOUGH_TIMES else None


def tick_text(run: RunLike) -> str:
    """Where the tick is known from, and whether the stamps agree."""
    tick, seen = tick_ns_of(run.manifest.get("clock")), seen_tick_ns(run)
    source = "not known" if tick is None else f"{tick:,} ns by the recorder, from steps of the clock"
    if seen is None:
        return f"{source}; too few launches to see it in their times"
    if tick is None or seen == tick:
        return f"{source}; all times of launches are multiples of {seen:,} ns"
    if seen % tick:
        return f"{source}; but the times of launches have steps of {seen:,} ns, so it is less"
    return f"{source}; but all times of launches are multiples of {seen:,} ns, so it may be more"
