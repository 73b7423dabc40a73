"""Which row of an answer each job belongs to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]
Name = TypeVar("Name", bound=Hashable)

BUSY_KINDS = frozenset({"compute", "send", "recv", "sync"})
LOADING_KINDS = frozenset({"load", "prefetch"})
WAITING_KINDS = frozenset({"wait"})

_MAX_JOBS = 1 << 16


class JobRows(Generic[Name]):
    """Numbers the rows of an answer: rows of known jobs in job-table order, then those of unknown ids as met.

    ``row_of`` gives the row's name from a job id; equal names share a row, None keeps the job out. A row's
    id is its number if it has a known job, else 2^16 and the job's id: whatever is met first, ids are the
    same, and their order is that of the job table and then of unknown jobs.
    """

    def __init__(self, table: JobTable, row_of: Callable[[int], Name | None]) -> None:
        """Number the rows of the jobs that ``table`` has."""
        self._row_of = row_of
        self._rows: dict[Name, int] = {}
        self._ids: list[int] = []
        self._index = np.full(_MAX_JOBS, -1, dtype=np.int64)
        self._known = len(table.jobs)
        for job in range(self._known):
            self._enter(job)

    def _enter(self, job: int) -> None:
        name = self._row_of(job)
        if name is None:
            self._index[job] = -1
            return
        if name not in self._rows:
            self._ids.append(len(self._rows) if job < self._known else _MAX_JOBS + job)
        self._index[job] = self._rows.setdefault(name, len(self._rows))

    def of(self, job: Ints) -> Ints:
        """The row of each job, -1 where it has none."""
        for unknown in np.unique(job[job >= self._known]):
            self._enter(int(unknown))
        return self._index[job]

    def by_job(self, job: Ints) -> Ints:
        """int64[65536]: the row of every job id, -1 where it has none; those in ``job`` are there."""
        present = np.bincount(job, minlength=_MAX_JOBS)[self._known :]
        for unknown in np.flatnonzero(present) + self._known:
            self._enter(int(unknown))
        return self._index

    @property
    def names(self) -> list[Name]:
        """The rows' names, in order."""
        return list(self._rows)

    @property
    def ids(self) -> Ints:
        """The id of each row, in order."""
        return np.array(self._ids, dtype=np.int64)

    def name_of(self, row_id: int) -> Name:
        """The name of the row with an id."""
        if row_id < _MAX_JOBS:
            return self.names[row_id]
        name = self._row_of(row_id - _MAX_JOBS)
        assert name is not None
        return name


def op_and_kind(table: JobTable, job: int) -> tuple[str, str]:
    """The op and kind of a job; a job that the table does not have is an op of its own, ``job#N``."""
    known = job < len(table.jobs)
    return (table.op_name(job) if known else table.job_name(job)), table.kind_name(job)


def jobs_of_kinds(table: JobTable, kinds: frozenset[str]) -> npt.NDArray[np.bool_]:
    """bool[65536]: is the job with this id of one of the kinds? Unknown ids count as compute."""
    of_kind = np.full(_MAX_JOBS, "compute" in kinds)
    of_kind[: len(table.jobs)] = [job.kind in kinds for job in table.jobs]
    return of_kind


def is_instant(table: JobTable, job: Ints) -> npt.NDArray[np.bool_]:
    """Whether each job is stamped once only; a job that the table does not have is not."""
    known = job < len(table.jobs)
    instants = np.array([one.instant for one in table.jobs], dtype=np.bool_)
    found = np.zeros(len(job), dtype=np.bool_)
    found[known] = instants[job[known]]
    return found
