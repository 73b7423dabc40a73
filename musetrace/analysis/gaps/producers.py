"""For each wait the span of the awaited job that ended last before the wait did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.certainty.rank_clocks import RankTimes
from musetrace.analysis.spans.step_axis import StepAxis

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_TIME = np.iinfo(np.int64).min
_NEVER_APART = 1 << 62  # further than any two times of a step

# Whose spans of the awaited job a wait may have waited for: its own block's, its rank's, all ranks'.
BLOCK, RANK, RANKS = "block", "rank", "ranks"


@dataclass(frozen=True)
class Match:
    """One entry per wait.

    ``end`` is when the last producer ended, :data:`NO_TIME` where none had; ``who`` is its
    ``rank * blocks + block`` (rank as a place). ``tied``: one of another block may have been the last.
    ``under_way``: none had ended, but one had begun. ``error_ns`` is that of the producer's clock. ``span``
    is the producer's place on the axis: of the one that ended last; where one is under way, of the one that
    began last; -1 where there is none.
    """

    end: Ints
    who: Ints
    span: Ints
    tied: Bools
    under_way: Bools
    error_ns: Ints

    def of(self, chosen: Bools) -> Match:
        """Some of the waits."""
        return Match(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def waiting_ns(self, begin: Ints, end: Ints) -> int:
        """The time in which a producer was not ready, of all waits; these begin and end then."""
        has = self.end != NO_TIME
        before = np.clip(self.end[has] - begin[has], 0, (end - begin)[has])
        return int(before.sum() + (end - begin)[self.under_way].sum())


def matches(
    axis: StepAxis,
    wait: int,
    producer: int,
    scope: str,
    *,
    by_iteration: bool,
    clocks: Mapping[int, RankTimes],
    tick_ns: int | None,
    blocks: int,
) -> Match:
    """Match every span of the job ``wait`` with one of the job ``producer`` of the same launch in ``scope``.

    Of one clock, what ended before the wait has a stamp that is no later than the wait's: rounding down keeps
    the order. Of another clock, one that is later by no more than the error between the two. A clock that
    is not aligned with the wait's has no candidates, and leaves who was last open.
    """
    waits, made = axis.spans_of(wait), axis.spans_of(producer)
    names = np.array([clocks[rank].clock for rank in axis.ranks])
    apart_ns = _NEVER_APART if tick_ns is None else tick_ns
    found = []
    # Producers of the wait's own rank are of its clock.
    for clock in np.unique(names) if scope == RANKS else (None,):
        error, aligned = _errors(axis, clocks, clock, names)
        of_clock = np.ones(len(names), dtype=np.bool_) if clock is None else names == clock
        end, who, span, tied, under_way, error_ns = _core.analysis.last_producers(
            _columns(axis, waits),
            _columns(axis, made),
            scope,
            by_iteration,
            blocks,
            apart_ns,
            error,
            aligned.view(np.uint8),
            of_clock.view(np.uint8),
        )
        span[span >= 0] += made.start
        found.append(Match(end, who, span, tied.view(np.bool_), under_way.view(np.bool_), error_ns))
    return found[0] if len(found) == 1 else _latest(found, axis, tick_ns)


def sums_by_rank(axis: StepAxis, wait: int, match: Match, blocks: int) -> Ints:
    """int64[ranks, 7] over the waits of each rank that were matched.

    The number of those matched, of these tied, and of those under way; ns before the producer's end, behind
    it, of those under way, and errors of the producers' clocks.
    """
    sums: Ints = _core.analysis.match_sums(
        _columns(axis, axis.spans_of(wait)),
        len(axis.ranks),
        blocks,
        match.end,
        match.tied.view(np.uint8),
        match.under_way.view(np.uint8),
        match.error_ns,
    )
    return sums


def _columns(axis: StepAxis, part: slice) -> tuple[npt.NDArray[Any], ...]:
    columns = (axis.begin, axis.end, axis.rank, axis.launch, axis.block, axis.iteration)
    return tuple(column[part] for column in columns)


def _errors(
    axis: StepAxis, clocks: Mapping[int, RankTimes], clock: int | None, names: npt.NDArray[np.int64]
) -> tuple[Ints, Bools]:
    """By rank of a wait: the error to the ranks of a clock, and whether they are aligned with it.

    Clock None is the wait's own.
    """
    if clock is None:
        return np.zeros(len(names), dtype=np.int64), np.ones(len(names), dtype=np.bool_)
    of_clock = [clocks[rank] for rank, name in zip(axis.ranks, names, strict=True) if name == clock]
    errors = [[clocks[rank].error_to(other) for other in of_clock] for rank in axis.ranks]
    aligned = np.array([None not in of_rank for of_rank in errors], dtype=np.bool_)
    worst = [max((error or 0 for error in of_rank), default=0) for of_rank in errors]
    return np.array(worst, dtype=np.int64), aligned


def _latest(of_clocks: Sequence[Match], axis: StepAxis, tick_ns: int | None) -> Match:
    """The latest of the matches of several clocks; tied where these cannot tell which one is."""
    end, who, span, tied, under_way, error = (
        np.stack([getattr(one, name) for one in of_clocks])
        for name in ("end", "who", "span", "tied", "under_way", "error_ns")
    )
    latest, every = end.argmax(axis=0), np.arange(end.shape[1])
    has = end != NO_TIME
    apart_ns = _NEVER_APART if tick_ns is None else error + error[latest, every] + tick_ns
    near = has & (end[latest, every] - np.where(has, end, 0) < apart_ns)
    near[latest, every] = False
    begun = np.where(span >= 0, axis.begin[span], NO_TIME).argmax(axis=0)
    return Match(
        end=end[latest, every],
        who=who[latest, every],
        span=np.where(has.any(axis=0), span[latest, every], span[begun, every]),
        tied=tied[latest, every] | near.any(axis=0) | (tied & ~has).any(axis=0),
        under_way=under_way.any(axis=0) & ~has.any(axis=0),
        error_ns=error[latest, every],
    )
