"""The pieces of time in which a block works at nothing, and the cause of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.spans.rows import BUSY_KINDS, LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans, counted_blocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Causes that are no wait: job ids, which are the other causes, end below 2^16.
HEAD: int = _core.analysis.HEAD
TAIL: int = _core.analysis.TAIL
LOAD_ONLY: int = _core.analysis.LOAD_ONLY
UNLABELLED: int = _core.analysis.UNLABELLED
OTHER_CAUSES = {HEAD: "head", TAIL: "tail", LOAD_ONLY: "load_only", UNLABELLED: "unlabelled"}

# As the compiled module numbers the classes of jobs.
_BUSY, _LOADING, _WAITING, _SECOND_HAND = 1, 2, 3, 4


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

    @cached_property
    def numbers(self) -> npt.NDArray[np.uint8]:
        """The same, a number for each job."""
        numbers = np.zeros(1 << 16, dtype=np.uint8)
        numbers[self.waiting] = _WAITING
        numbers[self.waiting & self.second_hand] = _SECOND_HAND
        numbers[self.loading] = _LOADING
        numbers[self.busy] = _BUSY
        return numbers


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
    return spans.made_once("idle pieces", lambda: _idle_pieces(spans, blocks, classes))


def _idle_pieces(spans: StepSpans, blocks: int, classes: KindClasses) -> IdlePieces:
    launches = len(spans.launch_id)
    instances = np.flatnonzero(counted_blocks(spans, blocks).T)
    wall = spans.launch_end - spans.launch_begin
    pieces = spans.by_instance(blocks).idle_pieces(instances, classes.numbers)
    return IdlePieces(instances, wall[instances % launches], *pieces)
