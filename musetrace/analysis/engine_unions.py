"""When the engines of a block are at work: unions of the spans of loads, compute, communication and waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.intervals import sorted_axis
from musetrace.analysis.rows import LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import StepSpans, counted_blocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# A bit for each engine, and for waits, which are at work at nothing.
LOADS, COMPUTE, COMMUNICATION, WAITS = 1, 2, 4, 8
ENGINES = LOADS | COMPUTE | COMMUNICATION
ANY_JOB = ENGINES | WAITS

_KINDS = {
    LOADS: LOADING_KINDS,
    COMPUTE: frozenset({"compute"}),
    COMMUNICATION: frozenset({"send", "recv", "sync"}),
    WAITS: WAITING_KINDS,
}


def engines_of_jobs(run: RunLike) -> npt.NDArray[np.uint8]:
    """uint8[65536]: the bit of each job id. Jobs that the table does not have count as compute."""
    found = np.zeros(1 << 16, dtype=np.uint8)
    for bit, kinds in _KINDS.items():
        found[jobs_of_kinds(run.job_table, kinds)] = bit
    return found


@dataclass(frozen=True)
class Pieces:
    """A union of spans: int64[pieces] each, disjoint, in the order of instance and begin.

    Times are ns from the launch's begin, ``launch`` is its index in the step. ``stamps`` is how many
    differences of stamps each launch's union is made of, int64[launches], at most.
    """

    begin: Ints
    end: Ints
    launch: Ints
    stamps: Ints

    @property
    def length_ns(self) -> int:
        """The length of the union."""
        return int(self.end.sum() - self.begin.sum())


@dataclass(frozen=True)
class EngineUnions:
    """The spans of one (rank, step) by instance (a block of a launch), cut to their launches.

    ``walls`` is int64[launches], ``instances`` how many blocks of each count, as ``block_busy`` counts them.
    """

    walls: Ints
    instances: Ints
    _reach: int
    _instance: Ints
    _begin: Ints
    _end: Ints
    _engine: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, spans: StepSpans, blocks: int, engines: npt.NDArray[np.uint8]) -> EngineUnions:
        """``engines`` is :func:`engines_of_jobs`."""
        walls = spans.launch_end - spans.launch_begin
        wall, launch_begin = walls[spans.launch], spans.launch_begin[spans.launch]
        begin = np.clip(spans.begin - launch_begin, 0, wall)
        end = np.clip(spans.end - launch_begin, 0, wall)
        reach = int(walls.max(initial=0)) + 1
        instance = spans.block * len(walls) + spans.launch
        order, begin, end = sorted_axis(instance, begin, end, reach)
        instances = counted_blocks(spans, blocks).sum(axis=1)
        return cls(walls, instances, reach, instance[order], begin, end, engines[spans.job[order]])

    def union(self, engines: int) -> Pieces:
        """Where at least one of these engines is at work."""
        mine = (self._engine & engines) != 0
        begin, end, instance = self._begin[mine], self._end[mine], self._instance[mine]
        launches = len(self.walls)
        opens, covered_to = _opens(begin, end)
        starts = np.flatnonzero(opens)
        # A span of no length where a piece begins may have ended before it, as `opens_piece` says.
        none_long = np.flatnonzero((begin == end) & ~opens)
        if len(none_long):
            piece = np.searchsorted(starts, none_long, side="right") - 1
            none_long = none_long[begin[none_long] == begin[starts[piece]]]
        stamps = np.bincount(instance[starts] % launches, minlength=launches)
        stamps += np.bincount(instance[none_long] % launches, minlength=launches)
        base = instance[starts] * self._reach
        lasts = np.append(starts[1:], len(begin)) - 1
        return Pieces(
            begin=begin[starts] - base,
            end=covered_to[lasts[: len(starts)]] - base,
            launch=instance[starts] % launches,
            stamps=stamps,
        )

    def unions(self, sets: Iterable[int]) -> dict[int, Pieces]:
        """The union of each set of engines."""
        return {engines: self.union(engines) for engines in sets}


def _opens(begin: Ints, end: Ints) -> tuple[Bools, Ints]:
    """Which intervals, sorted by begin, begin a piece of their union; and how far they cover, one by one."""
    covered_to = np.maximum.accumulate(end)
    opens = np.ones(len(begin), dtype=np.bool_)
    opens[1:] = begin[1:] >= covered_to[:-1]
    return opens, covered_to
