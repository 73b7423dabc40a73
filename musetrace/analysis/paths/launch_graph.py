"""What the end of each launch depended on: its spans as a graph, of all ranks that share an axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.rank_clocks import RankTimes, rank_times
from musetrace.analysis.gaps.matched_waits import MatchedWaits, Producers
from musetrace.analysis.gaps.producers import BLOCK, RANK, RANKS
from musetrace.analysis.spans.rows import LOADING_KINDS
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, StepSpans, spans_by_step
from musetrace.analysis.spans.step_axis import StepAxis
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_TIME = np.iinfo(np.int64).min

_SCOPES = (BLOCK, RANK, RANKS)
_WORK, _LOAD, _WAIT = range(3)


@dataclass(frozen=True)
class LaunchWindows:
    """When a launch began and ended on each rank, by place of the rank; :data:`NO_TIME` where it has none.

    ``before`` is the last end of an earlier launch of the step, ``launch_before`` the id of that launch.
    """

    kind: str
    begin: Ints
    end: Ints
    before: Ints
    launch_before: Ints

    @property
    def whole(self) -> tuple[int, int]:
        """From the first begin to the last end."""
        has = self.begin != NO_TIME
        return int(self.begin[has].min()), int(self.end[has].max())


@dataclass(frozen=True)
class LaunchGraph:
    """One launch; times are ns from the first span of its step. Arrays are by span, ``rank`` is a place.

    ``native`` is a ``_core.analysis.SpanGraph``, which knows a span by its index here. ``tied``: another span
    may have been the last that a wait was for. ``error_ns[rank, rank]`` lies between the ranks' clocks.
    """

    native: Any
    step: int
    launch: int
    ranks: tuple[int, ...]
    windows: LaunchWindows
    job: Ints
    rank: Ints
    block: Ints
    warp: Ints
    begin: Ints
    end: Ints
    tied: Bools
    error_ns: Ints


def launch_graphs(
    run: RunLike, selection: Selection, counted: Counted, only: Mapping[int, Sequence[int]] | None = None
) -> Iterator[LaunchGraph]:
    """The graph of each launch in scope (or of ``only`` some, ids by step), with the spans of all its ranks.

    Ranks whose clocks cannot be set against each other have graphs of their own. A scope with a rank leaves
    out graphs without that rank, not the other ranks of a graph.
    """
    clocks = rank_times(run)
    waits = MatchedWaits(run, clocks)
    columns = {rank: LaunchColumns.of(run.launches(rank)) for rank in run.ranks}
    everywhere = Selection(selection.layer_kind, None, selection.step)
    for of_step in spans_by_step(run, everywhere, counted, only):
        for group in _aligned(of_step, clocks):
            if selection.rank is None or selection.rank in [spans.rank for spans in group]:
                yield from _Step.of(run, group, clocks, waits).graphs(columns)


def known_jobs(table: JobTable, job: Ints) -> Ints:
    """Job ids as a graph knows them: one number for all that the table does not have."""
    return np.minimum(job, len(table.jobs))


def _aligned(spans: Sequence[StepSpans], clocks: Mapping[int, RankTimes]) -> list[list[StepSpans]]:
    """Ranks by what they can be set against."""
    groups: list[list[StepSpans]] = []
    for one in spans:
        for group in groups:
            if clocks[one.rank].error_to(clocks[group[0].rank]) is not None:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


@dataclass(frozen=True)
class _Step:
    """The spans of a step, of ranks that share an axis, in the order of the axis."""

    run: RunLike
    spans: list[StepSpans]
    clocks: Mapping[int, RankTimes]
    axis: StepAxis
    job: Ints
    warp: Ints
    producers: Producers
    facts: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls, run: RunLike, spans: list[StepSpans], clocks: Mapping[int, RankTimes], waits: MatchedWaits
    ) -> _Step:
        axis = StepAxis.of(spans, clocks)
        job = np.concatenate([one.job for one in spans])
        by_job = np.argsort(job.astype(np.uint16), kind="stable")  # as the axis stands
        warp = np.concatenate([one.warp for one in spans])[by_job]
        producers = waits.of(axis)
        return cls(run, spans, clocks, axis, job[by_job], warp, producers, _facts(run.job_table, waits))

    def graphs(self, columns: Mapping[int, LaunchColumns]) -> Iterator[LaunchGraph]:
        """One launch after the other."""
        order = np.argsort(self.axis.launch.astype(np.uint16), kind="stable")
        ids, starts = np.unique(self.axis.launch[order], return_index=True)
        place = np.empty(len(order), dtype=np.int64)
        origin_ns = self._origin_ns()
        for launch, mine in zip(ids.tolist(), np.split(order, starts[1:])[: len(ids)], strict=True):
            place[mine] = np.arange(len(mine))
            yield self._graph(launch, mine, place, self._windows(columns, launch, origin_ns))

    def _origin_ns(self) -> int:
        firsts = [(one, int(one.begin.min())) for one in self.spans if len(one.begin)]
        return min(
            (int(self._aligned(one.rank, one.base_ns + np.array([first]))[0]) for one, first in firsts),
            default=0,
        )

    def _aligned(self, rank: int, times_ns: Ints) -> Ints:
        return self.clocks[rank].aligned(times_ns)

    def _windows(self, columns: Mapping[int, LaunchColumns], launch: int, origin_ns: int) -> LaunchWindows:
        kinds, rows = [], []
        for one in self.spans:
            of = columns[one.rank]
            stamped = np.flatnonzero(of.stamped & (of.step == one.step))
            mine = stamped[of.launch[stamped] == launch]
            earlier = stamped[of.launch[stamped] < launch]
            row = [NO_TIME, NO_TIME, NO_TIME, -1]
            if len(mine):
                kinds.append(str(of.kind[mine[0]]))
                times = np.array([of.begin_ns[mine[0]], of.end_ns[mine[0]]])
                row[:2] = (self._aligned(one.rank, times) - origin_ns).tolist()
                if len(earlier):
                    last = earlier[of.end_ns[earlier].argmax()]
                    row[2] = int(self._aligned(one.rank, of.end_ns[last : last + 1])[0]) - origin_ns
                    row[3] = int(of.launch[last])
            rows.append(row)
        return LaunchWindows(kinds[0], *np.array(rows, dtype=np.int64).T)

    def _graph(self, launch: int, mine: Ints, place: Ints, windows: LaunchWindows) -> LaunchGraph:
        axis, table = self.axis, self.run.job_table
        # Where an offset changes within a span, the span's end may come out before its begin.
        begin, end = axis.begin[mine], np.maximum(axis.end[mine], axis.begin[mine])
        known = known_jobs(table, self.job[mine])
        made = self.producers.span[mine]
        native = _core.analysis.SpanGraph(
            begin=begin,
            end=end,
            columns={
                "job": known,
                "rank": axis.rank[mine],
                "block": axis.rank[mine] * self.run.blocks + axis.block[mine],
                "role": _roles(table)[known],
                "warp": self.warp[mine],
                "iteration": axis.iteration[mine],
                "producer": np.where(made >= 0, place[made], -1),
                "under_way": self.producers.under_way[mine],
            },
            jobs=self.facts,
            windows=np.stack([windows.begin, windows.before], axis=1),
            tick_ns=tick_ns(self.run) or 0,
        )
        return LaunchGraph(
            native,
            self.spans[0].step,
            launch,
            axis.ranks,
            windows,
            self.job[mine],
            axis.rank[mine].astype(np.int64),
            axis.block[mine].astype(np.int64),
            self.warp[mine],
            begin,
            end,
            self.producers.tied[mine],
            self._errors(),
        )

    def _errors(self) -> Ints:
        clocks = [self.clocks[rank] for rank in self.axis.ranks]
        return np.array([[one.error_to(other) for other in clocks] for one in clocks], dtype=np.int64)


def _roles(table: JobTable) -> Ints:
    """int64[jobs + 1]: a number for the role of each job; those that the table does not have share one."""
    names = list(dict.fromkeys(job.role for job in table.jobs))
    return np.array([*(names.index(job.role) for job in table.jobs), len(names)])


def _facts(table: JobTable, waits: MatchedWaits) -> npt.NDArray[np.int32]:
    """int32[jobs + 1, 5]: class, scope, whether it iterates, whether its warps are a team, what it awaits."""
    of_job = {job.wait: job for job in waits.jobs}
    rows = []
    for number, job in enumerate(table.jobs):
        kind = _LOAD if job.kind in LOADING_KINDS else _WAIT if job.kind == "wait" else _WORK
        wait = of_job.get(number)
        scope = _SCOPES.index(waits.scopes.get(number, BLOCK))
        awaits = -1 if wait is None else wait.producer
        rows.append((kind, scope, wait is not None and wait.iterates, len(job.stamped_by) > 1, awaits))
    return np.array([*rows, (_WORK, 0, False, False, -1)], dtype=np.int32)
