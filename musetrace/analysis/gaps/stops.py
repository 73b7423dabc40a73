"""How long each rank waits at each stop, and whose data comes last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread_fields, spread_of_counts, tick_ns
from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.gaps.last_rank import may_be_last
from musetrace.analysis.gaps.sends import Sends, seen_on_every_rank
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

STOP_WAIT_SUFFIX = "_wait_ranks"

_FIELDS = [
    ("stop", pa.string()),
    ("rank", pa.uint32()),
    ("n", pa.uint64()),
    *spread_fields("wait"),
    ("last_n", pa.uint64()),
    ("last_share", pa.float64()),
    ("tied_share", pa.float64()),
    ("observed", pa.float64()),
]


def stops(run: RunLike, *, layer_kind: str | None = None, step: int | None = None) -> pa.Table:
    """One row per (stop, rank), stops in job-table order: its wait for the other ranks, and who came last.

    A stop is an op with a wait job named ``<op>_wait_ranks``. ``wait_*`` are exact nearest-rank percentiles
    of the ``n`` spans of that job on the rank. In each launch, the rank on which the awaited job (the send)
    ended last over all blocks is last; ``last_share`` is the share of the ``last_n`` launches in which this
    rank was, for certain; ``tied_share`` that of launches in which it was one of several that the clock
    cannot tell apart: within a tick of one clock, and of several clocks within a tick and the error of their
    alignment (``musetrace.analysis.clocks``). Only launches that were seen on every rank are judged, and none
    when the run misses a rank or has only one (whoever is not seen may have been last), when the clock's step
    is not known, or when a rank is not aligned. Then both are null. A stop that a rank did not stamp has no
    row for it.

    Meaning: the cost of ranks that run apart, and which one to look at. A rank that waits little is the one
    that the others wait for. A wait whose data is already there still lasts a few ticks. Spans with a flag
    are left out (metadata ``ignored``). Source: the five stops of a Muse layer launch.

    Raises:
        AnalysisError: the run has no such step or layer kind.
    """
    return ask(run, STOPS, Selection(layer_kind, None, step))


def stop_jobs(table: JobTable) -> dict[str, tuple[int, int | None]]:
    """The stops of a job table: op name to (id of the wait for the ranks, id of the job it awaits)."""
    return {
        job.op: (index, job.awaits)
        for index, job in enumerate(table.jobs)
        if job.kind == "wait" and job.name == job.op + STOP_WAIT_SUFFIX
    }


def stop_number(op: str) -> int | None:
    """The number that a stop goes by, 3 for ``stop3``; None for one without."""
    digits = op[len(op.rstrip("0123456789")) :]
    return int(digits) if digits else None


def first_stop(table: JobTable) -> str | None:
    """The first stop that goes by a number, or else the first; None without any."""
    stops = list(stop_jobs(table))
    return next((op for op in stops if stop_number(op) is not None), stops[0] if stops else None)


# Of the launches that were judged, by stop and rank.
_JUDGED, _LAST, _TIED = range(3)


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    states = [State() for _ in spans]
    for stop, (wait, send) in enumerate(stop_jobs(run.job_table).values()):
        for one, state in zip(spans, states, strict=True):
            waits = np.flatnonzero(one.job == wait)
            state.add("wait", stop, one.rank, one.end[waits] - one.begin[waits])
            state.add_launches("wait", stop, one.rank, one.launch_id[one.launch[waits]])
        if send is not None:
            _add_last(run, stop, [Sends.of(one, send, run.blocks) for one in spans], states)
    return states


def _add_last(run: RunLike, stop: int, sends: Sequence[Sends], states: Sequence[State]) -> None:
    """Who was last in the launches of one step that every rank was seen in."""
    every = seen_on_every_rank(run, sends)
    if every is None:
        return
    shared, sent = every
    clocks = rank_times(run)
    late = may_be_last(sent, [clocks[one.spans.rank] for one in sends], tick_ns(run))
    if late is None:
        return
    alone = late.sum(axis=0) == 1
    for one, state, its in zip(sends, states, late, strict=True):
        numbers = (len(shared), int((its & alone).sum()), int((its & ~alone).sum()))
        for what, number in zip((_JUDGED, _LAST, _TIED), numbers, strict=True):
            state.add("last", stop, one.spans.rank, what, sums=number)


def lasts(state: State) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Of a state of ``STOPS``, by (stop, rank): in how many launches it can be told who was last, in how many
    of them this rank was for certain, and in how many it was one of several.
    """
    found = state.sum_of("last", 3).as_dict()
    return {
        (stop, rank): (judged, found.get((stop, rank, _LAST), 0), found.get((stop, rank, _TIED), 0))
        for (stop, rank, what), judged in found.items()
        if what == _JUDGED
    }


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    names, tick = list(stop_jobs(run.job_table)), tick_ns(run)
    last_of = {} if run.losses.get("missing_ranks") else lasts(state)
    rows: list[dict[str, object]] = []
    for stop, of_stop in state.sum_of("wait", 3).groups():
        for rank, of_rank in of_stop.groups():
            counts, squares = ValueCounts.of(of_rank), state.square_of("wait", stop, rank)
            judged, last, tied = last_of.get((stop, rank), (0, 0, 0))
            rows.append(
                {
                    "stop": names[stop],
                    "rank": rank,
                    "n": counts.n,
                    **spread_of_counts("wait", counts, squares, tick),
                    "last_n": judged,
                    "last_share": last / judged if judged else None,
                    "tied_share": tied / judged if judged else None,
                    "observed": counted.seen[rank].share,
                }
            )
    return answer(run, _FIELDS, rows, counted)


STOPS = Question("stops", 1, _accumulate, _finish, all_ranks=True)
