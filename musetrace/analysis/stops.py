"""How long each rank waits at each stop, and whose data comes last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread, spread_fields, tick_ns
from musetrace.analysis.last_rank import may_be_last
from musetrace.analysis.launch_counts import LaunchCounts, launch_key
from musetrace.analysis.rank_clocks import RankTimes, rank_times
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, step_spans
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
    counted = Counted()
    jobs = stop_jobs(run.job_table)
    seen = {(stop, rank): _Seen() for stop in jobs for rank in run.ranks}
    for spans in step_spans(run, Selection(layer_kind, None, step), counted):
        for stop, (wait, send) in jobs.items():
            seen[stop, spans.rank].add(spans, wait, send)
    clocks = rank_times(run)
    rows: list[dict[str, object]] = []
    for stop in jobs:
        rows += _stop_rows(
            stop,
            {rank: seen[stop, rank] for rank in run.ranks},
            not run.losses.get("missing_ranks"),
            clocks,
            tick_ns(run),
        )
    for row in rows:
        row["observed"] = counted.seen[cast(int, row["rank"])].share
    return answer(run, _FIELDS, rows, counted)


def stop_jobs(table: JobTable) -> dict[str, tuple[int, int | None]]:
    """The stops of a job table: op name to (id of the wait for the ranks, id of the job it awaits)."""
    return {
        job.op: (index, job.awaits)
        for index, job in enumerate(table.jobs)
        if job.kind == "wait" and job.name == job.op + STOP_WAIT_SUFFIX
    }


@dataclass
class _Seen:
    """What one rank did at one stop: its waits, and when its send was through in each launch."""

    waits: list[Ints] = field(default_factory=list)
    wait_counts: LaunchCounts = field(default_factory=LaunchCounts)
    launches: list[Ints] = field(default_factory=list)
    sent_ns: list[Ints] = field(default_factory=list)

    def add(self, spans: StepSpans, wait: int, send: int | None) -> None:
        of_wait = spans.job == wait
        self.waits.append(spans.end[of_wait] - spans.begin[of_wait])
        self.wait_counts.add(spans, spans.launch[of_wait])
        if send is None:
            return
        of_send = spans.job == send
        sent = np.full(len(spans.launch_id), -1, dtype=np.int64)
        np.maximum.at(sent, spans.launch[of_send], spans.end[of_send])
        present = sent >= 0
        self.launches.append(launch_key(spans.step, spans.launch_id[present]))
        self.sent_ns.append(spans.base_ns + sent[present])


def _stop_rows(
    stop: str, seen: dict[int, _Seen], all_ranks: bool, clocks: dict[int, RankTimes], tick: int | None
) -> list[dict[str, object]]:
    waits = {rank: _joined(one.waits) for rank, one in seen.items()}
    last_n, lasts = _last(seen, clocks, tick) if all_ranks else (0, {})
    return [
        {
            "stop": stop,
            "rank": rank,
            "n": len(waits[rank]),
            **spread("wait", waits[rank], seen[rank].wait_counts.per_launch(), tick),
            "last_n": last_n,
            "last_share": lasts[rank][0] / last_n if last_n else None,
            "tied_share": lasts[rank][1] / last_n if last_n else None,
        }
        for rank in seen
        if len(waits[rank])
    ]


def _last(
    seen: dict[int, _Seen], clocks: dict[int, RankTimes], tick: int | None
) -> tuple[int, dict[int, tuple[int, int]]]:
    """The number of launches that every rank was seen in, and by rank in how many it was last and tied."""
    launches = {rank: _joined(one.launches) for rank, one in seen.items()}
    ids, counts = np.unique(_joined(list(launches.values())), return_counts=True)
    shared = ids[counts == len(seen)]
    if len(seen) < 2 or len(shared) == 0:
        return 0, {}
    sent = np.stack([_sent_ns(one, launches[rank], shared) for rank, one in seen.items()])
    late = may_be_last(sent, [clocks[rank] for rank in seen], tick)
    if late is None:
        return 0, {}
    alone = late.sum(axis=0) == 1
    last, tied = (late & alone).sum(axis=1), (late & ~alone).sum(axis=1)
    return len(shared), {rank: (int(last[i]), int(tied[i])) for i, rank in enumerate(seen)}


def _sent_ns(one: _Seen, launches: Ints, shared: Ints) -> Ints:
    """When the send was through in each launch of ``shared``; both lists of launches are sorted."""
    sent: Ints = _joined(one.sent_ns)[np.searchsorted(launches, shared)]
    return sent


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
