"""How much of its time each block works, loads, waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer
from musetrace.analysis.intervals import newly_covered, sorted_axis
from musetrace.analysis.rows import BUSY_KINDS, LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Ignored, Selection, StepSpans, chosen_ranks, step_spans

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("launches", pa.uint64()),
    ("wall_ns", pa.int64()),
    ("busy_ns", pa.int64()),
    ("loading_ns", pa.int64()),
    ("waiting_ns", pa.int64()),
    ("idle_ns", pa.int64()),
]


def block_busy(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (rank, block): how its time divides, summed over the launches in scope.

    ``wall_ns`` is the sum of the launches' lengths on that rank (first to last time that was stamped).
    ``busy_ns`` is the time in which at least one warp of the block is in a compute, send, receive or sync
    job; jobs that the table does not know count as busy. ``idle_ns = wall_ns - busy_ns`` exactly. Of the
    idle time, ``loading_ns`` is covered by a load or prefetch, and ``waiting_ns`` by waits only; the rest
    is covered by no job at all. A block of a launch counts when it left a sound span, or when every block
    of the launch reported.

    Meaning: how far the block is from being always at work. It lies where a job's stamps do not enclose its
    work (a load is stamped at issue; its bytes arrive later), and where launches overlap (PDL): their
    lengths are added, so wall can exceed the time of day. Busy says that one warp works, not that the
    tensor cores do. What a span covers outside its launch is cut off. Spans with a flag are left out
    (metadata ``ignored``), so their time shows as idle.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    selection = Selection(layer_kind, rank, step)
    ignored = Ignored()
    classes = _KindClasses.of(run)
    totals = {one: _Totals.of(run.blocks) for one in chosen_ranks(run, selection)}
    for spans in step_spans(run, selection, ignored):
        totals[spans.rank].add(spans, run.blocks, classes)
    rows = [row for one, total in totals.items() for row in total.rows(one)]
    return answer(run, _FIELDS, rows, ignored)


@dataclass(frozen=True)
class _KindClasses:
    """bool[65536] by job id: in this class or in one before it (busy, then loading, then waiting)."""

    busy: npt.NDArray[np.bool_]
    loading: npt.NDArray[np.bool_]
    waiting: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, run: RunLike) -> _KindClasses:
        kinds = (BUSY_KINDS, BUSY_KINDS | LOADING_KINDS, BUSY_KINDS | LOADING_KINDS | WAITING_KINDS)
        return cls(*(jobs_of_kinds(run.job_table, of) for of in kinds))


@dataclass(frozen=True)
class _Totals:
    """Sums of one rank, int64[blocks] each. ``loading`` and ``waiting`` include the classes before them."""

    launches: Ints
    wall: Ints
    busy: Ints
    loading: Ints
    waiting: Ints

    @classmethod
    def of(cls, blocks: int) -> _Totals:
        return cls(*(np.zeros(blocks, dtype=np.int64) for _ in range(5)))

    def add(self, spans: StepSpans, blocks: int, classes: _KindClasses) -> None:
        """Add the launches of one step."""
        walls = spans.launch_end - spans.launch_begin
        counted = np.broadcast_to(spans.launch_blocks[:, None] >= blocks, (len(walls), blocks)).copy()
        counted[spans.launch, spans.block] = True
        self.launches[:] += counted.sum(axis=0)
        self.wall[:] += walls @ counted
        begin = np.clip(spans.begin - spans.launch_begin[spans.launch], 0, walls[spans.launch])
        end = np.clip(spans.end - spans.launch_begin[spans.launch], 0, walls[spans.launch])
        group = spans.block * len(walls) + spans.launch
        order, begin, end = sorted_axis(group, begin, end, int(walls.max()) + 1)
        job, block = spans.job[order], spans.block[order]
        for total, wanted in (
            (self.busy, classes.busy[job]),
            (self.loading, classes.loading[job]),
            (self.waiting, classes.waiting[job]),
        ):
            np.add.at(total, block[wanted], newly_covered(begin[wanted], end[wanted]))

    def rows(self, rank: int) -> list[dict[str, int]]:
        """The answer's rows; a block that counts in no launch has none."""
        return [
            {
                "rank": rank,
                "block": block,
                "launches": int(self.launches[block]),
                "wall_ns": int(self.wall[block]),
                "busy_ns": int(self.busy[block]),
                "loading_ns": int(self.loading[block] - self.busy[block]),
                "waiting_ns": int(self.waiting[block] - self.loading[block]),
                "idle_ns": int(self.wall[block] - self.busy[block]),
            }
            for block in np.flatnonzero(self.launches).tolist()
        ]
