"""Whose work each wait waited for: waits matched with the span of the awaited job that ended last.

In scopes of several blocks ``last_blocks`` (and in ``ranks`` also ``last_ranks``) name those that were last
most often, at most three, in the order of rank and block among equals, with their share of the ``last_n``
matched waits; only those with ``least_last_share`` of them or more (0, the default: any share will do). In
``cannot_tell_share`` of the matched waits more than one block may have been last: their ends lie within a
tick, or for several clocks within a tick and the errors of the alignment, or a rank is not aligned or (in
``ranks``) lost the launch. All are null in scope ``block``, and also where nothing can be told: the clock's
step is not known, or the scope is ``ranks`` and the run misses a rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import sum_uncertainty_ns
from musetrace.analysis.launch_counts import LaunchCounts
from musetrace.analysis.percentiles import nearest_rank
from musetrace.analysis.producers import BLOCK, NO_TIME, RANKS, Match, matches
from musetrace.analysis.rank_clocks import RankTimes, rank_times
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, check_scope, spans_by_step
from musetrace.analysis.step_axis import StepAxis
from musetrace.analysis.wait_jobs import narrowest_scope, wait_jobs
from musetrace.errors import AnalysisError
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

MOST_NAMED = 3

_LAST_BLOCKS = pa.list_(pa.struct([("rank", pa.uint32()), ("block", pa.uint32()), ("share", pa.float64())]))
_LAST_RANKS = pa.list_(pa.struct([("rank", pa.uint32()), ("share", pa.float64())]))
_FIELDS = [
    ("op", pa.string()),
    ("wait", pa.string()),
    ("producer_op", pa.string()),
    ("awaits", pa.string()),
    ("scope", pa.string()),
    ("n", pa.uint64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("wait_p50_ns", pa.int64()),
    ("wait_uncertainty_ns", pa.int64()),
    ("before_ns", pa.int64()),
    ("after_ns", pa.int64()),
    ("before_uncertainty_ns", pa.int64()),
    ("under_way_n", pa.uint64()),
    ("under_way_ns", pa.int64()),
    ("unmatched_n", pa.uint64()),
    ("unmatched_ns", pa.int64()),
    ("last_n", pa.uint64()),
    ("cannot_tell_share", pa.float64()),
    ("last_blocks", _LAST_BLOCKS),
    ("last_ranks", _LAST_RANKS),
]


def attribution(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    least_last_share: float = 0.0,
) -> pa.Table:
    """One row per wait job that awaits another (the producer) and has sound spans, in job-table order.

    Each of the ``n`` waits is matched with the span of the producer, of the same launch (and the same
    iteration where both jobs have several), that ended last before the wait ended; between ranks on the
    aligned axis (``clocks``), where a span may end later by the error of the alignment. Then

    * ``before_ns`` is the part of the waits before that end: the producer was not ready;
    * ``after_ns`` is the part behind it: what is left is the way from there (hop, wake-up);
    * ``under_way_ns`` of ``under_way_n`` waits ended while no producer had ended but one had begun: they
      waited for a piece of it (a load of many tiles is one span);
    * ``unmatched_ns`` of ``unmatched_n`` waits have no producer in the launch that had begun.

    The four sum up to ``total_ns``; ``share`` is that of the waits of all rows. Waits of several warps
    overlap, so this is warps' time; a block's idle time is what ``idle`` tells.

    ``scope`` says whose producers a wait was matched with: its own ``block``'s, its ``rank``'s or all
    ``ranks``'. It is what the job table declares. Where that does not tell: a load or prefetch is for its own
    block; a stop waits for all ranks; a send leaves its block; and of what is left it is the narrowest scope
    in which producers that were not ready account for at least three quarters of the time of which they do in
    the widest. Who was last, and how often, is in the columns that the module explains.

    ``total_uncertainty_ns`` takes each wait as one difference of stamps (``clock_quality``);
    ``before_uncertainty_ns``, of ``before_ns`` and of ``after_ns``, adds the error of the alignment of each
    matched producer.

    Meaning: which op to make earlier, and where. It lies where a wait needs only some of the producers (tiles
    of an expert): among many blocks one nearly always ended just before. It lies where a send's stamp comes
    after its data has arrived, and a producer of an earlier launch is not looked for. With ``rank`` only that
    rank's waits are told, still with the producers of all. Spans with a flag are left out (metadata
    ``ignored``, of all ranks).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind, or the least share is not from 0 to 1.
    """
    if not 0 <= least_last_share <= 1:
        raise AnalysisError(f"the least share of who is last is {least_last_share:g}: give one from 0 to 1")
    check_scope(run, Selection(layer_kind, rank, step))
    counted = Counted()
    clocks, tick = rank_times(run), tick_ns(run)
    pairs = _pairs(run.job_table)
    for spans in spans_by_step(run, Selection(layer_kind, None, step), counted):
        axis = StepAxis.of(spans, clocks)
        everywhere = _launches_of_all(spans, run.ranks)
        for pair in pairs:
            pair.add(axis, spans, rank, clocks, tick, run.blocks, everywhere)
    seen = [pair for pair in pairs if pair.waits]
    total_ns = sum(int(of.sum()) for pair in seen for of in pair.waits)
    whole = not run.losses.get("missing_ranks")
    rows = [pair.row(run, total_ns, whole, tick, least_last_share) for pair in seen]
    return answer(run, _FIELDS, rows, counted)


def _launches_of_all(spans: list[StepSpans], ranks: tuple[int, ...]) -> Ints:
    """The launches of a step that were seen on every rank of the run."""
    ids, counts = np.unique(np.concatenate([one.launch_id for one in spans]), return_counts=True)
    seen: Ints = ids[counts == len(ranks)]
    return seen


def _pairs(table: JobTable) -> list[_Pair]:
    return [
        _Pair(one.wait, one.producer, one.iterates, {scope: _InScope() for scope in one.scopes})
        for one in wait_jobs(table)
    ]


@dataclass
class _Pair:
    """A wait and the job that it awaits, with what was found in each scope that it may have."""

    wait: int
    producer: int
    iterates: bool
    scopes: dict[str, _InScope]
    waits: list[Ints] = field(default_factory=list)
    counts: LaunchCounts = field(default_factory=LaunchCounts)

    def add(
        self,
        axis: StepAxis,
        spans: list[StepSpans],
        rank: int | None,
        clocks: Mapping[int, RankTimes],
        tick: int | None,
        blocks: int,
        everywhere: Ints,
    ) -> None:
        """Match the waits of one step, of one rank or of all; ``everywhere`` are launches of every rank."""
        part = axis.spans_of(self.wait)
        mine = np.ones(part.stop - part.start, dtype=np.bool_)
        if rank is not None:
            mine = np.array(axis.ranks)[axis.rank[part]] == rank
        if not mine.any():
            return
        for one in spans:
            if rank in (None, one.rank):
                self.counts.add(one, one.launch[one.job == self.wait])
        begin, end = axis.begin[part][mine], axis.end[part][mine]
        self.waits.append(end - begin)
        for scope, found in self.scopes.items():
            match = matches(
                axis,
                self.wait,
                self.producer,
                scope,
                by_iteration=self.iterates,
                clocks=clocks,
                tick_ns=tick,
                blocks=blocks,
            )
            if scope == RANKS:
                match = replace(match, tied=match.tied | ~np.isin(axis.launch[part], everywhere))
            found.add(match.of(mine), begin, end, np.array(axis.ranks), blocks)

    def row(
        self, run: RunLike, all_ns: int, whole: bool, tick: int | None, least_share: float
    ) -> dict[str, object]:
        """The answer's row."""
        scope = narrowest_scope({name: one.waiting_ns for name, one in self.scopes.items()})
        found, waits = self.scopes[scope], np.concatenate(self.waits)
        jobs, total = run.job_table.jobs, int(waits.sum())
        off = sum_uncertainty_ns(tick, self.counts.squares())
        told = tick is not None and scope != BLOCK and (whole or scope != RANKS)
        return {
            "op": jobs[self.wait].op,
            "wait": jobs[self.wait].name,
            "producer_op": jobs[self.producer].op,
            "awaits": jobs[self.producer].name,
            "scope": scope,
            "n": len(waits),
            "total_ns": total,
            "total_uncertainty_ns": off,
            "share": total / all_ns if all_ns else None,
            "wait_p50_ns": nearest_rank(waits, (50,))[0],
            "wait_uncertainty_ns": tick,
            "before_ns": found.before_ns,
            "after_ns": found.after_ns,
            "before_uncertainty_ns": None if off is None else off + found.error_ns,
            "under_way_n": found.under_way_n,
            "under_way_ns": found.under_way_ns,
            "unmatched_n": len(waits) - found.matched_n - found.under_way_n,
            "unmatched_ns": total - found.waiting_ns - found.after_ns,
            "last_n": found.matched_n,
            **(found.last(run.blocks, scope, least_share) if told else {}),
        }


