"""The spans of one step of one rank by row of a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace import _core
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.rows import BLOCKS, SMS, Rows, block_rows

Column = npt.NDArray[Any]
_ROW_COLUMN = {BLOCKS: "block", SMS: "sm"}


@dataclass(frozen=True)
class StepLanes:
    """Spans by row and begin, those with a flag among them.

    ``begin`` and ``dur`` are u32 (u64 of a wide axis) ns, from ``base_ns``, which is ns from the run's
    origin. Row r of the rank is ``[first[r], first[r + 1])``; its longest span is ``longest[r]`` ns.
    ``index`` says where a span stands in ``run.spans(rank, step)``, None: at its own place. ``without_row``
    spans are of a number that has no row.
    """

    rank: int
    step: int
    base_ns: int
    begin: Column
    dur: Column
    job: npt.NDArray[np.uint16]
    warp: npt.NDArray[np.uint8]
    flag: npt.NDArray[np.uint8]
    iteration: npt.NDArray[np.uint16] | None
    first: npt.NDArray[np.int64]
    longest: npt.NDArray[np.int64]
    index: npt.NDArray[np.uint32] | None
    without_row: int
    last_job: int  # the largest id of its jobs; -1 where there are none

    @property
    def bytes(self) -> int:
        """What it takes of memory."""
        columns = (self.begin, self.dur, self.job, self.warp, self.flag, self.first, self.longest)
        others = (self.iteration, self.index)
        return sum(one.nbytes for one in columns) + sum(one.nbytes for one in others if one is not None)

    def native(self, first_row: int) -> tuple[Any, ...]:
        """What the compiled loops take; ``first_row`` is the number of its first row in the timeline."""
        columns = (self.begin, self.dur, self.job, self.flag, self.first, self.longest)
        return (*columns, first_row, self.base_ns)

    def ids(self, place: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where spans stand in ``run.spans(rank, step)``."""
        return place if self.index is None else self.index[place].astype(np.int64)

    def row_of(self, place: int) -> int:
        """The row of the rank that a span is in."""
        return int(np.searchsorted(self.first, place, side="right")) - 1


def step_lanes(run: RunLike, axis: RunAxis, rows: Rows, rank: int, step: int) -> StepLanes:
    """Read a step of a rank that left stamps."""
    batch = run.spans(rank, step)
    steps = axis.ranks[rank]
    place = steps.place_of(step)
    assert place is not None
    base_ns = int(steps.from_ns[place])
    begin = _begin(batch, axis, rank, int(steps.base_ns[place]), base_ns)
    return _lanes(run, batch, rows, (rank, step, base_ns), begin)


def own_lanes(run: RunLike, rank: int, step: int) -> StepLanes:
    """The same by block, with the times of the rank's own clock from the step's base."""
    batch = run.spans(rank, step)
    return _lanes(run, batch, block_rows(run, (rank,)), (rank, step, 0), _column(batch, "begin"))


def _lanes(
    run: RunLike, batch: pa.RecordBatch, rows: Rows, at: tuple[int, int, int], begin: Column
) -> StepLanes:
    """The spans of ``batch``; ``at`` is (rank, step, base_ns)."""
    rank, step, base_ns = at
    dur = _column(batch, "dur").astype(begin.dtype, copy=False)
    order, first, longest, without_row = _by_row(batch, rows, begin, dur)
    iterates = "iteration" in batch.schema.names and run.job_table.has_instances
    job = _taken(_column(batch, "job"), order)
    return StepLanes(
        rank=rank,
        step=step,
        base_ns=base_ns,
        begin=_taken(begin, order),
        dur=_taken(dur, order),
        job=job,
        warp=_taken(_column(batch, "warp"), order),
        flag=_taken(_column(batch, "flag"), order),
        iteration=_taken(_column(batch, "iteration"), order) if iterates else None,
        first=first,
        longest=longest,
        index=None if isinstance(order, slice) else order.astype(np.uint32),
        without_row=without_row,
        last_job=int(job.max()) if len(job) else -1,
    )


def _begin(batch: pa.RecordBatch, axis: RunAxis, rank: int, own_base_ns: int, base_ns: int) -> Column:
    """Begins in ns from the step's base, both on the axis."""
    begin, narrow = _column(batch, "begin"), np.uint64 if axis.wide else np.uint32
    clock = axis.clocks[rank]
    if len(set(clock.offsets_ns)) == 1:
        return begin.astype(narrow, copy=False)
    return (axis.on_axis(rank, own_base_ns + begin.astype(np.int64)) - base_ns).astype(narrow)


Order = npt.NDArray[np.int64] | slice


def _by_row(
    batch: pa.RecordBatch, rows: Rows, begin: Column, dur: Column
) -> tuple[Order, npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """The order of spans, where each row begins and its longest span, and how many have no row."""
    if rows.kind == BLOCKS:
        # The store has them by block and begin already.
        found = _core.analysis.lane_rows(_column(batch, "block"), begin, dur, rows.per_rank)
        if found is not None:
            first, longest = found
            return slice(0, int(first[-1])), first, longest, len(begin) - int(first[-1])
    row = _rows_of(batch, rows)
    order = np.lexsort((begin, row))
    order = order[np.searchsorted(row[order], 0) :]
    ordered = row[order].astype(np.uint16)
    first, longest = _core.analysis.lane_rows(ordered, begin[order], dur[order], rows.per_rank)
    if rows.kind in _ROW_COLUMN:
        return order, first, longest, len(row) - len(order)
    others = (_column(batch, "block") == rows.block) & (row < 0)
    return order, first, longest, int(others.sum())


def _rows_of(batch: pa.RecordBatch, rows: Rows) -> npt.NDArray[np.int64]:
    """The row of each span, -1 where it has none."""
    table = np.full(1 << 16, -1, dtype=np.int64)
    table[list(rows.numbers)] = np.arange(rows.per_rank)
    if rows.kind in _ROW_COLUMN:
        return np.asarray(table[_column(batch, _ROW_COLUMN[rows.kind])])
    return np.where(_column(batch, "block") == rows.block, table[_column(batch, "warp")], -1)


def _taken(column: Column, order: Order) -> Column:
    """A copy of its own: what was read is not kept."""
    return np.array(column[order])


def _column(batch: pa.RecordBatch, name: str) -> Column:
    values: Column = batch.column(name).to_numpy(zero_copy_only=False)
    return values
