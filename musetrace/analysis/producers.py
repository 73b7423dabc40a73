"""For each wait the span of the awaited job that ended last before the wait did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from musetrace.analysis.rank_clocks import RankTimes
from musetrace.analysis.step_axis import StepAxis

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
    groups = [_group(axis, part, scope, by_iteration, blocks) for part in (waits, made)]
    who = axis.rank[made] * blocks + axis.block[made]
    place = np.arange(made.start, made.stop)
    names = np.array([clocks[rank].clock for rank in axis.ranks])
    if scope != RANKS:  # producers are of the wait's own rank, hence of its clock
        one = _Sorted.of(groups[1], axis.begin[made], axis.end[made], who, place, axis.reach)
        waited = waits.stop - waits.start
        same = np.zeros(waited, dtype=np.int64), np.ones(waited, dtype=np.bool_)
        return one.last(groups[0], axis.end[waits], *same, tick_ns)
    found = [_nothing(waits.stop - waits.start)]
    for clock in np.unique(names):
        of_clock = names[axis.rank[made]] == clock
        error, aligned = _errors(axis, clocks, int(clock), names)
        begin, end = axis.begin[made][of_clock], axis.end[made][of_clock]
        candidates = _Sorted.of(groups[1][of_clock], begin, end, who[of_clock], place[of_clock], axis.reach)
        rank = axis.rank[waits]
        found.append(candidates.last(groups[0], axis.end[waits], error[rank], aligned[rank], tick_ns))
    return _latest(found, axis, tick_ns)


def _group(axis: StepAxis, part: slice, scope: str, by_iteration: bool, blocks: int) -> Ints:
    """A number for what a span can be matched within."""
    group = axis.launch[part]
    if by_iteration:
        group = group * (int(axis.iteration.max(initial=0)) + 1) + axis.iteration[part]
    if scope != RANKS:
        group = group * len(axis.ranks) + axis.rank[part]
    if scope == BLOCK:
        group = group * blocks + axis.block[part]
    return group


def _errors(
    axis: StepAxis, clocks: Mapping[int, RankTimes], clock: int, names: npt.NDArray[np.int64]
) -> tuple[Ints, Bools]:
    """By rank of a wait: the error to the ranks of a clock, and whether they are aligned with it."""
    of_clock = [clocks[rank] for rank, name in zip(axis.ranks, names, strict=True) if name == clock]
    errors = [[clocks[rank].error_to(other) for other in of_clock] for rank in axis.ranks]
    aligned = np.array([None not in of_rank for of_rank in errors], dtype=np.bool_)
    worst = [max((error or 0 for error in of_rank), default=0) for of_rank in errors]
    return np.array(worst, dtype=np.int64), aligned


@dataclass(frozen=True)
class _Sorted:
    """Producers of one clock by (group, end), as keys ``group * reach + time``.

    ``rival`` is the latest end of another block of the group before each, :data:`NO_TIME` where none is.
    """

    reach: int
    ends: Ints
    group: Ints
    who: Ints
    span: Ints
    rival: Ints
    begins: Ints  # sorted for themselves, with the spans that begin then
    began: Ints

    @classmethod
    def of(cls, group: Ints, begin: Ints, end: Ints, who: Ints, span: Ints, reach: int) -> _Sorted:
        reach *= 2  # so that a time that the error of a clock moves stays in its group
        key, opened = group * reach + end, group * reach + begin
        order, by_begin = np.lexsort((span, who, key)), np.lexsort((span, opened))
        key, group_of, who = key[order], group[order], who[order]
        opens = (np.diff(who, prepend=-1) != 0) | (np.diff(group_of, prepend=-1) != 0)
        starts = np.flatnonzero(opens)
        before = np.repeat(starts, np.diff(starts, append=len(who))) - 1
        rival = np.where((before >= 0) & (group_of[before] == group_of), key[before], NO_TIME)
        return cls(reach, key, group_of, who, span[order], rival, opened[by_begin], span[by_begin])

    def last(self, group: Ints, end: Ints, error: Ints, aligned: Bools, tick_ns: int | None) -> Match:
        """The last producer of each wait, given by its group and end."""
        if not len(self.ends):
            return _nothing(len(group))
        from_ns, until_ns = group * self.reach, group * self.reach + np.minimum(end + error, self.reach - 1)
        at = np.searchsorted(self.ends, until_ns, side="right") - 1
        has = (at >= 0) & (self.group[at] == group) & aligned
        last_begun = np.searchsorted(self.begins, until_ns, side="right")
        under_way = (last_begun > np.searchsorted(self.begins, from_ns)) & aligned & ~has
        some = np.searchsorted(self.begins, from_ns) < np.searchsorted(self.begins, from_ns + self.reach)
        apart_ns = _NEVER_APART if tick_ns is None else tick_ns
        tied = (self.rival[at] != NO_TIME) & (self.ends[at] - np.maximum(self.rival[at], 0) < apart_ns)
        return Match(
            end=np.where(has, self.ends[at] - from_ns, NO_TIME),
            who=np.where(has, self.who[at], -1),
            span=np.where(has, self.span[at], np.where(under_way, self.began[last_begun - 1], -1)),
            tied=(has & tied) | (some & ~aligned),
            under_way=under_way,
            error_ns=np.where(has, error, 0),
        )


def _nothing(waits: int) -> Match:
    none = np.zeros(waits, dtype=np.bool_)
    nobody = np.full(waits, -1)
    return Match(np.full(waits, NO_TIME), nobody, nobody, none, none, np.zeros(waits, dtype=np.int64))


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
