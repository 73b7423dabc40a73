"""How much of the idle time lies behind the end of each op."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.idle_pieces import KindClasses
from musetrace.analysis.instances import extents
from musetrace.analysis.intervals import newly_covered, opens_piece, sorted_axis
from musetrace.analysis.launch_counts import LaunchCounts
from musetrace.analysis.percentiles import nearest_rank, rounded_mean
from musetrace.analysis.rows import JobRows, op_and_kind
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, counted_blocks, step_spans

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("op", pa.string()),
    ("n", pa.uint64()),
    ("without_n", pa.uint64()),
    ("after_p50_ns", pa.int64()),
    ("after_uncertainty_ns", pa.int64()),
    ("idle_p50_ns", pa.int64()),
    ("idle_p50_uncertainty_ns", pa.int64()),
    ("idle_mean_ns", pa.int64()),
    ("idle_mean_uncertainty_ns", pa.int64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("share_uncertainty", pa.float64()),
    ("share_of_time", pa.float64()),
]


def idle_after(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per op that is busy, in job-table order: the idle time from its end to the launch's end.

    In each block of each launch the op ends with the latest end of its compute, send, receive and sync jobs.
    ``after_p50_ns`` is the median time from there to the end of the launch on that rank, ``idle_*`` the part
    of it in which the block is idle (``idle`` says when), over the ``n`` instances (blocks of launches) that
    run the op. ``share`` is ``total_ns``, the idle time after the op, by the idle time of all instances, also
    of the ``without_n`` that do not run it; ``share_of_time`` is the time after the op by the time of all.
    Where ``share`` is much larger than ``share_of_time``, idle time gathers behind the op.

    Uncertainties take each busy piece after the op as one difference of stamps (``clock_quality``).

    Meaning: "from GEMM 2 to the end: x us of idle per block, y % of all idle". It lies where launches of
    different shape are pooled: give ``layer_kind``. Spans with a flag are left out (metadata ``ignored``).
    Source: the article, "almost half of the idle time lies after GEMM 2".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    counted = Counted()
    classes = KindClasses.of(run)

    def busy_op(job: int) -> str | None:
        return op_and_kind(run.job_table, job)[0] if classes.busy[job] else None

    rows = JobRows(run.job_table, busy_op)
    ops: dict[int, _Op] = {}
    whole = _Whole()
    for spans in step_spans(run, Selection(layer_kind, rank, step), counted):
        _collect(spans, run.blocks, rows, ops, whole)
    tick = tick_ns(run)
    of_idle = sum_uncertainty_ns(tick, whole.counts.squares())
    found = [
        {"op": name, **ops[at].times(whole, of_idle, tick)} for at, name in enumerate(rows.names) if at in ops
    ]
    return answer(run, _FIELDS, found, counted)


@dataclass
class _Whole:
    """All instances: their number, their time and their idle time."""

    instances: int = 0
    wall_ns: int = 0
    idle_ns: int = 0
    counts: LaunchCounts = field(default_factory=LaunchCounts)


@dataclass
class _Op:
    """What lies behind one op's end, int64[instances] as they come."""

    after: list[Ints] = field(default_factory=list)
    idle: list[Ints] = field(default_factory=list)
    differences: list[Ints] = field(default_factory=list)
    counts: LaunchCounts = field(default_factory=LaunchCounts)

    def times(self, whole: _Whole, of_idle: int | None, tick: int | None) -> dict[str, object]:
        after, idle = np.concatenate(self.after), np.concatenate(self.idle)
        total, most = int(idle.sum()), int(np.concatenate(self.differences).max())
        off = sum_uncertainty_ns(tick, self.counts.squares())
        return {
            "n": len(idle),
            "without_n": whole.instances - len(idle),
            "after_p50_ns": nearest_rank(after, (50,))[0],
            "after_uncertainty_ns": tick,
            "idle_p50_ns": nearest_rank(idle, (50,))[0],
            "idle_p50_uncertainty_ns": None if tick is None else tick * most,
            "idle_mean_ns": rounded_mean(idle),
            "idle_mean_uncertainty_ns": None if off is None else -(-off // len(idle)),
            "total_ns": total,
            "total_uncertainty_ns": off,
            "share": total / whole.idle_ns if whole.idle_ns else None,
            "share_uncertainty": share_uncertainty(total, off, whole.idle_ns, of_idle),
            "share_of_time": int(after.sum()) / whole.wall_ns if whole.wall_ns else None,
        }


def _collect(spans: StepSpans, blocks: int, rows: JobRows[str], ops: dict[int, _Op], whole: _Whole) -> None:
    """Add one (rank, step): idle time after an instant is the time after it less the busy time after it."""
    launches = len(spans.launch_id)
    wall = spans.launch_end - spans.launch_begin
    op = rows.of(spans.job)
    busy = op >= 0
    instance = (spans.block * launches + spans.launch)[busy]
    begin, end = (
        np.clip(times[busy] - spans.launch_begin[spans.launch[busy]], 0, wall[spans.launch[busy]])
        for times in (spans.begin, spans.end)
    )
    reach = int(wall.max()) + 1
    order, begin, end = sorted_axis(instance, begin, end, reach)
    instance = instance[order]
    pieces = _Busy.of(begin, end)
    counting = np.flatnonzero(counted_blocks(spans, blocks).T)
    launch = counting % launches
    whole.instances += len(counting)
    whole.wall_ns += int(wall[launch].sum())
    idle, number = pieces.idle(counting * reach, counting * reach + wall[launch])
    whole.idle_ns += int(idle.sum())
    whole.counts.add(spans, np.repeat(launch, number))
    size = launches * blocks
    key, _, last = extents(op[busy][order] * size + instance, begin, end, len(rows.names) * size)
    for at in np.unique(key // size).tolist():
        mine = key // size == at
        of_op = key[mine] % size
        window = of_op * reach + wall[of_op % launches]
        idle, number = pieces.idle(last[mine], window)
        found = ops.setdefault(at, _Op())
        found.after.append(window - last[mine])
        found.idle.append(idle)
        found.differences.append(number)
        found.counts.add(spans, np.repeat(of_op % launches, number))


@dataclass(frozen=True)
class _Busy:
    """Busy spans on an axis, as :func:`newly_covered` takes them, with running sums of what they cover."""

    begin: Ints
    reached: Ints  # int64[n], the latest end of the spans up to each
    covered: Ints  # int64[n + 1], what the spans before each cover
    pieces: Ints  # int64[n + 1]

    @classmethod
    def of(cls, begin: Ints, end: Ints) -> _Busy:
        covered, opens = newly_covered(begin, end), opens_piece(begin, end)
        sums = (np.append(0, np.cumsum(of)) for of in (covered, opens))
        return cls(begin, np.maximum.accumulate(end), *sums)

    def idle(self, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Idle time from each begin to each end, and of how many differences of stamps it is the sum."""
        first, past = (np.searchsorted(self.begin, times) for times in (begin, end))
        busy = self._covered_until(end, past) - self._covered_until(begin, first)
        return end - begin - busy, self.pieces[past] - self.pieces[first] + 1

    def _covered_until(self, times: Ints, before: Ints) -> Ints:
        """What the spans cover up to some times, given how many begin before each."""
        if not len(self.begin):
            return np.zeros(len(times), dtype=np.int64)
        over = np.where(before > 0, self.reached[before - 1] - times, 0)
        covered: Ints = self.covered[before] - np.maximum(over, 0)
        return covered
