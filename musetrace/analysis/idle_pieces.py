"""The pieces of time in which a block works at nothing, and the cause of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.covering import NONE_COVERS, covers, least_covering
from musetrace.analysis.intervals import sorted_axis
from musetrace.analysis.rows import BUSY_KINDS, LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import StepSpans, counted_blocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Causes that are no wait: job ids, which are the other causes, end below 2^16.
HEAD, TAIL, LOAD_ONLY, UNLABELLED = range(1 << 16, (1 << 16) + 4)
OTHER_CAUSES = {HEAD: "head", TAIL: "tail", LOAD_ONLY: "load_only", UNLABELLED: "unlabelled"}


@dataclass(frozen=True)
class KindClasses:
    """bool[65536] by job id."""

    busy: Bools
    loading: Bools
    waiting: Bools
    second_hand: Bools  # waits for a wait

    @classmethod
    def of(cls, run: RunLike) -> KindClasses:
        """The classes of a run's jobs; a job that its table does not have is busy."""
        table = run.job_table
        second_hand = np.zeros(1 << 16, dtype=np.bool_)
        for index, job in enumerate(table.jobs):
            second_hand[index] = job.awaits is not None and table.kind_name(job.awaits) == "wait"
        return cls(
            jobs_of_kinds(table, BUSY_KINDS),
            jobs_of_kinds(table, LOADING_KINDS),
            jobs_of_kinds(table, WAITING_KINDS),
            second_hand,
        )


@dataclass(frozen=True)
class IdlePieces:
    """Idle time of one (rank, step): int64[pieces] in the order of (instance, begin).

    An instance is a block of a launch, ``instance = block * launches + launch``; ``instances`` are those that
    count. ``cause`` is the id of a wait job, or one of :data:`OTHER_CAUSES`. Pieces touch at most: each is as
    long as one cause lasts. ``contested_ns`` is the part of it that waits of other jobs cover too.
    """

    instances: Ints
    wall_ns: Ints  # of each of the instances
    instance: Ints
    cause: Ints
    length_ns: Ints
    contested_ns: Ints


def idle_pieces(spans: StepSpans, blocks: int, classes: KindClasses) -> IdlePieces:
    """Cut the idle time of each block of each launch into pieces of one cause (``idle`` has the rules)."""
    axis = _Axis.of(spans, blocks)
    busy, load, wait = (of[axis.job] for of in (classes.busy, classes.loading, classes.waiting))
    idle = axis.inside() & ~covers(axis.first[busy], axis.past[busy], axis.pieces)
    chosen, contested = _waits(axis, wait, busy, classes.second_hand)
    loads = covers(axis.first[load], axis.past[load], axis.pieces)
    cause = np.where(loads, LOAD_ONLY, UNLABELLED)
    cause = np.where(axis.before_first(), HEAD, cause)
    cause = np.where(axis.after_last(), TAIL, cause)
    cause = np.where(chosen != NONE_COVERS, chosen, cause)
    broken = np.zeros(axis.pieces + 1, dtype=np.bool_)
    broken[axis.first[busy]] = True
    return _joined(axis, np.flatnonzero(idle), cause, contested, broken)


