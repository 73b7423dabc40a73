"""How far apart ranks arrive at stops, from the stamps of journals alone: no store, no analysis.

    python -m tests.golden.stop_skew RUN

prints the table of the README. Comparisons of clocks are read from the journals; between them an offset is a
line in whole fractions.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from tests.golden.stamped_launches import Journal

WAIT = "_wait_ranks"
# By (step, launch), by rank: when its last block was through, on rank 0's clock.
Arrivals = dict[tuple[int, int], dict[int, int]]


@dataclass(frozen=True)
class Clock:
    """A process's clock against rank 0's: measured at some times, and then along lines."""

    points: tuple[tuple[int, int], ...] = ((0, 0),)
    residual_ns: Fraction | None = None
    error_ns: Fraction = Fraction(0)

    @classmethod
    def of(cls, journal: Journal) -> Clock:
        compared = [one["peer"] for one in journal.clocks if "peer" in one]
        points = tuple((one["at_ns"], one["offset_ns"]) for one in compared)
        beside = [
            abs(offset - _line(before, after, at))
            for before, (at, offset), after in zip(points, points[1:], points[2:], strict=False)
        ]
        residual = max(beside, default=None)
        return cls(points, residual, max(one["error_ns"] for one in compared) + (residual or Fraction(0)))

    def on_rank_0(self, time_ns: int) -> int:
        if len(self.points) == 1:
            return time_ns + self.points[0][1]
        for before, after in zip(self.points, self.points[1:], strict=False):
            if before[0] <= time_ns <= after[0]:
                return time_ns + _line(before, after, time_ns).__floor__()
        raise AssertionError("a stamp before the first or behind the last comparison")


def _line(before: tuple[int, int], after: tuple[int, int], at: int) -> Fraction:
    return before[1] + Fraction((after[1] - before[1]) * (at - before[0]), after[0] - before[0])


@dataclass
class Skew:
    """Of a run; ``process`` and ``clock`` by rank, ``arrived`` by kind of launch and stop."""

    tick_ns: int
    process: dict[int, int] = field(default_factory=dict)
    clock: dict[int, Clock] = field(default_factory=dict)
    arrived: dict[tuple[str, str], Arrivals] = field(default_factory=lambda: defaultdict(dict))

    @classmethod
    def read(cls, run: Path) -> Skew:
        found = cls(0)
        numbers: dict[str, int] = {}
        for rank, file in enumerate(sorted(run.glob("rank-*.mtj"))):
            journal = Journal.read(file)
            found.tick_ns = journal.meta["clock"]["tick_ns"]
            found.process[rank] = numbers.setdefault(journal.meta["process"], len(numbers))
            found.clock[rank] = Clock() if found.process[rank] == 0 else Clock.of(journal)
            found._add(rank, journal)
        return found

    def _add(self, rank: int, journal: Journal) -> None:
        sends = dict(_stops(journal))
        for launch in journal.launches():
            for stop, send in sends.items():
                ends = [span.end for block in launch.blocks for span in block if span.job == send]
                if ends:
                    at = self.clock[rank].on_rank_0(launch.begin + max(ends))
                    of = self.arrived[launch.kind, stop].setdefault((launch.step, launch.launch), {})
                    of[rank] = at

    def apart_ns(self, one: int, other: int) -> Fraction:
        """What times of two ranks are off against each other at most, beside the steps of their clocks."""
        if self.process[one] == self.process[other]:
            return Fraction(0)
        return self.clock[one].error_ns + self.clock[other].error_ns

    def late(self, of: dict[int, int]) -> set[int]:
        """The ranks that no other one is later than for certain."""
        return {
            one
            for one in of
            if all(of[other] - of[one] < self.tick_ns + self.apart_ns(one, other) for other in of)
        }


def _stops(journal: Journal) -> Iterator[tuple[str, str]]:
    """Each stop of a job table, and the job that it waits for."""
    for job in journal.jobs:
        if job["kind"] == "wait" and job["name"] == job["op"] + WAIT and job["awaits"] is not None:
            yield job["op"], journal.jobs[job["awaits"]]["name"]


def median_with_interval(values: list[int]) -> tuple[int, tuple[int, int] | None]:
    """The nearest-rank median, and its exact interval of at least 95 %; None for fewer than 6 values."""
    ordered, n = sorted(values), len(values)
    middle = ordered[(n - 1) // 2]
    below = [sum(math.comb(n, k) for k in range(place + 1)) / 2**n for place in range(n)]
    places = [place for place in range(n) if below[place] <= 0.025]
    return middle, (ordered[places[-1]], ordered[n - 1 - places[-1]]) if places else None


def table(skew: Skew) -> list[str]:
    """The README's table: stops by number, over the launches of all layers, and how good its times are."""
    worst_us = float(max(skew.apart_ns(0, rank) for rank in skew.process)) / 1000
    steps = {step for launches in skew.arrived.values() for step, _ in launches}
    lines = [
        f"{len(skew.process)} ranks, steps: {len(steps)}, times of the GPUs good to {worst_us:.2f} us "
        "against each other:",
        "",
        "| stop | launches | from the first rank to the last, us | a rank is ahead of the last by, us "
        "| last: GPU 0 | GPU 1 | cannot tell |",
        "|---|---|---|---|---|---|---|",
    ]
    for stop in sorted({stop for _, stop in skew.arrived if stop[-1].isdigit()}):
        of_all = [
            of for (_, its), launches in skew.arrived.items() if its == stop for of in launches.values()
        ]
        apart = [max(of.values()) - min(of.values()) for of in of_all]
        leads = [max(of.values()) - at for of in of_all for at in of.values()]
        who = [{skew.process[rank] for rank in skew.late(of)} for of in of_all]
        shares = [sum(one == {gpu} for one in who) / len(who) for gpu in (0, 1)]
        shares.append(1 - sum(shares))
        cells = [
            stop,
            str(len(of_all)),
            _with_interval(apart),
            f"{sum(leads) / len(leads) / 1000:.2f}",
            *(f"{100 * share:.0f} %" for share in shares),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _with_interval(values: list[int]) -> str:
    middle, interval = median_with_interval(values)
    us: Callable[[int], str] = lambda value: f"{value / 1000:.2f}"  # noqa: E731
    return us(middle) if interval is None else f"{us(middle)} [{us(interval[0])} {us(interval[1])}]"


if __name__ == "__main__":
    print("\n".join(table(Skew.read(Path(sys.argv[1])))))
