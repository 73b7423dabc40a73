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

    ``row_of`` gives the row's name from a job id; equal names share a row, None keeps the job out.
    """

    def __init__(self, table: JobTable, row_of: Callable[[int], Name | None]) -> None:
        """Number the rows of the jobs that ``table`` has."""
        self._row_of = row_of
        self._rows: dict[Name, int] = {}
        self._index = np.full(_MAX_JOBS, -1, dtype=np.int64)
        self._known = len(table.jobs)
        for job in range(self._known):
            self._enter(job)

    def _enter(self, job: int) -> None:
        name = self._row_of(job)
        self._index[job] = -1 if name is None else self._rows.setdefault(name, len(self._rows))

    def of(self, job: Ints) -> Ints:
        """The row of each job, -1 where it has none."""
        for unknown in np.unique(job[job >= self._known]):
            self._enter(int(unknown))
        return self._index[job]

    @property
    def names(self) -> list[Name]:
        """The rows' names, in order."""
        return list(self._rows)


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
