"""The spans of one launch as lanes: a row per block of each rank, or a row per warp of one block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis import tick_ns
from musetrace.analysis.certainty.rank_clocks import RankTimes, alignment_error_ns, rank_times
from musetrace.analysis.spans.rows import is_instant, op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.errors import AnalysisError
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

FLAG_OK = 0
# More spans than this are not drawn one by one; then only every k-th block is.
MOST_SPANS = 40_000


@dataclass(frozen=True)
class LaneChoice:
    """Which rows: every block of every rank, of one ``rank``, or every warp of one ``block`` of a rank."""

    rank: int | None = None
    block: int | None = None

    @property
    def per_warp(self) -> bool:
        """Whether a row is a warp."""
        return self.block is not None


@dataclass(frozen=True)
class Lane:
    """One row. ``warp`` is None where the row is a whole block."""

    rank: int
    block: int
    warp: int | None


@dataclass(frozen=True)
class JobName:
    """What to call a job: its name, op and kind."""

    job: str
    op: str
    kind: str


@dataclass(frozen=True)
class LaneSpans:
    """Sound spans, sorted by row and begin.

    ``row``, ``begin_ns``, ``end_ns``, ``warp`` and ``job`` are int64[n]; times are ns from ``origin_ns``, the
    earliest begin of the launch on the ranks that are shown, all on one axis. ``uncertainty_ns`` is what the
    clock leaves open in each of them and in a span's length; None where it is not known. ``apart_ns`` is what
    the alignment of the ranks' clocks leaves open between times of two ranks: 0 for one clock, None where
    they are not aligned. ``names`` has an entry for each job.
    ``below_tick`` spans are shorter than the clock's step, ``flagged`` ones were left out; only one block in
    ``stride`` is in it.
    """

    lanes: tuple[Lane, ...]
    per_warp: bool
    origin_ns: int
    row: Ints
    begin_ns: Ints
    end_ns: Ints
    warp: Ints
    job: Ints
    names: dict[int, JobName]
    uncertainty_ns: int | None
    below_tick: int
    flagged: int
    stride: int
    apart_ns: int | None = 0

    def kind_of(self, index: int) -> str:
        """The kind of a span."""
        return self.names[int(self.job[index])].kind


def lane_spans(
    run: RunLike, step: int, launch: int, choice: LaneChoice, *, most_spans: int = MOST_SPANS
) -> LaneSpans:
    """The spans of one launch of a step.

    Raises:
        AnalysisError: no rank that was chosen stamped this launch.
    """
    clocks = rank_times(run)
    ranks = run.ranks if choice.rank is None else (choice.rank,)
    parts = [_of_rank(run, rank, step, launch, choice, clocks) for rank in ranks]
    found = [part for part in parts if part is not None]
    if not found:
        raise AnalysisError(f"launch {launch} of step {step} left no stamps on {_ranks_named(choice)}")
    stride = 1 if choice.per_warp else max(1, -(-sum(len(part.job) for part in found) // most_spans))
    lanes = _lanes(run, choice, stride, found)
    return _joined(run, found, lanes, choice, stride)


@dataclass(frozen=True)
class _RankSpans:
    rank: int
    kind: str
    launch_begin_ns: int
    block: Ints
    warp: Ints
    job: Ints
    begin_ns: Ints
    end_ns: Ints
    flagged: int


def _of_rank(
    run: RunLike, rank: int, step: int, launch: int, choice: LaneChoice, clocks: Mapping[int, RankTimes]
) -> _RankSpans | None:
    found = _launch_of(run.launches(rank), step, launch)
    if found is None:
        return None
    begin_ns, kind = found
    steps = run.steps(rank)
    base_ns = int(steps["base_ns"][steps["step"].to_pylist().index(step)].as_py())
    batch = run.spans(rank, step)
    chosen = _column(batch, "launch") == launch
    if choice.block is not None:
        chosen &= _column(batch, "block") == choice.block
    sound = chosen & (_column(batch, "flag") == FLAG_OK)
    block, warp, job, begin, dur = (
        _column(batch, name)[sound] for name in ("block", "warp", "job", "begin", "dur")
    )
    clock = clocks[rank]
    absolute = clock.aligned(base_ns + begin)
    flagged = int(chosen.sum()) - int(sound.sum())
    launch_begin_ns = int(clock.aligned(np.array([begin_ns], dtype=np.int64))[0])
    return _RankSpans(rank, kind, launch_begin_ns, block, warp, job, absolute, absolute + dur, flagged)


def _launch_of(launches: pa.Table, step: int, launch: int) -> tuple[int, str] | None:
    """When a launch began, in ns, and its kind; None for one that was not stamped."""
    chosen = (launches["step"].to_numpy() == step) & (launches["launch"].to_numpy() == launch)
    row = launches.select(["begin_ns", "kind"]).filter(chosen).slice(0, 1).to_pylist()
    return (row[0]["begin_ns"], row[0]["kind"]) if row and row[0]["begin_ns"] else None


def _lanes(run: RunLike, choice: LaneChoice, stride: int, found: list[_RankSpans]) -> tuple[Lane, ...]:
    table, ranks = run.job_table.of_kernel(found[0].kind), [part.rank for part in found]
    if choice.block is not None:
        stamping = {warp for warp in table.warp_of_pair if warp >= 0}
        warps = sorted(stamping.union(*(part.warp.tolist() for part in found)))
        return tuple(Lane(rank, choice.block, warp) for rank in ranks for warp in warps)
    blocks = run.job_table.blocks_of(found[0].kind, run.blocks)
    return tuple(Lane(rank, block, None) for rank in ranks for block in range(0, blocks, stride))


def _joined(
    run: RunLike, found: list[_RankSpans], lanes: tuple[Lane, ...], choice: LaneChoice, stride: int
) -> LaneSpans:
    numbers = {
        (lane.rank, lane.block if lane.warp is None else lane.warp): row for row, lane in enumerate(lanes)
    }
    rows = np.concatenate(
        [_rows(part, part.warp if choice.per_warp else part.block, numbers) for part in found]
    )
    begin, end, warp, job = (
        np.concatenate([getattr(part, name) for part in found])
        for name in ("begin_ns", "end_ns", "warp", "job")
    )
    order = np.lexsort((begin, rows))
    order = order[rows[order] >= 0]
    origin_ns, tick = min(part.launch_begin_ns for part in found), tick_ns(run)
    short = (end - begin < (tick or 0)) & ~is_instant(run.job_table, job)
    return LaneSpans(
        lanes=lanes,
        per_warp=choice.per_warp,
        origin_ns=origin_ns,
        row=rows[order],
        begin_ns=begin[order] - origin_ns,
        end_ns=end[order] - origin_ns,
        warp=warp[order],
        job=job[order],
        names={int(number): job_name(run.job_table, int(number)) for number in np.unique(job)},
        uncertainty_ns=tick,
        below_tick=int(np.count_nonzero(short[order])),
        flagged=sum(part.flagged for part in found),
        stride=stride,
        apart_ns=alignment_error_ns(run, [part.rank for part in found]),
    )


def _rows(part: _RankSpans, key: Ints, numbers: dict[tuple[int, int], int]) -> Ints:
    """The row of each span, -1 for one that has none."""
    row_of = np.full(int(key.max(initial=0)) + 1, -1, dtype=np.int64)
    for (rank, number), row in numbers.items():
        if rank == part.rank and number < len(row_of):
            row_of[number] = row
    return row_of[key]


def job_name(table: JobTable, job: int) -> JobName:
    """The name, op and kind of a job; ``job#N`` where the table does not have it."""
    return JobName(table.job_name(job), *op_and_kind(table, job))


def _ranks_named(choice: LaneChoice) -> str:
    return "any rank" if choice.rank is None else f"rank {choice.rank}"


def _column(batch: pa.RecordBatch, name: str) -> Ints:
    values: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return values.astype(np.int64)
