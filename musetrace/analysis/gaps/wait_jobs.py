"""The waits of a job table, what they wait for, and whose: as declared, or the scopes that each may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from musetrace.analysis.gaps.producers import BLOCK, RANK, RANKS
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.spans.rows import LOADING_KINDS
from musetrace.job_table import JobTable


@dataclass(frozen=True)
class WaitJob:
    """A wait job and the job that it awaits, by id.

    ``scopes`` are those that its producers may be of, narrowest first; ``iterates``: both jobs have several
    instances in a launch, and a wait is for that of its own number.
    """

    wait: int
    producer: int
    iterates: bool
    scopes: tuple[str, ...]


def wait_jobs(table: JobTable) -> list[WaitJob]:
    """All waits of a table that await a job of it, in job-table order."""
    stops = {wait for wait, _ in stop_jobs(table).values()}
    found = []
    for wait, job in enumerate(table.jobs):
        if job.kind != "wait" or job.awaits is None or job.awaits >= len(table.jobs):
            continue
        iterates = job.iterations > 1 and table.jobs[job.awaits].iterations > 1
        found.append(WaitJob(wait, job.awaits, iterates, _scopes(table, wait, job.awaits, wait in stops)))
    return found


def _scopes(table: JobTable, wait: int, producer: int, is_stop: bool) -> tuple[str, ...]:
    declared, kind = table.jobs[wait].scope, table.jobs[producer].kind
    if declared is not None:
        return (declared,)
    if kind in LOADING_KINDS:
        return (BLOCK,)
    if is_stop:
        return (RANKS,)
    return (RANK, RANKS) if kind == "send" else (BLOCK, RANK, RANKS)


def narrowest_scope(waiting_ns: Mapping[str, int]) -> str:
    """The narrowest scope that tells nearly as much as the widest.

    Args:
        waiting_ns: by scope, narrowest first: the time in which producers of this scope were not ready.

    Returns:
        The first with at least three quarters of the time of the last.
    """
    widest = list(waiting_ns.values())[-1]
    return next(scope for scope, time in waiting_ns.items() if 4 * time >= 3 * widest)
