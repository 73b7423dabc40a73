"""How far ahead of its use each load is issued: the weight ring running ahead across op boundaries."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.abi import JobTable
from musetrace.analysis.answer import answer, spread, spread_fields
from musetrace.analysis.instances import extents
from musetrace.analysis.percentiles import nearest_rank
from musetrace.analysis.rows import LOADING_KINDS
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Ignored, Selection, StepSpans, step_spans

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("load", pa.string()),
    ("op", pa.string()),
    ("n", pa.uint64()),
    *spread_fields("ahead"),
    ("ops_between_p50", pa.uint32()),
    ("during_op", pa.string()),
    ("during_share", pa.float64()),
]
_ABSENT = np.iinfo(np.int64).max


def ring_ahead(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per load or prefetch job, in job-table order: how long before its op's compute it began.

    An instance is one block in one (rank, step, launch) that did both the load and its op's compute:
    ``ahead = earliest begin of the op's compute - earliest begin of the load``; ``ahead_*`` are exact
    nearest-rank percentiles over the ``n`` instances. ``ops_between_p50`` is the median number of other ops
    whose compute the block still had to finish between the two: op boundaries that the load crossed.
    ``during_op`` is the op whose compute the block had begun last when the load began, in the largest share
    (``during_share``) of the instances; null where the block had not computed yet. Ties go to the earlier
    op of the job table.

    Meaning: zero boundaries crossed says that the load was issued when the op was reached, so that its
    latency is in the open; the more it is ahead, the more is hidden. Prefetches and loads of activations
    are rows too: an activation cannot be asked for before it exists. A load of many tiles counts from its
    first. Negative: the compute did not wait for the load. Spans with a flag are left out (metadata
    ``ignored``). Source: the article's reading of its figure, "issued 7 us before stop 1's data".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    ignored = Ignored()
    ops = _Ops.of(run.job_table)
    loads = {
        index: _Found()
        for index, job in enumerate(run.job_table.jobs)
        if job.kind in LOADING_KINDS and job.op in ops.names
    }
    for spans in step_spans(run, Selection(layer_kind, rank, step), ignored):
        _collect(spans, ops, loads, run)
    names = run.job_table.jobs
    rows = [_row(names[job].name, names[job].op, ops, found) for job, found in loads.items() if found.ahead]
    return answer(run, _FIELDS, rows, ignored)


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


@dataclass
class _Found:
    """The instances of one load job, as they come; ``during`` is -1 where the block had not computed yet."""

    ahead: list[Ints] = field(default_factory=list)
    between: list[Ints] = field(default_factory=list)
    during: list[Ints] = field(default_factory=list)


def _collect(spans: StepSpans, ops: _Ops, loads: dict[int, _Found], run: RunLike) -> None:
    known = spans.job < len(run.job_table.jobs)
    place, places = _numbered(spans.launch * run.blocks + spans.block, len(spans.launch_id) * run.blocks)
    op = np.full(len(spans.job), -1, dtype=np.int64)
    op[known] = ops.of_job[spans.job[known]]
    computes = op >= 0
    begins, ends = (np.full((len(ops.names), places), _ABSENT, dtype=np.int64) for _ in range(2))
    key = op[computes] * places + place[computes]
    key, first, last = extents(key, spans.begin[computes], spans.end[computes], begins.size)
    begins.flat[key], ends.flat[key] = first, last
    for job, found in loads.items():
        is_load = spans.job == job
        at, load_begin, _ = extents(place[is_load], spans.begin[is_load], spans.end[is_load], places)
        own = ops.names.index(run.job_table.jobs[job].op)
        used = begins[own, at] != _ABSENT
        if used.any():
            _compare(load_begin[used], own, begins[:, at[used]], ends[:, at[used]], found)


def _numbered(values: Ints, limit: int) -> tuple[Ints, int]:
    """``values`` in [0, limit) renamed to 0, 1, 2... in their order, and how many different ones they are."""
    present = np.zeros(limit, dtype=np.bool_)
    present[values] = True
    names: Ints = np.cumsum(present) - 1
    return names[values], int(present.sum())


def _compare(load_begin: Ints, own: int, begins: Ints, ends: Ints, found: _Found) -> None:
    """Place loads among the computes of their blocks: ``begins`` and ``ends`` are int64[ops, loads]."""
    own_begin = begins[own]
    between = (ends > load_begin) & (ends <= own_begin)
    between[own] = False
    begun = np.where(begins <= load_begin, begins, -1)
    during = np.where((begun >= 0).any(axis=0), begun.argmax(axis=0), -1)
    found.ahead.append(own_begin - load_begin)
    found.between.append(between.sum(axis=0))
    found.during.append(during)


def _row(load: str, op: str, ops: _Ops, found: _Found) -> dict[str, object]:
    ahead, during = np.concatenate(found.ahead), np.concatenate(found.during)
    counts = np.bincount(during + 1, minlength=len(ops.names) + 1)
    most = int(counts.argmax())
    return {
        "load": load,
        "op": op,
        "n": len(ahead),
        **spread("ahead", nearest_rank(ahead)),
        "ops_between_p50": nearest_rank(np.concatenate(found.between).astype(np.int64), (50,))[0],
        "during_op": ops.names[most - 1] if most else None,
        "during_share": counts[most] / len(ahead),
    }
