"""What blocks that work at nothing wait for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.idle_pieces import OTHER_CAUSES, IdlePieces, KindClasses, idle_pieces
from musetrace.analysis.idle_thresholds import SHORT, IdleThresholds
from musetrace.analysis.launch_counts import LaunchCounts
from musetrace.analysis.percentiles import nearest_rank, rounded_mean
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, step_spans
from musetrace.analysis.stops import stop_jobs
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("cause", pa.string()),
    ("op", pa.string()),
    ("wait", pa.string()),
    ("awaits", pa.string()),
    ("n", pa.uint64()),
    ("with_n", pa.uint64()),
    ("pieces", pa.uint64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("contested_ns", pa.int64()),
    ("idle_p50_ns", pa.int64()),
    ("idle_p50_uncertainty_ns", pa.int64()),
    ("idle_mean_ns", pa.int64()),
    ("idle_mean_uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("share_uncertainty", pa.float64()),
    ("share_of_time", pa.float64()),
]


def idle(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    shortest_ns: int = 0,
    head_ns: int = 0,
) -> pa.Table:
    """One row per cause of idle time, waits in job-table order, then the causes that are no wait.

    An instance is a block of a launch, counted as ``block_busy`` does. Its time is the launch's length on the
    rank; it is idle where no compute, send, receive or sync job of it is under way (jobs that the table does
    not know count as busy), so that idle and busy time are the launch's to the nanosecond. Each piece of idle
    time has one cause; the ``total_ns`` of all rows are the idle time exactly.

    * ``wait`` or ``stop``: a wait covers it; ``wait`` is its job, ``op`` the job's op, ``awaits`` the job
      that it waits for. ``stop`` where the op is a stop between ranks. Where waits of several warps cover a
      piece, it is put down to the one whose warp begins its next busy job of the launch first: that warp ends
      the idleness soonest. Of equals it is the wait that ends first, then the job that is first in the table.
      A wait after which its warp does nothing busy, and one for another wait, come after all others.
    * ``head``: before the block's first span of any kind: it was launched later than others.
    * ``tail``: after its last: it has no work left.
    * ``load_only``: no wait, but a load or prefetch is under way.
    * ``unlabelled``: no job of the table says; also all time of a block that left no span.

    ``shortest_ns`` and ``head_ns`` put short times together, as ``IdleThresholds`` says, and leave none out:
    the cause of a gap that is too short to be told is ``short``. At 0, the default, every piece is told.

    ``n`` is the number of instances, the same in each row; ``with_n`` of them have idle time of this cause,
    in ``pieces``. ``idle_p50_ns`` (exact nearest rank) and ``idle_mean_ns`` are of all ``n``, 0 for those
    that have none. ``share`` is of all idle time, ``share_of_time`` of all time. ``contested_ns`` is the part
    of ``total_ns`` that waits of other jobs cover too, so that the rule above chose.

    ``total_uncertainty_ns`` takes each piece as one difference of stamps (``clock_quality``), the median's is
    a tick for each piece of the instance that has most.

    Meaning: what a block would have to get sooner. It lies where a job's stamps do not enclose its work (a
    load is stamped at issue), where a kernel does not stamp its waits (``unlabelled``), and names the nearest
    cause only: who was late with the awaited job is what ``attribution`` says. What a span covers outside its
    launch is cut off. Spans with a flag are left out (metadata ``ignored``).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind, or a threshold is negative.
    """
    counted = Counted()
    thresholds = IdleThresholds(shortest_ns, head_ns)
    classes = KindClasses.of(run)
    causes: dict[int, _Cause] = {}
    whole = _Whole()
    for spans in step_spans(run, Selection(layer_kind, rank, step), counted):
        pieces = thresholds.applied(idle_pieces(spans, run.blocks, classes), spans, classes)
        whole.add(spans, pieces)
        for cause in np.unique(pieces.cause).tolist():
            causes.setdefault(cause, _Cause()).add(spans, pieces, cause)
    tick = tick_ns(run)
    of_idle = sum_uncertainty_ns(tick, whole.counts.squares())
    rows = [
        {**cause_names(run.job_table, cause), **causes[cause].times(whole, of_idle, tick)}
        for cause in sorted(causes)
    ]
    return answer(run, _FIELDS, rows, counted)


_NO_WAIT = {**OTHER_CAUSES, SHORT: "short"}


@dataclass
class _Whole:
    """The instances of all launches: their number, their time and their idle time."""

    instances: int = 0
    wall_ns: int = 0
    idle_ns: int = 0
    counts: LaunchCounts = field(default_factory=LaunchCounts)

    def add(self, spans: StepSpans, pieces: IdlePieces) -> None:
        self.instances += len(pieces.instances)
        self.wall_ns += int(pieces.wall_ns.sum())
        self.idle_ns += int(pieces.length_ns.sum())
        self.counts.add(spans, pieces.instance % len(spans.launch_id))


@dataclass
class _Cause:
    """The idle time of one cause, as it comes; ``per_instance`` of the instances that have some."""

    per_instance: list[Ints] = field(default_factory=list)
    counts: LaunchCounts = field(default_factory=LaunchCounts)
    contested_ns: int = 0
    most_pieces: int = 0

    def add(self, spans: StepSpans, pieces: IdlePieces, cause: int) -> None:
        mine = pieces.cause == cause
        instance = pieces.instance[mine]
        starts = np.flatnonzero(np.diff(instance, prepend=-1))
        self.per_instance.append(np.add.reduceat(pieces.length_ns[mine], starts))
        self.counts.add(spans, instance % len(spans.launch_id))
        self.contested_ns += int(pieces.contested_ns[mine].sum())
        self.most_pieces = max(self.most_pieces, int(np.diff(starts, append=len(instance)).max()))

    def times(self, whole: _Whole, of_idle: int | None, tick: int | None) -> dict[str, object]:
        some = np.concatenate(self.per_instance)
        every = np.concatenate([some, np.zeros(whole.instances - len(some), dtype=np.int64)])
        total, off = int(some.sum()), sum_uncertainty_ns(tick, self.counts.squares())
        return {
            "n": whole.instances,
            "with_n": len(some),
            "pieces": int(self.counts.per_launch().sum()),
            "total_ns": total,
            "total_uncertainty_ns": off,
            "contested_ns": self.contested_ns,
            "idle_p50_ns": nearest_rank(every, (50,))[0],
            "idle_p50_uncertainty_ns": None if tick is None else tick * self.most_pieces,
            "idle_mean_ns": rounded_mean(every),
            "idle_mean_uncertainty_ns": None if off is None else -(-off // whole.instances),
            "share": total / whole.idle_ns,
            "share_uncertainty": share_uncertainty(total, off, whole.idle_ns, of_idle),
            "share_of_time": total / whole.wall_ns,
        }


def cause_names(table: JobTable, cause: int) -> dict[str, str | None]:
    """``cause``, ``op``, ``wait`` and ``awaits`` of an answer's row, by its number (``IdlePieces``)."""
    if cause in _NO_WAIT:
        return {"cause": _NO_WAIT[cause], "op": None, "wait": None, "awaits": None}
    job = table.jobs[cause]
    is_stop = any(cause == wait for wait, _ in stop_jobs(table).values())
    return {
        "cause": "stop" if is_stop else "wait",
        "op": job.op,
        "wait": job.name,
        "awaits": None if job.awaits is None else table.job_name(job.awaits),
    }
