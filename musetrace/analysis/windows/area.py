"""How long the spans of an area of a timeline are, by op and kind: exact, and as a histogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from math import isqrt

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.certainty.percentiles import TENTHS
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.rows import op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes, step_lanes
from musetrace.analysis.windows.rows import Rows

Ints = npt.NDArray[np.int64]

_THREADS = 2
_LAST_JOB = (1 << 16) - 1


@dataclass(frozen=True)
class GroupLengths:
    """The sound spans of an op and kind that lie in an area, with their whole lengths.

    ``inside_ns`` is the time of them that lies in it. ``histogram`` is int64[bins]: how many have a length in
    each bin of the area's ``edges_ns``.
    """

    op: str
    kind: str
    n: int
    total_ns: int
    inside_ns: int
    min_ns: int
    p10_ns: int
    p50_ns: int
    p90_ns: int
    max_ns: int
    histogram: Ints


@dataclass(frozen=True)
class Area:
    """What is in an area; groups in job-table order.

    ``edges_ns`` int64[bins + 1] are the edges of all histograms, two an octave; ``flagged`` spans were left
    out.
    """

    groups: list[GroupLengths]
    edges_ns: Ints
    flagged: int


def area(timeline: Timeline, rows: Rows, from_ns: int, to_ns: int, row_from: int, row_to: int) -> Area:
    """Measure the spans that lie in ``[from_ns, to_ns)`` of rows ``[row_from, row_to)``."""
    sums = _Sums(timeline.run)
    ranks = rows.ranks_inside(row_from, row_to)
    wanted = timeline.steps_inside(ranks, from_ns, to_ns)
    parts = [timeline.lanes(rows, wanted)] if timeline.are_kept(ranks, from_ns, to_ns) else None
    for lanes in parts or _in_parts(timeline, rows, wanted):
        sums.add(rows, lanes, (from_ns, to_ns, row_from, row_to))
    return sums.area()


def _in_parts(
    timeline: Timeline, rows: Rows, wanted: Sequence[tuple[int, int]]
) -> Iterator[Sequence[StepLanes]]:
    """The lanes of a large area a few at a time; they are not kept."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for at in range(0, len(wanted), _THREADS):
            some = wanted[at : at + _THREADS]
            yield list(threads.map(lambda one: step_lanes(timeline.run, timeline.axis, rows, *one), some))


@dataclass
class _Sums:
    """Lengths of spans, counted by value, as steps come."""

    run: RunLike
    parts: dict[tuple[str, str], list[KeySums]] = field(default_factory=dict)
    inside_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    flagged: int = 0

    def add(self, rows: Rows, lanes: Sequence[StepLanes], window: tuple[int, int, int, int]) -> None:
        names, group_of_job = self._groups(lanes)
        native = [one.native(rows.first_row(one.rank)) for one in lanes]
        first, length, count, inside, flagged = _core.analysis.count_lengths(
            native, window, group_of_job, len(names)
        )
        self.flagged += flagged
        for group, name in enumerate(names):
            part = slice(first[group], first[group + 1])
            if part.stop > part.start:
                self.parts.setdefault(name, []).append(KeySums((length[part],), count[part]))
                self.inside_ns[name] = self.inside_ns.get(name, 0) + int(inside[group])

    def _groups(self, lanes: Sequence[StepLanes]) -> tuple[list[tuple[str, str]], npt.NDArray[np.uint16]]:
        """The ops and kinds of jobs, of unknown ones those that occur, and by job id which of them it is."""
        table = self.run.job_table
        known = len(table.jobs)
        others = [one.job[one.job >= known] for one in lanes if one.last_job >= known]
        unknown = np.unique(np.concatenate(others)).tolist() if others else []
        of_job = {job: op_and_kind(table, job) for job in (*range(known), *unknown)}
        names = list(dict.fromkeys(of_job.values())) or [("", "")]
        places = {name: place for place, name in enumerate(names)}
        group_of_job = np.zeros(_LAST_JOB + 1, dtype=np.uint16)
        group_of_job[list(of_job)] = [places[name] for name in of_job.values()]
        return names, group_of_job

    def area(self) -> Area:
        found = {name: ValueCounts.of(KeySums.merged(parts)) for name, parts in self.parts.items()}
        edges = _edges(max((int(counts.values[-1]) for counts in found.values()), default=0))
        groups = [self._group(name, found[name], edges) for name in self._in_order(found)]
        return Area(groups, edges, self.flagged)

    def _in_order(self, found: dict[tuple[str, str], ValueCounts]) -> list[tuple[str, str]]:
        table = self.run.job_table
        known = dict.fromkeys(op_and_kind(table, job) for job in range(len(table.jobs)))
        return [*(name for name in known if name in found), *sorted(set(found) - set(known))]

    def _group(self, name: tuple[str, str], counts: ValueCounts, edges: Ints) -> GroupLengths:
        tenths = [one or 0 for one in counts.nearest_rank(TENTHS)]
        bins = np.searchsorted(edges, counts.values, side="right") - 1
        return GroupLengths(
            *name,
            n=counts.n,
            total_ns=counts.total,
            inside_ns=self.inside_ns[name],
            min_ns=int(counts.values[0]),
            p10_ns=tenths[0],
            p50_ns=tenths[1],
            p90_ns=tenths[2],
            max_ns=int(counts.values[-1]),
            histogram=np.bincount(bins, counts.counts, len(edges) - 1).astype(np.int64),
        )


@cache
def _all_edges() -> Ints:
    """0 and the whole parts of the powers of the root of 2 in ns, each once."""
    return np.array([0, *sorted({isqrt(1 << power) for power in range(125)})], dtype=np.int64)


def _edges(longest_ns: int) -> Ints:
    """Edges of bins of which the last holds the longest length."""
    edges = _all_edges()
    return edges[: int(np.searchsorted(edges, longest_ns, side="right")) + 1]
