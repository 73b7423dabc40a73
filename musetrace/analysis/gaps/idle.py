"""What blocks that work at nothing wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.gaps.idle_pieces import OTHER_CAUSES, IdlePieces, KindClasses, idle_pieces
from musetrace.analysis.gaps.idle_thresholds import SHORT, IdleThresholds
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans
from musetrace.job_table import JobTable

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
    thresholds = IdleThresholds(shortest_ns, head_ns)
    question = IDLE
    if thresholds != _EVERY_PIECE:  # of any that may be asked for nothing is kept
        question = replace(IDLE, accumulate=partial(_accumulate, thresholds=thresholds), is_kept=False)
    return ask(run, question, Selection(layer_kind, rank, step))


_EVERY_PIECE = IdleThresholds()
_NO_WAIT = {**OTHER_CAUSES, SHORT: "short"}

# What is added up over all instances.
_INSTANCES, _WALL, _IDLE = range(3)


def _accumulate(
    run: RunLike, spans: Sequence[StepSpans], thresholds: IdleThresholds = _EVERY_PIECE
) -> list[State]:
    classes = KindClasses.of(run)
    return [
        _state(one, thresholds.applied(idle_pieces(one, run.blocks, classes), one, classes)) for one in spans
    ]


def _state(spans: StepSpans, pieces: IdlePieces) -> State:
    state = State()
    launches = len(spans.launch_id)
    whole = (len(pieces.instances), int(pieces.wall_ns.sum()), int(pieces.length_ns.sum()))
    for what, number in zip((_INSTANCES, _WALL, _IDLE), whole, strict=True):
        state.add("whole", what, sums=number)
    for name, sums in (("idle_ns", pieces.length_ns), ("pieces", 1)):
        of_instance = KeySums.of(pieces.cause, pieces.instance, sums=sums)
        state.add(name, of_instance.keys[0], of_instance.sums)
    state.add("contested_ns", pieces.cause, sums=pieces.contested_ns)
    launch = spans.launch_id[pieces.instance % launches]
    state.add_launches("pieces", pieces.cause, launch)
    state.add_launches("all_pieces", 0, launch)
    return state


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    tick = tick_ns(run)
    pieces = dict(state.sum_of("pieces", 2).groups())
    rows = [
        {
            **cause_names(run.job_table, cause),
            **_times(cause, ValueCounts.of(idle_ns), ValueCounts.of(pieces[cause]), state, tick),
        }
        for cause, idle_ns in state.sum_of("idle_ns", 2).groups()
    ]
    return answer(run, _FIELDS, rows, counted)


def _times(
    cause: int, some: ValueCounts, pieces: ValueCounts, state: State, tick: int | None
) -> dict[str, object]:
    """The columns of a cause: ``some`` ns of the instances that have it, and in how many pieces."""
    instances, wall_ns, idle_ns = (state.number("whole", what) for what in (_INSTANCES, _WALL, _IDLE))
    every = some.with_zeros(instances - some.n)
    off = sum_uncertainty_ns(tick, state.square_of("pieces", cause))
    of_idle = sum_uncertainty_ns(tick, state.square_of("all_pieces", 0))
    return {
        "n": instances,
        "with_n": some.n,
        "pieces": pieces.total,
        "total_ns": some.total,
        "total_uncertainty_ns": off,
        "contested_ns": state.number("contested_ns", cause),
        "idle_p50_ns": every.nearest_rank((50,))[0],
        "idle_p50_uncertainty_ns": None if tick is None else tick * int(pieces.values[-1]),
        "idle_mean_ns": every.rounded_mean(),
        "idle_mean_uncertainty_ns": None if off is None else -(-off // instances),
        "share": some.total / idle_ns,
        "share_uncertainty": share_uncertainty(some.total, off, idle_ns, of_idle),
        "share_of_time": some.total / wall_ns,
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


IDLE = Question("idle", 1, _accumulate, _finish)
