"""All waits of a step matched with what they waited for, in the scope of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.rank_clocks import RankTimes
from musetrace.analysis.gaps.producers import Match, matches
from musetrace.analysis.gaps.wait_jobs import WaitJob, narrowest_scope, wait_jobs
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.step_axis import StepAxis

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Producers:
    """By span of an axis: the ``producers.Match`` of a wait, -1 and False for everything else."""

    span: Ints
    under_way: Bools
    tied: Bools


@dataclass
class MatchedWaits:
    """The wait jobs of a run, and the scope of each as soon as it is known.

    Where the job table leaves a choice, it is the narrowest that the first step with such waits shows to tell
    nearly as much as the widest (``wait_jobs``), and stays so.
    """

    run: RunLike
    clocks: Mapping[int, RankTimes]
    jobs: list[WaitJob] = field(init=False)
    scopes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the job table."""
        self.jobs = wait_jobs(self.run.job_table)

    def of(self, axis: StepAxis) -> Producers:
        """The producers of all waits of a step."""
        size = len(axis.begin)
        found = Producers(np.full(size, -1), np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_))
        for job in self.jobs:
            part = axis.spans_of(job.wait)
            if part.stop > part.start:
                match = self.match(axis, job)
                found.span[part], found.under_way[part] = match.span, match.under_way
                found.tied[part] = match.tied
        return found

    def match(self, axis: StepAxis, job: WaitJob) -> Match:
        """The producers of the waits of one job."""
        if job.wait in self.scopes or len(job.scopes) == 1:
            return self._within(axis, job, self.scopes.setdefault(job.wait, job.scopes[0]))
        part = axis.spans_of(job.wait)
        found = {scope: self._within(axis, job, scope) for scope in job.scopes}
        waiting = {scope: one.waiting_ns(axis.begin[part], axis.end[part]) for scope, one in found.items()}
        self.scopes[job.wait] = narrowest_scope(waiting)
        return found[self.scopes[job.wait]]

    def _within(self, axis: StepAxis, job: WaitJob, scope: str) -> Match:
        return matches(
            *(axis, job.wait, job.producer, scope),
            by_iteration=job.iterates,
            clocks=self.clocks,
            tick_ns=tick_ns(self.run),
            blocks=self.run.blocks,
        )
