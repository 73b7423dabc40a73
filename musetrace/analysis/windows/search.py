"""Spans of a timeline by op and length, some at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.spans.rows import op_and_kind
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes, step_lanes
from musetrace.analysis.windows.rows import Rows
from musetrace.job_table import JobTable

MOST_HITS = 200
LONGEST_NS = (1 << 63) - 1
_JOBS = 1 << 16

Ints = npt.NDArray[np.int64]


class Hit(NamedTuple):
    """A span that was found; hits compare in the order in which they are told.

    ``shorter`` is minus its length where the longest come first, else 0.
    """

    shorter: int
    begin_ns: int
    rank: int
    step: int
    id: int


class FoundSpan(NamedTuple):
    """A hit and what it is."""

    at: Hit
    block: int
    warp: int
    job: int
    dur_ns: int


BEFORE_ALL = Hit(-LONGEST_NS, -LONGEST_NS, -1, -1, -1)


@dataclass(frozen=True)
class Search:
    """What is looked for: sound spans whose op or job has ``text`` in its name, in any case, and whose length
    is in ``[least_ns, most_ns]``; the earliest of them first, or the longest.
    """

    text: str = ""
    least_ns: int = 0
    most_ns: int = LONGEST_NS
    longest_first: bool = False

    def jobs(self, table: JobTable) -> npt.NDArray[np.uint8]:
        """u8[65536]: whether a job is looked for."""
        text = self.text.casefold()
        if not text:
            return np.ones(_JOBS, dtype=np.uint8)
        wanted = np.zeros(_JOBS, dtype=np.uint8)
        # Other ids are called job#N, both as job and as op.
        others = set(text) <= set("job#0123456789")
        for job in range(_JOBS if others else len(table.jobs)):
            names = (op_and_kind(table, job)[0], table.job_name(job))
            wanted[job] = any(text in name.casefold() for name in names)
        return wanted


@dataclass(frozen=True)
class Found:
    """At most ``MOST_HITS`` spans behind the last page's, in order.

    ``total`` is how many there are, ``rest`` how many of them behind the last page's.
    """

    hits: list[FoundSpan]
    total: int
    rest: int


def search(
    timeline: Timeline,
    rows: Rows,
    window: tuple[int, int, int, int],
    wanted: Search,
    after: Hit = BEFORE_ALL,
) -> Found:
    """Look through ``window`` = (from_ns, to_ns, row_from, row_to) of rows that are blocks."""
    from_ns, to_ns, row_from, row_to = window
    jobs = wanted.jobs(timeline.run.job_table)
    lengths = (wanted.least_ns, wanted.most_ns)
    ranks = rows.ranks_inside(row_from, row_to)
    steps = timeline.steps_inside(ranks, from_ns, to_ns)
    are_kept = timeline.are_kept(ranks, from_ns, to_ns)
    total, rest, best = 0, 0, list[FoundSpan]()
    for lanes in timeline.lanes(rows, steps) if are_kept else _lanes(timeline, rows, steps):
        number, behind, shorter, begin, place = _core.analysis.search_spans(
            lanes.native(rows.first_row(lanes.rank)),
            window,
            jobs,
            lengths,
            wanted.longest_first,
            MOST_HITS,
            _behind(after, lanes),
        )
        total, rest = total + number, rest + behind
        best = heapq.nsmallest(MOST_HITS, [*best, *_found(lanes, rows, shorter, begin, place)])
    return Found(best, total, rest)


def _found(lanes: StepLanes, rows: Rows, shorter: Ints, begin: Ints, place: Ints) -> Iterator[FoundSpan]:
    block = np.array(rows.numbers)[np.searchsorted(lanes.first, place, side="right") - 1]
    columns = (lanes.ids(place), shorter, begin, block, lanes.warp[place], lanes.job[place], lanes.dur[place])
    for span, less, at_ns, *what in zip(*(column.tolist() for column in columns), strict=True):
        yield FoundSpan(Hit(less, at_ns, lanes.rank, lanes.step, span), *what)


def _behind(after: Hit, lanes: StepLanes) -> tuple[int, int, int]:
    """The last page's last hit as a step sees it: of those at the same time its own come before or behind."""
    here, there = (lanes.rank, lanes.step), (after.rank, after.step)
    span = after.id if here == there else (-1 if here > there else LONGEST_NS)
    return after.shorter, after.begin_ns, span


def _lanes(timeline: Timeline, rows: Rows, steps: list[tuple[int, int]]) -> Iterator[StepLanes]:
    """Lanes one at a time, which are not kept."""
    for one in steps:
        yield step_lanes(timeline.run, timeline.axis, rows, *one)
