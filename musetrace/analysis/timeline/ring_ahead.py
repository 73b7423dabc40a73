"""How far ahead of its use each load is issued: the weight ring running ahead across op boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace import _core
from musetrace.analysis.answer import answer, spread_fields, spread_of_counts, tick_ns
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.rows import LOADING_KINDS
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("load", pa.string()),
    ("op", pa.string()),
    ("n", pa.uint64()),
    *spread_fields("ahead"),
    ("ops_between_p50", pa.uint32()),
    ("ops_between_low_p50", pa.uint32()),
    ("ops_between_high_p50", pa.uint32()),
    ("during_op", pa.string()),
    ("during_share", pa.float64()),
    ("during_unclear_share", pa.float64()),
]
_ABSENT = np.iinfo(np.int64).max
_NEVER_APART = 1 << 62  # further than any two times of a step, nearer than _ABSENT is to them
_NOT_YET, _UNCLEAR = -1, -2


def ring_ahead(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per load or prefetch job, in job-table order: how long before its op's compute it began.

    An instance is one block in one (rank, step, launch) that did both the load and its op's compute:
    ``ahead = earliest begin of the op's compute - earliest begin of the load``; ``ahead_*`` are exact
    nearest-rank percentiles over the ``n`` instances. ``ops_between_p50`` is the median number of other ops
    whose compute the block still had to finish between the two: op boundaries that the load crossed. It takes
    stamps as they are; the true one is from ``ops_between_low_p50`` to ``ops_between_high_p50``, which count
    only the ends, and also the ends, that the clock does not tell from the begin of the load or compute.
    ``during_op`` is the op whose compute the block had begun last when the load began, in the largest share
    (``during_share``) of the instances; null where the block had not computed yet. In
    ``during_unclear_share`` of them the clock does not tell: where these could make another op the one,
    ``during_op`` and ``during_share`` are both null.

    Meaning: zero boundaries crossed says that the load was issued when the op was reached, so that its
    latency is in the open; the more it is ahead, the more is hidden. Prefetches and loads of activations
    are rows too: an activation cannot be asked for before it exists. A load of many tiles counts from its
    first. Negative: the compute did not wait for the load. Spans with a flag are left out (metadata
    ``ignored``). Source: the article's reading of its figure, "issued 7 us before stop 1's data".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, RING_AHEAD, Selection(layer_kind, rank, step))


@dataclass(frozen=True)
class _Ops:
    """The ops that compute, and int64[jobs]: the op of each compute job, -1 for the other jobs."""

    names: tuple[str, ...]
    of_job: Ints

    @classmethod
    def of(cls, table: JobTable) -> _Ops:
        names = tuple(dict.fromkeys(job.op for job in table.jobs if job.kind == "compute"))
        of_job = [names.index(job.op) if job.kind == "compute" else -1 for job in table.jobs]
        return cls(names, np.asarray(of_job, dtype=np.int64))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    ops = _Ops.of(run.job_table)
    loads = {
        index: ops.names.index(job.op)
        for index, job in enumerate(run.job_table.jobs)
        if job.kind in LOADING_KINDS and job.op in ops.names
    }
    return [_state(one, ops, loads, run) for one in spans]


def _state(spans: StepSpans, ops: _Ops, loads: Mapping[int, int], run: RunLike) -> State:
    """One (rank, step); ``loads`` has the number of the op of each load job."""
    state = State()
    row_of_job = np.full(1 << 16, -1, dtype=np.int64)
    row_of_job[: len(ops.of_job)] = ops.of_job
    row_of_job[list(loads)] = len(ops.names) + np.arange(len(loads))
    row, launch, block, begin, end = _core.analysis.op_extents(
        spans.columns, run.blocks, row_of_job, len(ops.names) + len(loads)
    )
    place, taken = _numbered(launch * run.blocks + block, len(spans.launch_id) * run.blocks)
    begins, ends = (np.full((len(ops.names), len(taken)), _ABSENT, dtype=np.int64) for _ in range(2))
    computes = row < len(ops.names)
    begins[row[computes], place[computes]] = begin[computes]
    ends[row[computes], place[computes]] = end[computes]
    apart_ns = tick_ns(run) or _NEVER_APART
    for number, (job, own) in enumerate(loads.items(), start=len(ops.names)):
        mine = slice(*np.searchsorted(row, (number, number + 1)).tolist())
        at, load_begin = place[mine], begin[mine]
        used = begins[own, at] != _ABSENT
        if not used.any():
            continue
        at, load_begin = at[used], load_begin[used]
        state.add("ahead", job, begins[own, at] - load_begin)
        for way, between in enumerate(_between(load_begin, own, begins[:, at], ends[:, at], apart_ns)):
            state.add("between", job, way, between)
        state.add("during", job, _during(load_begin, begins[:, at], apart_ns))
        state.add_launches("ahead", job, spans.launch_id[taken[at] // run.blocks])
    return state


def _numbered(values: Ints, limit: int) -> tuple[Ints, Ints]:
    """``values`` in [0, limit) renamed to 0, 1, 2... in their order, and the values by their new names."""
    present = np.zeros(limit, dtype=np.bool_)
    present[values] = True
    names: Ints = np.cumsum(present) - 1
    return names[values], np.flatnonzero(present)


def _between(load_begin: Ints, own: int, begins: Ints, ends: Ints, apart_ns: int) -> Ints:
    """Ends of other ops after a load's begin and not after its op's: as stamped, at least, at most.

    ``begins`` and ``ends`` are int64[ops, loads]; instants that are ``apart_ns`` apart are told apart.
    """
    after, before = ends - load_begin, begins[own] - ends
    within = np.stack(
        [
            (after > 0) & (before >= 0),
            (after >= apart_ns) & (before >= apart_ns),
            (after > -apart_ns) & (before > -apart_ns),
        ]
    )
    within[:, own] = False
    counts: Ints = within.sum(axis=1)
    return counts


def _during(load_begin: Ints, begins: Ints, apart_ns: int) -> Ints:
    """The op of ``begins``, int64[ops, loads], that began last before each load."""
    begun = np.where(begins <= load_begin, begins, -1)
    last, which = begun.max(axis=0), begun.argmax(axis=0)
    # What may have begun before the load and is not for certain before the op that began last by its stamp.
    rival = (begins - load_begin < apart_ns) & (last - begins < apart_ns)
    is_last = (np.arange(len(begins))[:, None] == which) & (last >= 0)
    rival = np.where(is_last, load_begin - begins < apart_ns, rival)
    clear = np.where(last >= 0, which, _NOT_YET)
    return np.where(rival.any(axis=0), _UNCLEAR, clear)


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    ops, tick = _Ops.of(run.job_table), tick_ns(run)
    between, during = (
        dict(state.sum_of(name, width).groups()) for name, width in (("between", 3), ("during", 2))
    )
    rows = [
        {
            "load": run.job_table.jobs[job].name,
            "op": run.job_table.jobs[job].op,
            "n": int(ahead.sums.sum()),
            **spread_of_counts("ahead", ValueCounts.of(ahead), state.square_of("ahead", job), tick),
            **_boundaries(between[job], tick),
            **_op_during(during[job], ops, tick),
        }
        for job, ahead in state.sum_of("ahead", 2).groups()
    ]
    return answer(run, _FIELDS, rows, counted)


def _boundaries(between: KeySums, tick: int | None) -> dict[str, object]:
    stamped, low, high = (ValueCounts.of(of_way).nearest_rank((50,))[0] for _, of_way in between.groups())
    return {
        "ops_between_p50": stamped,
        "ops_between_low_p50": None if tick is None else low,
        "ops_between_high_p50": None if tick is None else high,
    }


def _op_during(during: KeySums, ops: _Ops, tick: int | None) -> dict[str, object]:
    numbers = np.zeros(len(ops.names) + 2, dtype=np.int64)
    numbers[during.keys[0] - _UNCLEAR] = during.sums
    unclear, *clear = numbers.tolist()
    n = int(numbers.sum())
    second, first = sorted(clear)[-2:]
    told = tick is not None and first - second > unclear
    most = clear.index(first) + _NOT_YET
    return {
        "during_op": ops.names[most] if told and most != _NOT_YET else None,
        "during_share": first / n if told else None,
        "during_unclear_share": None if tick is None else unclear / n,
    }


RING_AHEAD = Question("ring_ahead", 1, _accumulate, _finish)
