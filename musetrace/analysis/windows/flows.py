"""What a wait waited for and who waited for a span, by the rule of ``attribution``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.gaps.attribution import attribution
from musetrace.analysis.gaps.producers import RANKS, Match, matches
from musetrace.analysis.gaps.wait_jobs import WaitJob, wait_jobs
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, spans_by_step
from musetrace.analysis.spans.step_axis import StepAxis

Ints = npt.NDArray[np.int64]

MOST_CONSUMERS = 64
NO_WAIT = "It is no wait."
NOT_DECLARED = "The job table does not say what it waits for."
NOT_CERTAIN = "Its times are not certain, or its launch left no stamps."


@dataclass(frozen=True)
class Related:
    """A span at the other end of a flow; times are ns from the run's origin."""

    rank: int
    step: int
    id: int
    block: int
    job: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Producer:
    """What a wait waited for, or the reason why it is not known.

    ``late_by_ns`` is how long it was not ready while the wait lasted: up to its end, or all the time where it
    was still ``under_way``. ``tied``: a span of another block may have been the last. ``error_ns`` is what
    the alignment of the ranks' clocks leaves open.
    """

    span: Related | None
    reason: str = ""
    scope: str = ""
    late_by_ns: int = 0
    tied: bool = False
    under_way: bool = False
    error_ns: int = 0


@dataclass(frozen=True)
class Consumers:
    """The waits that a span is the producer of, by begin, at most ``MOST_CONSUMERS``; ``total`` of all."""

    spans: list[Related]
    total: int


def wait_scopes(run: RunLike, step: int | None = None) -> dict[int, str]:
    """The scope of each wait job, as ``attribution`` of a step tells it, or of the run."""
    declared = {pair.wait: pair.scopes[0] for pair in wait_jobs(run.job_table) if len(pair.scopes) == 1}
    open_ones = [pair for pair in wait_jobs(run.job_table) if len(pair.scopes) > 1]
    if not open_ones:
        return declared
    told = attribution(run, step=step).select(["op", "wait", "scope"]).to_pylist()
    by_name = {(row["op"], row["wait"]): row["scope"] for row in told}
    jobs = run.job_table.jobs
    found = {one.wait: by_name.get((jobs[one.wait].op, jobs[one.wait].name)) for one in open_ones}
    return declared | {wait: scope for wait, scope in found.items() if scope is not None}