@dataclass(frozen=True)
class _Axis:
    """All spans on one axis, sorted by begin, which is cut wherever one begins or ends.

    ``first`` is the number of the piece that a span begins with, ``past`` of the one after its last.
    """

    points: Ints
    reach: int
    instances: Ints
    walls: Ints
    begin: Ints
    end: Ints
    first: Ints
    past: Ints
    job: Ints
    warp: Ints
    instance: Ints

    @classmethod
    def of(cls, spans: StepSpans, blocks: int) -> _Axis:
        launches = len(spans.launch_id)
        wall = spans.launch_end - spans.launch_begin
        reach = int(wall.max()) + 1
        instances = np.flatnonzero(counted_blocks(spans, blocks).T)
        walls = wall[instances % launches]
        begin, end = (
            np.clip(times - spans.launch_begin[spans.launch], 0, wall[spans.launch])
            for times in (spans.begin, spans.end)
        )
        instance = spans.block * launches + spans.launch
        order, begin, end = sorted_axis(instance, begin, end, reach)
        edges = (instances * reach, instances * reach + walls, begin, end)
        points = np.sort(np.concatenate(edges))
        points = points[np.diff(points, prepend=-1) > 0]
        first, past = np.searchsorted(points, begin), np.searchsorted(points, end)
        job, warp, instance = spans.job[order], spans.warp[order], instance[order]
        return cls(points, reach, instances, walls, begin, end, first, past, job, warp, instance)

    @property
    def pieces(self) -> int:
        return max(len(self.points) - 1, 0)

    def _edges(self) -> tuple[Ints, Ints]:
        """Where the launches' windows begin and end, by instance."""
        begin = self.instances * self.reach
        return np.searchsorted(self.points, begin), np.searchsorted(self.points, begin + self.walls)

    def _blocks(self) -> tuple[Ints, Ints]:
        """The first span of each instance that has one, and the place of the instance among all."""
        starts = np.flatnonzero(np.diff(self.instance, prepend=-1))
        return starts, np.searchsorted(self.instances, self.instance[starts])

    def inside(self) -> Bools:
        """Which pieces lie within a launch."""
        return covers(*self._edges(), self.pieces)

    def before_first(self) -> Bools:
        """Which pieces lie before the first span of their block, of those that have one."""
        starts, at = self._blocks()
        window, _ = self._edges()
        return covers(window[at], self.first[starts], self.pieces)

    def after_last(self) -> Bools:
        """Which pieces lie after the last span of their block, of those that have one."""
        starts, at = self._blocks()
        _, window = self._edges()
        last = np.maximum.reduceat(self.past, starts) if len(starts) else starts
        return covers(last, window[at], self.pieces)


def _waits(axis: _Axis, wait: Bools, busy: Bools, second_hand: Bools) -> tuple[Ints, Bools]:
    """The job of the wait that each piece is put down to, and whether waits of other jobs cover it too."""
    first, past, job = axis.first[wait], axis.past[wait], axis.job[wait]
    next_busy = np.where(second_hand[job], NONE_COVERS, _next_busy(axis, wait, busy))
    order = np.lexsort((job, axis.end[wait], next_busy))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    winner = least_covering(first, past, place, axis.pieces)
    some = winner != NONE_COVERS
    chosen = np.full(axis.pieces, NONE_COVERS, dtype=np.int64)
    chosen[some] = job[order[winner[some]]]
    least = least_covering(first, past, job, axis.pieces)
    greatest = -least_covering(first, past, -job, axis.pieces)
    return chosen, some & (least != greatest)


def _next_busy(axis: _Axis, wait: Bools, busy: Bools) -> Ints:
    """When the warp of each wait begins its next busy job of the launch, :data:`NONE_COVERS` where never."""
    found = np.full(int(wait.sum()), NONE_COVERS, dtype=np.int64)
    warp, end = axis.warp[wait], axis.end[wait]
    instance = axis.instance[wait]
    for one in np.unique(warp):
        mine = warp == one
        begins = axis.begin[busy & (axis.warp == one)]
        at = np.searchsorted(begins, end[mine])
        nexts = np.append(begins, NONE_COVERS)[at]
        found[mine] = np.where(nexts // axis.reach == instance[mine], nexts, NONE_COVERS)
    return found


def _joined(axis: _Axis, idle: Ints, cause: Ints, contested: Bools, broken: Bools) -> IdlePieces:
    """Put neighbours of one cause together; what a busy job of no length lies between stays apart."""
    length = axis.points[idle + 1] - axis.points[idle]
    instance, cause = axis.points[idle] // axis.reach, cause[idle]
    opens = np.ones(len(idle), dtype=np.bool_)
    opens[1:] = (np.diff(idle) > 1) | (np.diff(cause) != 0) | (np.diff(instance) != 0) | broken[idle[1:]]
    starts = np.flatnonzero(opens)
    if not len(starts):
        starts = np.zeros(0, dtype=np.int64)
        return IdlePieces(axis.instances, axis.walls, starts, starts, starts, starts)
    return IdlePieces(
        instances=axis.instances,
        wall_ns=axis.walls,
        instance=instance[starts],
        cause=cause[starts],
        length_ns=np.add.reduceat(length, starts),
        contested_ns=np.add.reduceat(np.where(contested[idle], length, 0), starts),
    )
