"""How much of the idle time lies behind the end of each op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace import _core
from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.gaps.idle_pieces import KindClasses
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.rows import JobRows, op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, counted_blocks

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
    return ask(run, IDLE_AFTER, Selection(layer_kind, rank, step))


# What is added up over all instances.
_INSTANCES, _WALL, _IDLE = range(3)


def _rows(run: RunLike, classes: KindClasses) -> JobRows[str]:
    return JobRows(
        run.job_table, lambda job: op_and_kind(run.job_table, job)[0] if classes.busy[job] else None
    )


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    rows = _rows(run, KindClasses.of(run))
    return [_state(one, run.blocks, rows) for one in spans]


def _state(spans: StepSpans, blocks: int, rows: JobRows[str]) -> State:
    """One (rank, step): idle time after an instant is the time after it less the busy time after it."""
    state = State()
    launches = len(spans.launch_id)
    wall = spans.launch_end - spans.launch_begin
    counting = np.flatnonzero(counted_blocks(spans, blocks).T)
    row_of_job = rows.by_job(spans.job)
    instance, row, behind, idle, number = spans.by_instance(blocks).idle_behind(
        counting, row_of_job, len(rows.names)
    )
    launch_id = spans.launch_id[instance % launches]
    whole = row == _core.analysis.WHOLE_LAUNCH
    sums = (len(counting), wall[counting % launches].sum(), idle[whole].sum())
    for what, sum_of in zip((_INSTANCES, _WALL, _IDLE), sums, strict=True):
        state.add("whole", what, sums=int(sum_of))
    state.add_launches("whole", 0, launch_id[whole], sums=number[whole])
    row_id = rows.ids[row[~whole]]
    for name, values in (("after", behind), ("idle", idle), ("differences", number)):
        state.add(name, row_id, values[~whole])
    state.add_launches("differences", row_id, launch_id[~whole], sums=number[~whole])
    return state


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    rows = _rows(run, KindClasses.of(run))
    after, idle, differences = (
        {row: ValueCounts.of(of_row) for row, of_row in state.sum_of(name, 2).groups()}
        for name in ("after", "idle", "differences")
    )
    found = [
        {"op": rows.name_of(row), **_times(row, after[row], idle[row], differences[row], state, tick_ns(run))}
        for row in after
    ]
    return answer(run, _FIELDS, found, counted)


def _times(
    row: int, after: ValueCounts, idle: ValueCounts, differences: ValueCounts, state: State, tick: int | None
) -> dict[str, object]:
    instances, wall_ns, idle_ns = (state.number("whole", what) for what in (_INSTANCES, _WALL, _IDLE))
    off = sum_uncertainty_ns(tick, state.square_of("differences", row))
    of_idle = sum_uncertainty_ns(tick, state.square_of("whole", 0))
    return {
        "n": idle.n,
        "without_n": instances - idle.n,
        "after_p50_ns": after.nearest_rank((50,))[0],
        "after_uncertainty_ns": tick,
        "idle_p50_ns": idle.nearest_rank((50,))[0],
        "idle_p50_uncertainty_ns": None if tick is None else tick * int(differences.values[-1]),
        "idle_mean_ns": idle.rounded_mean(),
        "idle_mean_uncertainty_ns": None if off is None else -(-off // idle.n),
        "total_ns": idle.total,
        "total_uncertainty_ns": off,
        "share": idle.total / idle_ns if idle_ns else None,
        "share_uncertainty": share_uncertainty(idle.total, off, idle_ns, of_idle),
        "share_of_time": after.total / wall_ns if wall_ns else None,
    }


def gathering(table: pa.Table) -> dict[str, Any] | None:
    """The row of the op behind which idle time gathers most: whose share exceeds that of the time by most.

    None where no op's share exceeds it by more than its uncertainty.
    """
    rows = [row for row in table.to_pylist() if _excess(row) > 0]
    return max(rows, key=_excess, default=None)


def _excess(row: dict[str, Any]) -> float:
    if row["share"] is None or row["share_uncertainty"] is None:
        return 0.0
    excess = float(row["share"] - row["share_of_time"])
    return excess if excess > row["share_uncertainty"] else 0.0


IDLE_AFTER = Question("idle_after", 1, _accumulate, _finish)
