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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import sum_uncertainty_ns
from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.gaps.producers import BLOCK, NO_TIME, RANK, RANKS, Match, matches, sums_by_rank
from musetrace.analysis.gaps.wait_jobs import WaitJob, narrowest_scope, wait_jobs
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State, StatesByRank
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans
from musetrace.analysis.spans.step_axis import StepAxis
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]

MOST_NAMED = 3

_SCOPES = (BLOCK, RANK, RANKS)

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
    question = replace(ATTRIBUTION, finish=partial(_finish, least_share=least_last_share))
    return ask(run, question, Selection(layer_kind, rank, step))


def _launches_of_all(spans: Sequence[StepSpans], ranks: tuple[int, ...]) -> Ints:
    """The launches of a step that were seen on every rank of the run."""
    ids, counts = np.unique(np.concatenate([one.launch_id for one in spans]), return_counts=True)
    seen: Ints = ids[counts == len(ranks)]
    return seen


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    clocks = rank_times(run)
    axis = StepAxis.of(spans, clocks)
    everywhere = _launches_of_all(spans, run.ranks)
    states = StatesByRank(len(spans))
    for pair in wait_jobs(run.job_table):
        part = axis.spans_of(pair.wait)
        if part.start == part.stop:
            continue
        states.add("wait_ns", axis.rank[part], pair.wait, axis.end[part] - axis.begin[part])
        states.add_launches("waits", axis.rank[part], pair.wait, axis.launch[part])
        for scope in pair.scopes:
            match = matches(
                axis,
                pair.wait,
                pair.producer,
                scope,
                by_iteration=pair.iterates,
                clocks=clocks,
                tick_ns=tick_ns(run),
                blocks=run.blocks,
            )
            if scope == RANKS:
                elsewhere = ~np.isin(axis.launch[part], everywhere)
                match = replace(match, tied=match.tied | elsewhere)
            _add_scope(states, axis, pair, scope, match, run.blocks)
    return states.states()


def _add_scope(
    states: StatesByRank, axis: StepAxis, pair: WaitJob, scope: str, match: Match, blocks: int
) -> None:
    """Add one step's waits of a pair, matched in one scope."""
    number, ranks = _SCOPES.index(scope), np.array(axis.ranks)
    sums = sums_by_rank(axis, pair.wait, match, blocks)
    place, what = np.indices(sums.shape)
    states.add("sums", place.ravel(), pair.wait, number, what.ravel(), sums=sums.ravel())
    if scope != BLOCK:  # who it is goes without saying
        certain = (match.end != NO_TIME) & ~match.tied
        last = KeySums.of(axis.rank[axis.spans_of(pair.wait)][certain], match.who[certain])
        of, who = last.keys
        states.add("last", of, pair.wait, number, ranks[who // blocks], who % blocks, sums=last.sums)


def _finish(
    run: RunLike, selection: Selection, state: State, counted: Counted, least_share: float = 0.0
) -> pa.Table:
    waits = {wait: ValueCounts.of(of_wait) for wait, of_wait in state.sum_of("wait_ns", 2).groups()}
    all_ns = sum(counts.total for counts in waits.values())
    sums = state.sum_of("sums", 3).as_dict()
    last = dict(state.sum_of("last", 4).groups())
    rows: list[dict[str, object]] = []
    for pair in wait_jobs(run.job_table):
        if pair.wait in waits:
            found = [_InScope.of(scope, pair.wait, sums, last.get(pair.wait)) for scope in pair.scopes]
            squares = state.square_of("waits", pair.wait)
            rows.append(_row(run, pair, found, waits[pair.wait], squares, all_ns, least_share))
    return answer(run, _FIELDS, rows, counted)


def _row(
    run: RunLike,
    pair: WaitJob,
    scopes: Sequence[_InScope],
    waits: ValueCounts,
    squares: int,
    all_ns: int,
    least_share: float,
) -> dict[str, object]:
    scope = narrowest_scope({one.scope: one.waiting_ns for one in scopes})
    found = next(one for one in scopes if one.scope == scope)
    jobs, tick, total = run.job_table.jobs, tick_ns(run), waits.total
    off = sum_uncertainty_ns(tick, squares)
    told = tick is not None and found.scope != BLOCK
    told = told and (found.scope != RANKS or not run.losses.get("missing_ranks"))
    return {
        "op": jobs[pair.wait].op,
        "wait": jobs[pair.wait].name,
        "producer_op": jobs[pair.producer].op,
        "awaits": jobs[pair.producer].name,
        "scope": found.scope,
        "n": waits.n,
        "total_ns": total,
        "total_uncertainty_ns": off,
        "share": total / all_ns if all_ns else None,
        "wait_p50_ns": waits.nearest_rank((50,))[0],
        "wait_uncertainty_ns": tick,
        "before_ns": found.before_ns,
        "after_ns": found.after_ns,
        "before_uncertainty_ns": None if off is None else off + found.error_ns,
        "under_way_n": found.under_way_n,
        "under_way_ns": found.under_way_ns,
        "unmatched_n": waits.n - found.matched_n - found.under_way_n,
        "unmatched_ns": total - found.waiting_ns - found.after_ns,
        "last_n": found.matched_n,
        **(found.last(least_share) if told else {}),
    }


@dataclass(frozen=True)
class _InScope:
    """Sums over the waits of one pair, matched in one scope; ``lasts`` counts waits by rank and block."""

    scope: str
    lasts: Mapping[tuple[int, ...], int]
    # As sums_by_rank has them.
    matched_n: int
    tied_n: int
    under_way_n: int
    before_ns: int
    after_ns: int
    under_way_ns: int
    error_ns: int

    @classmethod
    def of(cls, scope: str, wait: int, sums: Mapping[tuple[int, ...], int], last: KeySums | None) -> _InScope:
        """The sums of a wait in a scope; ``last`` of the wait, by scope, rank and block."""
        number = _SCOPES.index(scope)
        mine = {} if last is None else dict(last.groups())
        lasts = mine[number].as_dict() if number in mine else {}
        return cls(scope, lasts, *(sums.get((wait, number, what), 0) for what in range(7)))

    @property
    def waiting_ns(self) -> int:
        """Time in which a producer was not ready."""
        return self.before_ns + self.under_way_ns

    def last(self, least_share: float) -> dict[str, object]:
        """Who was last how often."""
        if not self.matched_n:
            return {}
        by_rank: dict[tuple[int, ...], int] = {}
        for (rank, _), count in self.lasts.items():
            by_rank[(rank,)] = by_rank.get((rank,), 0) + count
        least = least_share * self.matched_n
        return {
            "cannot_tell_share": self.tied_n / self.matched_n,
            "last_blocks": [
                {"rank": rank, "block": block, "share": count / self.matched_n}
                for (rank, block), count in _most(self.lasts, least)
            ],
            "last_ranks": [
                {"rank": rank, "share": count / self.matched_n} for (rank,), count in _most(by_rank, least)
            ]
            if self.scope == RANKS
            else None,
        }


def _most(counts: Mapping[tuple[int, ...], int], least: float) -> list[tuple[tuple[int, ...], int]]:
    enough = [one for one in counts.items() if one[1] >= least]
    return sorted(enough, key=lambda one: (-one[1], one[0]))[:MOST_NAMED]


ATTRIBUTION = Question("attribution", 1, _accumulate, _finish, all_ranks=True)
