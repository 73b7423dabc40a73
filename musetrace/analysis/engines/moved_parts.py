"""Which parts of a launch move bytes: the launch, its phases between stops, its ops and its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.job_bytes import LaunchBytes
from musetrace.job_table import JobTable

LAUNCH, PHASE, OP, JOB = "launch", "phase", "op", "job"
READS, SENDS = "reads", "sends"
# The phase behind the last stop.
TO_END = "end"

_READING_KINDS = frozenset({"load", "prefetch", "compute"})


class Part(NamedTuple):
    """A part of a kind of launch, and what it moves.

    ``name`` is a job, an op, the stop that a phase ends with or :data:`TO_END`, or the kind of launch. What
    is counted, ``way``, is :data:`READS` of loads, prefetches and computes, or :data:`SENDS`. ``unknown`` are
    jobs of it that move bytes of which nobody knows how many; then ``low`` is what the others move, the rest
    is None, and ``basis`` says why. ``late`` may arrive behind the end of the part's spans.
    """

    part: str
    kind: str
    name: str
    op: str | None
    way: str
    expected: int | None
    low: int
    high: int | None
    late: int
    basis: str
    unknown: tuple[str, ...]


Parts = tuple[tuple[Part, tuple[int, ...]], ...]


@dataclass(frozen=True)
class PartsOfLaunch:
    """The parts of one kind of launch: ``jobs`` and ``ops`` with the ids of their jobs, and ``phases``.

    ``phases`` has one for each stop that was asked for and one behind the last, None where it moves nothing.
    """

    jobs: Parts
    ops: Parts
    phases: tuple[Part | None, ...]
    launch: Part | None


def parts_of_launch(table: JobTable, moved: LaunchBytes, stops: Sequence[str]) -> PartsOfLaunch:
    """The parts of a launch with these stops (:func:`stops_of`), in job-table order.

    Names of jobs that the table does not have are left out.
    """
    ids = {job.name: number for number, job in enumerate(table.jobs)}
    names = [name for name in ids if name in moved.jobs or name in moved.unknown]
    reads = [name for name in names if _way(table, ids[name]) == READS]
    op_of = {name: table.jobs[ids[name]].op for name in names}

    def part(of: str, name: str, op: str | None, way: str, jobs: Sequence[str]) -> Part:
        sums = _sum(moved, jobs)
        # All that was loaded has been used before a stop or a launch ends.
        return Part(of, moved.kind, name, op, way, *(sums if of in (OP, JOB) else sums.in_time()))

    of_ops = {op: [name for name in reads if op_of[name] == op] for op in op_of.values()}
    ops = _ops_of_launch(table, [ids[name] for name in names], stops)
    of_phases = [
        (name, [one for one in reads if op_of[one] in op_names]) for name, op_names in _phases(ops, stops)
    ]
    return PartsOfLaunch(
        jobs=tuple(
            (part(JOB, name, op_of[name], _way(table, ids[name]), [name]), (ids[name],)) for name in names
        ),
        ops=tuple(
            (part(OP, op, op, READS, jobs), tuple(ids[name] for name in jobs))
            for op, jobs in of_ops.items()
            if jobs
        ),
        phases=tuple(part(PHASE, name, None, READS, jobs) if jobs else None for name, jobs in of_phases),
        launch=part(LAUNCH, moved.kind, None, READS, reads) if reads else None,
    )


def stops_of(table: JobTable) -> tuple[str, ...]:
    """The stops between ranks, in job-table order."""
    return tuple(stop_jobs(table))


def _way(table: JobTable, job: int) -> str:
    return READS if table.jobs[job].kind in _READING_KINDS else SENDS


def _ops_of_launch(table: JobTable, jobs: Sequence[int], stops: Sequence[str]) -> list[str]:
    """The table's ops in their order, from the launch's first job that moves bytes on.

    A table of several kernels has stops of one name in each; a launch's own come behind its first job.
    """
    every = [job.op for job in table.jobs]
    of_launch = every[min(jobs, default=0) :]
    return list(dict.fromkeys(of_launch if set(stops) <= set(of_launch) else every))


def _phases(ops: Sequence[str], stops: Sequence[str]) -> Iterable[tuple[str, set[str]]]:
    """Each phase by the stop that it ends with, and its ops: those up to that stop."""
    before = 0
    for stop in stops:
        past = ops.index(stop) + 1
        yield stop, set(ops[before:past])
        before = past
    yield TO_END, set(ops[before:])


class _Sums(NamedTuple):
    expected: int | None
    low: int
    high: int | None
    late: int
    basis: str
    unknown: tuple[str, ...]

    def in_time(self) -> _Sums:
        """The same, all of which arrives before the end."""
        return self._replace(late=0)


def _sum(moved: LaunchBytes, names: Sequence[str]) -> _Sums:
    """The bytes of some jobs together, how they are known, and of which they are not."""
    known = [moved.jobs[name] for name in names if name in moved.jobs]
    lost = tuple(name for name in names if name not in moved.jobs)
    low, late = sum(one.low for one in known), sum(one.late for one in known)
    told = [moved.unknown[name] for name in lost] or [one.basis for one in known if one.basis]
    basis = "; ".join(dict.fromkeys(told))
    if lost:
        return _Sums(None, low, None, late, basis, lost)
    return _Sums(sum(one.expected for one in known), low, sum(one.high for one in known), late, basis, ())
