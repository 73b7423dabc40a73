"""What to change in a replay: ops that take less time, and waits that cost nothing."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from musetrace.errors import AnalysisError, UsageError
from musetrace.job_table import Job, JobTable

_FORM = re.compile(r"(?P<name>.+)=(?:0|(?P<gone>gone)|(?P<percent>[+-]\d{1,6}(?:\.\d{1,3})?) ?%)")
_LEAST, _MOST = -100, 1000  # %


@dataclass(frozen=True)
class Change:
    """``jobs`` take ``factor`` of their time; or they are waits that are ``gone``.

    ``text`` is how it is written: ``gemm2=0``, ``gemm2=-10%``, ``stop3=gone``; ``how`` is ``zero``,
    ``faster``, ``slower`` or ``gone``.
    """

    text: str
    target: str
    jobs: tuple[int, ...]
    factor: Fraction
    gone: bool
    how: str

    @property
    def saved_part(self) -> float:
        """What of the time of the jobs goes away, at most; negative where they take longer."""
        return 1.0 if self.gone else float(1 - self.factor)


def replay_arrays(
    table: JobTable, changes: Sequence[Change]
) -> tuple[npt.NDArray[np.int64], int, npt.NDArray[np.uint8]]:
    """``parts``, ``whole`` and ``gone`` of a graph's replay, by job, with all these changes made."""
    whole = math.lcm(*(change.factor.denominator for change in changes))
    parts = np.full(len(table.jobs) + 1, whole, dtype=np.int64)
    gone = np.zeros(len(table.jobs) + 1, dtype=np.uint8)
    for change in changes:
        if change.gone:
            gone[list(change.jobs)] = 1
        else:
            parts[list(change.jobs)] = int(change.factor * whole)
    return parts, whole, gone


def made_together(table: JobTable, changes: Sequence[Change]) -> list[Change]:
    """The changes, each without the jobs whose waits an earlier one takes away.

    Raises:
        UsageError: two change the time of one job.
    """
    by_job: dict[int, Change] = {}
    made = []
    for change in changes:
        for job in change.jobs:
            if job in by_job and not change.gone:
                name, one = table.job_name(job), by_job[job].text
                raise UsageError(f"what if: {one} and {change.text} both change {name}: give one of them")
        made.append(replace(change, jobs=tuple(job for job in change.jobs if job not in by_job)))
        by_job |= dict.fromkeys(change.jobs, change)
    return made


def change_of(table: JobTable, text: str) -> Change:
    """Read a change: ``NAME=0``, ``NAME=-10%`` (or ``+10%``) or ``NAME=gone``; NAME is an op or a job.

    Time is what its jobs take that are no waits; gone are those that are.

    Raises:
        UsageError: the text is no change.
        AnalysisError: there is no such op or job, or it has no such jobs.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"what if {text!r}: say NAME=0, NAME=-10% or NAME=gone, with the name of an op, a stop or a job"
        )
    name, gone = found["name"].strip(), found["gone"] is not None
    percent = Fraction(-100 if found["percent"] is None else found["percent"])
    if not _LEAST <= percent <= _MOST:
        raise UsageError(f"what if {text!r}: the time of an op changes by {_LEAST} % to +{_MOST} %")
    factor = Fraction(1) if gone else 1 + percent / 100
    how = "zero" if factor == 0 else "faster" if factor < 1 else "slower"
    return Change(text.strip(), name, _jobs(table, name, gone), factor, gone, "gone" if gone else how)


def zero(table: JobTable, op: str) -> Change:
    """An op whose jobs take no time."""
    return Change(f"{op}=0", op, _jobs(table, op, False), Fraction(0), False, "zero")


def faster(table: JobTable, op: str, percent: int) -> Change:
    """An op whose jobs take so much less time."""
    return Change(
        f"{op}=-{percent}%", op, _jobs(table, op, False), 1 - Fraction(percent, 100), False, "faster"
    )


def gone(table: JobTable, name: str) -> Change:
    """Waits that cost nothing and wait for nobody: those of an op, or one job."""
    return Change(f"{name}=gone", name, _jobs(table, name, True), Fraction(1), True, "gone")


def _jobs(table: JobTable, name: str, waits: bool) -> tuple[int, ...]:
    """The jobs of an op, or the job, of this name: those that are waits, or those that are not."""
    fits: tuple[Callable[[Job], bool], ...] = (lambda job: job.op == name, lambda job: job.name == name)
    of_name: list[int] = next((found for fit in fits if (found := _where(table, fit))), [])
    if not of_name:
        known = [one for job in table.jobs for one in (job.op, job.name)]
        close = difflib.get_close_matches(name, dict.fromkeys(known), n=3)
        ops = ", ".join(dict.fromkeys(job.op for job in table.jobs))
        hint = f"did you mean {' or '.join(close)}?" if close else f"it has {ops}"
        raise AnalysisError(f"no op or job {name!r} in this run: {hint}")
    jobs = tuple(job for job in of_name if (table.jobs[job].kind == "wait") == waits)
    if not jobs:
        raise AnalysisError(
            f"{name} has no waits that could be gone: say {name}=0 or {name}=-10%"
            if waits
            else f"{name} has nothing but waits, which take the time of others: say {name}=gone"
        )
    return jobs


def _where(table: JobTable, fits: Callable[[Job], bool]) -> list[int]:
    return [number for number, job in enumerate(table.jobs) if fits(job)]
