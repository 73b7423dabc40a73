"""When the engines of a block are at work: unions of the spans of loads, compute, communication and waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.spans.rows import LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans, counted_blocks

Ints = npt.NDArray[np.int64]

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
    """A union of spans: int64[pieces] each, disjoint within a block of a launch, ns from the launch's begin.

    ``stamps`` is how many differences of stamps each launch's union is made of, int64[launches], at most.
    """

    begin: Ints
    end: Ints
    stamps: Ints

    @property
    def length_ns(self) -> int:
        """The length of the union."""
        return int(self.end.sum() - self.begin.sum())


@dataclass(frozen=True)
class EngineUnions:
    """What is at work in the blocks of the launches of one (rank, step), cut to the launches.

    ``walls`` is int64[launches], ``instances`` how many blocks of each count, as ``block_busy`` counts them;
    ``unions`` by set of engines: where at least one of them is at work.
    """

    walls: Ints
    instances: Ints
    unions: Mapping[int, Pieces]

    @classmethod
    def of(
        cls, spans: StepSpans, blocks: int, engines: npt.NDArray[np.uint8], sets: Sequence[int]
    ) -> EngineUnions:
        """``engines`` is :func:`engines_of_jobs`, ``sets`` are bits of it."""
        found = spans.by_instance(blocks).engine_unions(engines, np.array(sets, dtype=np.uint8))
        return cls(
            walls=spans.launch_end - spans.launch_begin,
            instances=counted_blocks(spans, blocks).sum(axis=1),
            unions={of: Pieces(*columns) for of, columns in zip(sets, found, strict=True)},
        )