@dataclass
class _InScope:
    """Sums over the waits of one pair, matched in one scope; ``lasts`` counts waits by rank and block."""

    matched_n: int = 0
    tied_n: int = 0
    under_way_n: int = 0
    before_ns: int = 0
    after_ns: int = 0
    under_way_ns: int = 0
    error_ns: int = 0
    lasts: dict[int, int] = field(default_factory=dict)

    @property
    def waiting_ns(self) -> int:
        """Time in which a producer was not ready."""
        return self.before_ns + self.under_way_ns

    def add(self, match: Match, begin: Ints, end: Ints, ranks: Ints, blocks: int) -> None:
        """Add one step; ``begin`` and ``end`` of each wait, ``ranks`` by their places."""
        has = match.end != NO_TIME
        before = np.clip(match.end[has] - begin[has], 0, (end - begin)[has])
        self.matched_n += int(has.sum())
        self.tied_n += int((has & match.tied).sum())
        self.under_way_n += int(match.under_way.sum())
        self.before_ns += int(before.sum())
        self.after_ns += int((end - begin)[has].sum() - before.sum())
        self.under_way_ns += int((end - begin)[match.under_way].sum())
        self.error_ns += int(match.error_ns[has].sum())
        who, counts = np.unique(match.who[has & ~match.tied], return_counts=True)
        for one, count in zip((ranks[who // blocks] * blocks + who % blocks).tolist(), counts, strict=True):
            self.lasts[one] = self.lasts.get(one, 0) + int(count)

    def last(self, blocks: int, scope: str, least_share: float) -> dict[str, object]:
        """Who was last how often."""
        if not self.matched_n:
            return {}
        by_rank: dict[int, int] = {}
        for who, count in self.lasts.items():
            by_rank[who // blocks] = by_rank.get(who // blocks, 0) + count
        least = least_share * self.matched_n
        return {
            "cannot_tell_share": self.tied_n / self.matched_n,
            "last_blocks": [
                {"rank": who // blocks, "block": who % blocks, "share": count / self.matched_n}
                for who, count in _most(self.lasts, least)
            ],
            "last_ranks": [
                {"rank": rank, "share": count / self.matched_n} for rank, count in _most(by_rank, least)
            ]
            if scope == RANKS
            else None,
        }


def _most(counts: Mapping[int, int], least: float) -> list[tuple[int, int]]:
    enough = [one for one in counts.items() if one[1] >= least]
    return sorted(enough, key=lambda one: (-one[1], one[0]))[:MOST_NAMED]
