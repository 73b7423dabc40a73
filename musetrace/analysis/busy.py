"""How much of its time each block works, loads, waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import sum_uncertainty_ns
from musetrace.analysis.intervals import newly_covered, opens_piece, sorted_axis
from musetrace.analysis.rows import BUSY_KINDS, LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import (
    Counted,
    Selection,
    StepSpans,
    chosen_ranks,
    counted_blocks,
    step_spans,
)

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("launches", pa.uint64()),
    ("wall_ns", pa.int64()),
    ("wall_uncertainty_ns", pa.int64()),
    ("busy_ns", pa.int64()),
    ("busy_uncertainty_ns", pa.int64()),
    ("loading_ns", pa.int64()),
    ("loading_uncertainty_ns", pa.int64()),
    ("waiting_ns", pa.int64()),
    ("waiting_uncertainty_ns", pa.int64()),
    ("rest_ns", pa.int64()),
    ("rest_uncertainty_ns", pa.int64()),
    ("idle_ns", pa.int64()),
    ("idle_uncertainty_ns", pa.int64()),
    ("observed", pa.float64()),
]


def block_busy(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (rank, block): how its time divides, summed over the launches in scope.

    ``wall_ns`` is the sum of the launches' lengths on that rank (first to last time that was stamped).
    ``busy_ns`` is the time in which at least one warp of the block is in a compute, send, receive or sync
    job; jobs that the table does not know count as busy. ``idle_ns = wall_ns - busy_ns`` exactly. Of the
    idle time, ``loading_ns`` is covered by a load or prefetch, ``waiting_ns`` by waits only, and ``rest_ns``
    by no job at all. A block of a launch counts when it left a sound span, or when every block
    of the launch reported. Each ``*_uncertainty_ns`` is that of the sum over the launches, and grows with the
    number of pieces that it is made of. ``observed`` is the share of what the rank did that was recorded, at
    least.

    Meaning: how far the block is from being always at work. It lies where a job's stamps do not enclose its
    work (a load is stamped at issue; its bytes arrive later), and where launches overlap (PDL): their
    lengths are added, so wall can exceed the time of day. Busy says that one warp works, not that the
    tensor cores do. What a span covers outside its launch is cut off. Spans with a flag are left out
    (metadata ``ignored``), so their time shows as idle.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    selection = Selection(layer_kind, rank, step)
    counted = Counted()
    classes = _KindClasses.of(run)
    tick = tick_ns(run)
    totals = {one: _Totals.of(run.blocks) for one in chosen_ranks(run, selection)}
    for spans in step_spans(run, selection, counted):
        totals[spans.rank].add(spans, run.blocks, classes)
    rows = [
        {**row, "observed": counted.seen[one].share}
        for one, total in totals.items()
        for row in total.rows(one, tick)
    ]
    return answer(run, _FIELDS, rows, counted)


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
    """Sums of one rank, int64[blocks] each. ``loading`` and ``waiting`` include the classes before them.

    ``squares`` is int64[5, blocks], for busy, loading, waiting, rest and idle: the sum over launches of the
    squared number of differences of stamps that a launch adds.
    """

    launches: Ints
    wall: Ints
    busy: Ints
    loading: Ints
    waiting: Ints
    squares: Ints

    @classmethod
    def of(cls, blocks: int) -> _Totals:
        shapes = ((blocks,),) * 5 + ((5, blocks),)
        return cls(*(np.zeros(shape, dtype=np.int64) for shape in shapes))

    def add(self, spans: StepSpans, blocks: int, classes: _KindClasses) -> None:
        """Add the launches of one step."""
        walls = spans.launch_end - spans.launch_begin
        counted = counted_blocks(spans, blocks)
        self.launches[:] += counted.sum(axis=0)
        self.wall[:] += walls @ counted
        begin = np.clip(spans.begin - spans.launch_begin[spans.launch], 0, walls[spans.launch])
        end = np.clip(spans.end - spans.launch_begin[spans.launch], 0, walls[spans.launch])
        group = spans.block * len(walls) + spans.launch
        order, begin, end = sorted_axis(group, begin, end, int(walls.max()) + 1)
        job, block, group = spans.job[order], spans.block[order], group[order]
        before = np.zeros(len(job), dtype=np.bool_)
        pieces, has_own = [], []
        for total, wanted in (
            (self.busy, classes.busy[job]),
            (self.loading, classes.loading[job]),
            (self.waiting, classes.waiting[job]),
        ):
            np.add.at(total, block[wanted], newly_covered(begin[wanted], end[wanted]))
            opens = opens_piece(begin[wanted], end[wanted])
            pieces.append(np.bincount(group[wanted][opens], minlength=counted.size))
            has_own.append(np.bincount(group[wanted & ~before], minlength=counted.size) > 0)
            before = wanted
        self._add_differences(pieces, has_own, counted)

    def _add_differences(
        self, pieces: list[Ints], has_own: list[npt.NDArray[np.bool_]], counted: npt.NDArray[np.bool_]
    ) -> None:
        """Count the differences of stamps in each (block, launch), from the pieces of each class's union."""
        busy, with_loads, with_waits = pieces
        differences = (
            busy,
            np.where(has_own[1], busy + with_loads, 0),
            np.where(has_own[2], with_loads + with_waits, 0),
            with_waits + 1,
            busy + 1,
        )
        launches, blocks = counted.shape
        for squares, number in zip(self.squares, differences, strict=True):
            squares += (number.reshape(blocks, launches) ** 2 * counted.T).sum(axis=1)

    def rows(self, rank: int, tick: int | None) -> list[dict[str, int | None]]:
        """The answer's rows; a block that counts in no launch has none."""
        return [
            {
                "rank": rank,
                "block": block,
                "launches": int(self.launches[block]),
                **self._times(block),
                **self._uncertainties(block, tick),
            }
            for block in np.flatnonzero(self.launches).tolist()
        ]

    def _times(self, block: int) -> dict[str, int]:
        return {
            "wall_ns": int(self.wall[block]),
            "busy_ns": int(self.busy[block]),
            "loading_ns": int(self.loading[block] - self.busy[block]),
            "waiting_ns": int(self.waiting[block] - self.loading[block]),
            "rest_ns": int(self.wall[block] - self.waiting[block]),
            "idle_ns": int(self.wall[block] - self.busy[block]),
        }

    def _uncertainties(self, block: int, tick: int | None) -> dict[str, int | None]:
        squares = [int(self.launches[block]), *self.squares[:, block].tolist()]
        names = ("wall", "busy", "loading", "waiting", "rest", "idle")
        return {
            f"{name}_uncertainty_ns": sum_uncertainty_ns(tick, of)
            for name, of in zip(names, squares, strict=True)
        }