class LaunchFlows:
    """The flows of one launch of a step, over all ranks."""

    def __init__(
        self, run: RunLike, axis: RunAxis, step: int, launch: int, scopes: Mapping[int, str]
    ) -> None:
        """Read the launch; ``scopes`` are those of the wait jobs."""
        self._run, self._run_axis, self._step, self._launch = run, axis, step, launch
        self._scopes = scopes
        steps = spans_by_step(run, Selection(step=step), Counted(), only={step: [launch]})
        self._spans: list[StepSpans] = next(steps, [])
        self._axis = StepAxis.of(self._spans, axis.clocks) if self._spans else None
        self._ids: dict[int, Ints] = {}

    def producer(self, rank: int, span: int) -> Producer:
        """What the wait with this number waited for."""
        here = self._place(rank, span)
        if here is None:
            return Producer(None, NOT_CERTAIN)
        place, job = here
        table = self._run.job_table
        pair = next((one for one in self._pairs if one.wait == job), None)
        if pair is None:
            is_wait = table.kind_name(job) == "wait"
            return Producer(None, NOT_DECLARED if is_wait else NO_WAIT)
        match, at = self._match(pair), place - self._axis_of.spans_of(job).start
        if match is None:
            return Producer(None, "Nothing tells whose spans it may have waited for.")
        scope = self._scopes[pair.wait]
        if match.span[at] < 0:
            return Producer(None, self._reason(pair, bool(match.tied[at])), scope)
        begin, end = int(self._axis_of.begin[place]), int(self._axis_of.end[place])
        under_way = bool(match.under_way[at])
        late_ns = end - begin if under_way else min(max(int(match.end[at]) - begin, 0), end - begin)
        tied, error_ns = bool(match.tied[at]), int(match.error_ns[at])
        if scope == RANKS and len(self._spans) < len(self._run.ranks):
            tied = True
        made = self._related(pair.producer, int(match.span[at]))
        return Producer(made, "", scope, late_ns, tied, under_way, error_ns)

    def consumers(self, rank: int, span: int) -> Consumers:
        """The waits that the span with this number was the producer of."""
        here = self._place(rank, span)
        if here is None:
            return Consumers([], 0)
        place, job = here
        waits: list[tuple[int, int, int]] = []
        for pair in self._pairs:
            match = self._match(pair) if pair.producer == job else None
            if match is not None:
                start = self._axis_of.spans_of(pair.wait).start
                mine = np.flatnonzero(match.span == place) + start
                waits += [(int(self._axis_of.begin[one]), pair.wait, int(one)) for one in mine]
        waits.sort()
        return Consumers([self._related(of, one) for _, of, one in waits[:MOST_CONSUMERS]], len(waits))

    @cached_property
    def _pairs(self) -> list[WaitJob]:
        return wait_jobs(self._run.job_table)

    @property
    def _axis_of(self) -> StepAxis:
        assert self._axis is not None
        return self._axis

    def _match(self, pair: WaitJob) -> Match | None:
        """The producers of all waits of a pair; None where its scope is not known."""
        if pair.wait not in self._scopes:
            return None
        return matches(
            *(self._axis_of, pair.wait, pair.producer, self._scopes[pair.wait]),
            by_iteration=pair.iterates,
            clocks=self._run_axis.clocks,
            tick_ns=tick_ns(self._run),
            blocks=self._run.blocks,
        )

    def _reason(self, pair: WaitJob, not_aligned: bool) -> str:
        name = self._run.job_table.job_name(pair.producer)
        if not_aligned:
            return f"The ranks' clocks are not aligned: nobody can tell which {name} ended last."
        return f"No {name} of this launch had begun when the wait ended."

    def _ids_of(self, rank: int) -> Ints:
        """Where the sound spans of the launch stand in ``run.spans``."""
        if rank not in self._ids:
            batch = self._run.spans(rank, self._step)
            sound = (_column(batch, "launch") == self._launch) & (_column(batch, "flag") == 0)
            self._ids[rank] = np.flatnonzero(sound & (_column(batch, "block") < self._run.blocks))
        return self._ids[rank]

    def _of_job(self, rank: int, job: int) -> tuple[Ints, int]:
        """The numbers of a rank's spans of a job, and where on the axis the first of them stands."""
        at = next(at for at, one in enumerate(self._spans) if one.rank == rank)
        part = self._axis_of.spans_of(job)
        start = part.start + int(np.searchsorted(self._axis_of.rank[part], at))
        # Both keep the store's order within a job.
        return self._ids_of(rank)[self._spans[at].job == job], start

    def _place(self, rank: int, span: int) -> tuple[int, int] | None:
        """Where a span stands on the axis, and its job; None for one that is not sound."""
        mine = next((one for one in self._spans if one.rank == rank), None)
        if mine is None:
            return None
        at = int(np.searchsorted(self._ids_of(rank), span))
        if at == len(mine.job) or self._ids_of(rank)[at] != span:
            return None
        job = int(mine.job[at])
        ids, start = self._of_job(rank, job)
        return start + int(np.searchsorted(ids, span)), job

    def _related(self, job: int, place: int) -> Related:
        one = self._spans[int(self._axis_of.rank[place])]
        ids, start = self._of_job(one.rank, job)
        at = int(np.flatnonzero(self._ids_of(one.rank) == ids[place - start])[0])
        begin = one.base_ns + one.begin[at : at + 1]
        begin_ns = int(self._run_axis.on_axis(one.rank, begin)[0])
        length_ns = int(one.end[at] - one.begin[at])
        span = int(ids[place - start])
        return Related(one.rank, self._step, span, int(one.block[at]), job, begin_ns, begin_ns + length_ns)


def _column(batch: Any, name: str) -> Any:
    return batch.column(name).to_numpy(zero_copy_only=False)
