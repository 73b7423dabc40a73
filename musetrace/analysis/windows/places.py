"""One span of a timeline: by its number, under a point, and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.windows.job_strips import CLASS_OF_STRIP, STRIPS
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes
from musetrace.analysis.windows.rows import Rows

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """A span: (rank, step, id) name it for good; ``row`` is the timeline's, ``begin_ns`` from its origin."""

    rank: int
    step: int
    id: int
    row: int
    strip: int
    job: int
    begin_ns: int
    dur_ns: int


@dataclass(frozen=True)
class _Row:
    """The spans of a row in a step, or those of a strip of it."""

    lanes: StepLanes
    place: Ints

    @property
    def begin(self) -> Ints:
        return self.lanes.base_ns + self.lanes.begin[self.place].astype(np.int64)

    @property
    def dur(self) -> Ints:
        return self.lanes.dur[self.place].astype(np.int64)


def span_at(
    timeline: Timeline, rows: Rows, row: int, strip: int | None, time_ns: int, slack_ns: int = 0
) -> Place | None:
    """The span that is drawn at a time in a strip of a row; None: there is none. Strip None: any.

    Of several the one that began last, and of those the shortest. Where none is at the time, the nearest that
    is no further than ``slack_ns``. In a row of one strip work comes before loads, and these before waits.
    """
    rank = rows.ranks[row // rows.per_rank]
    steps = timeline.steps_inside((rank,), time_ns - slack_ns, time_ns + slack_ns + 1)
    found: tuple[tuple[int, ...], Place] | None = None
    for lanes in timeline.lanes(rows, steps):
        of_row = _row(timeline, rows, lanes, row, strip)
        begin, dur = of_row.begin, of_row.dur
        # What it covers is [begin, end), of an instant its begin.
        away = np.maximum(np.maximum(begin - time_ns, time_ns - np.maximum(begin, begin + dur - 1)), 0)
        near = np.flatnonzero(away <= slack_ns)
        layer = _layers(timeline, of_row, strip)
        if len(near):
            best = near[np.lexsort((dur[near], -begin[near], away[near], layer[near]))[0]]
            key = (int(layer[best]), int(away[best]), -int(begin[best]), int(dur[best]))
            if found is None or key < found[0]:
                found = key, _place(timeline, rows, of_row, int(best), row)
    return None if found is None else found[1]


def span_of(timeline: Timeline, rows: Rows, rank: int, step: int, span: int) -> Place | None:
    """A span by its number; None where the rows do not have it."""
    lanes, place = _find(timeline, rows, rank, step, span)
    if lanes is None:
        return None
    row = rows.first_row(rank) + lanes.row_of(place)
    return _place(timeline, rows, _Row(lanes, np.array([place])), 0, row)


def neighbour(
    timeline: Timeline,
    rows: Rows,
    rank: int,
    step: int,
    span: int,
    direction: int,
    *,
    one_strip: bool = False,
) -> Place | None:
    """The next (direction 1) or previous (-1) span of its strip of the row, by begin; None at the end.

    With ``one_strip`` the next of any strip. Goes on in the next step.
    """
    lanes, place = _find(timeline, rows, rank, step, span)
    if lanes is None:
        return None
    row = rows.first_row(rank) + lanes.row_of(place)
    strip = None if one_strip else int(timeline.strips.strip[lanes.job[place]])
    of_row = _row(timeline, rows, lanes, row, strip)
    at = int(np.searchsorted(of_row.place, place)) + direction
    if 0 <= at < len(of_row.place):
        return _place(timeline, rows, of_row, at, row)
    for other in _steps_from(timeline, rank, step, direction):
        of_row = _row(timeline, rows, timeline.lanes(rows, [(rank, other)])[0], row, strip)
        if len(of_row.place):
            return _place(timeline, rows, of_row, 0 if direction > 0 else len(of_row.place) - 1, row)
    return None


def _find(
    timeline: Timeline, rows: Rows, rank: int, step: int, span: int
) -> tuple[StepLanes, int] | tuple[None, int]:
    """The lanes of a step and where a span stands in them."""
    steps = timeline.axis.ranks.get(rank) if rank in rows.ranks else None
    if steps is None or steps.place_of(step) is None or span < 0:
        return None, 0
    lanes = timeline.lanes(rows, [(rank, step)])[0]
    if lanes.index is None:
        return (lanes, span) if span < len(lanes.begin) else (None, 0)
    place = np.flatnonzero(lanes.index == span)
    return (lanes, int(place[0])) if len(place) else (None, 0)


def _steps_from(timeline: Timeline, rank: int, step: int, direction: int) -> Iterator[int]:
    steps = timeline.axis.ranks[rank]
    at = steps.place_of(step)
    assert at is not None
    yield from (steps.step[at + 1 :] if direction > 0 else steps.step[:at][::-1]).tolist()


def _row(timeline: Timeline, rows: Rows, lanes: StepLanes, row: int, strip: int | None) -> _Row:
    local = row - rows.first_row(lanes.rank)
    place = np.arange(lanes.first[local], lanes.first[local + 1])
    if strip is not None:
        place = place[timeline.strips.strip[lanes.job[place]] == strip]
    return _Row(lanes, place)


def _layers(timeline: Timeline, row: _Row, strip: int | None) -> Ints:
    if strip is not None:
        return np.zeros(len(row.place), dtype=np.int64)
    return np.array(CLASS_OF_STRIP)[timeline.strips.strip[row.lanes.job[row.place]]]


def _place(timeline: Timeline, rows: Rows, row: _Row, at: int, number: int) -> Place:
    lanes, place = row.lanes, int(row.place[at])
    job = int(lanes.job[place])
    strip = int(timeline.strips.strip[job])
    assert strip < len(STRIPS)
    return Place(
        rank=lanes.rank,
        step=lanes.step,
        id=int(lanes.ids(np.array([place]))[0]),
        row=number,
        strip=strip,
        job=job,
        begin_ns=lanes.base_ns + int(lanes.begin[place]),
        dur_ns=int(lanes.dur[place]),
    )
