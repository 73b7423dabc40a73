"""A window of a timeline: its spans one by one where they are few, else a raster.

Near (``Timeline.is_near``), a raster is made of the spans; far out, of what the index keeps of each launch
(``launch_cover``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.windows.job_strips import STRIPS
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes
from musetrace.analysis.windows.rows import Rows

MOST_EXACT = 12_000  # spans that are told one by one

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """What is looked at: ``[from_ns, to_ns)`` from the run's origin, rows ``[row_from, row_to)``.

    It is shown on ``width`` by ``height`` pixels, in 4 strips a row or in 1.
    """

    rows: Rows
    from_ns: int
    to_ns: int
    row_from: int
    row_to: int
    width: int
    height: int
    strips: int = len(STRIPS)

    @property
    def window(self) -> tuple[int, int, int, int]:
        """As the compiled loops take it."""
        return self.from_ns, self.to_ns, self.row_from, self.row_to

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which there are rows in it."""
        return self.rows.ranks_inside(self.row_from, self.row_to)

    @property
    def bins(self) -> tuple[int, int]:
        """Groups of rows and bins of time of a raster: none of less than a row or a ns."""
        groups = max(min(self.row_to - self.row_from, self.height), 1)
        return groups, max(min(self.width, self.to_ns - self.from_ns), 1)


@dataclass(frozen=True)
class Raster:
    """A picture of a window.

    ``op`` is u8[groups, strips, bins]: the op that takes most of a cell's time (the first of equals), 255 for
    none. ``share``: how much of the cell one strip of its rows is covered, in 1/255, rounded up. Row group g
    of G is rows ``row_from + floor(g * n / G)`` and on, of n; bin b of B begins at
    ``from + floor(b * (to - from) / B)``. ``strip`` is the strip of the op's job, 255 for none: where a row
    has one strip only, that of work and comm comes first, then loads, then waits.
    """

    op: Bytes
    share: Bytes
    strip: Bytes


@dataclass(frozen=True)
class Spans:
    """Spans of a window by rank, then by row, step and begin; times are int64 ns from the run's origin.

    ``id`` is a span's place in ``run.spans(rank, step)``. ``iteration`` is 0 where jobs have one instance.
    """

    row: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    dur: npt.NDArray[np.int64]
    job: npt.NDArray[np.uint16]
    warp: Bytes
    iteration: npt.NDArray[np.uint32]
    flag: Bytes
    rank: npt.NDArray[np.uint16]
    step: npt.NDArray[np.uint32]
    id: npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Near:
    """The lanes that a window lies in, and how many spans are in it, with ``flagged`` ones among them."""

    lanes: list[StepLanes]
    native: list[tuple[Any, ...]]
    count: int
    flagged: int
    without_row: int


def near(timeline: Timeline, view: View) -> Near:
    """Read the steps that a window lies in."""
    wanted = timeline.steps_inside(view.ranks, view.from_ns, view.to_ns)
    lanes = timeline.lanes(view.rows, wanted)
    native = [one.native(view.rows.first_row(one.rank)) for one in lanes]
    count, flagged = _core.analysis.count_spans(native, view.window)
    return Near(lanes, native, count, flagged, sum(one.without_row for one in lanes))


def raster(timeline: Timeline, view: View, found: Near) -> Raster:
    """A raster of spans. Those with a flag have no certain time and are left out."""
    groups, width = view.bins
    jobs = timeline.strips.by_class if view.strips == 1 else timeline.strips.by_strip
    return Raster(
        *_core.analysis.lane_raster(found.native, view.window, width, groups, jobs, view.strips != 1)
    )


def spans(view: View, found: Near) -> Spans:
    """All spans of a window."""
    source, place, row = _core.analysis.spans_inside(found.native, view.window)
    parts = [_Part.of(one, place[source == at]) for at, one in enumerate(found.lanes)]

    def joined(name: str, dtype: Any) -> Any:
        columns = [getattr(part, name) for part in parts]
        return np.concatenate(columns).astype(dtype) if columns else np.zeros(0, dtype=dtype)

    return Spans(
        row=row,
        begin=joined("begin", np.int64),
        dur=joined("dur", np.int64),
        job=joined("job", np.uint16),
        warp=joined("warp", np.uint8),
        iteration=joined("iteration", np.uint32),
        flag=joined("flag", np.uint8),
        rank=joined("rank", np.uint16),
        step=joined("step", np.uint32),
        id=joined("id", np.uint32),
    )


@dataclass(frozen=True)
class _Part:
    """The spans of one step."""

    begin: Any
    dur: Any
    job: Any
    warp: Any
    iteration: Any
    flag: Any
    rank: Any
    step: Any
    id: Any

    @classmethod
    def of(cls, lanes: StepLanes, place: npt.NDArray[np.int64]) -> _Part:
        size = len(place)
        return cls(
            begin=lanes.base_ns + lanes.begin[place].astype(np.int64),
            dur=lanes.dur[place],
            job=lanes.job[place],
            warp=lanes.warp[place],
            iteration=np.zeros(size) if lanes.iteration is None else lanes.iteration[place],
            flag=lanes.flag[place],
            rank=np.full(size, lanes.rank),
            step=np.full(size, lanes.step),
            id=lanes.ids(place),
        )
