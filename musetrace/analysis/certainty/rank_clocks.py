"""The ranks' clocks on one axis: that of the run's first rank, with the error of getting there.

``musetrace.store.alignment`` says where the offsets come from, and what their errors bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted

Ints = npt.NDArray[np.int64]

SAME_CLOCK, _UNKNOWN = "same_clock", "unknown"

_FIELDS = [
    ("rank", pa.uint32()),
    ("clock", pa.uint32()),
    ("method", pa.string()),
    ("offset_ns", pa.int64()),
    ("error_ns", pa.int64()),
    ("comparisons", pa.uint32()),
    ("residual_ns", pa.int64()),
    ("drift_ppb", pa.float64()),
    ("drift_error_ppb", pa.float64()),
    ("note", pa.string()),
]


@dataclass(frozen=True)
class RankTimes:
    """How the times of a rank come onto the axis.

    Ranks of the same ``clock`` were stamped by one clock. ``error_ns`` is what an aligned time is off at
    most, against the axis; None: not aligned. The offset changes evenly from measurement to measurement.
    """

    clock: int
    error_ns: int | None
    measured_at_ns: tuple[int, ...] = (0,)
    offsets_ns: tuple[int, ...] = (0,)

    def aligned(self, times_ns: Ints) -> Ints:
        """Times of the rank, int64[n] in ns, on the axis."""
        if len(set(self.offsets_ns)) == 1:
            return times_ns + self.offsets_ns[0]
        at_ns, offsets_ns = (np.array(of, dtype=np.int64) for of in (self.measured_at_ns, self.offsets_ns))
        piece = np.clip(np.searchsorted(at_ns, times_ns, side="right") - 1, 0, len(at_ns) - 2)
        # The change is small, so its float is exact to far less than a ns.
        share = np.clip((times_ns - at_ns[piece]) / np.diff(at_ns)[piece], 0.0, 1.0)
        change = np.floor(share * np.diff(offsets_ns)[piece]).astype(np.int64)
        return times_ns + offsets_ns[piece] + change

    def error_to(self, other: RankTimes) -> int | None:
        """What the difference of aligned times of two ranks is off at most; None: unknown.

        The steps of the clocks come on top.
        """
        if self.clock == other.clock:
            return 0
        if self.error_ns is None or other.error_ns is None:
            return None
        return self.error_ns + other.error_ns


def rank_times(run: RunLike) -> dict[int, RankTimes]:
    """For each rank of a run. Ranks that say nothing are of one clock: older runs had one process."""
    return {rank: _times_of(told) for rank, told in _told(run).items()}


def has_several_clocks(run: RunLike) -> bool:
    """Whether times of different ranks have an error against each other."""
    return len({times.clock for times in rank_times(run).values()}) > 1


def alignment_error_ns(run: RunLike, ranks: Collection[int] | None = None) -> int | None:
    """What two times of different ranks (of all, or of some) are off at most against each other.

    None: they are not aligned. 0: one clock stamped them.
    """
    by_clock: dict[int, list[int | None]] = {}
    for rank, times in rank_times(run).items():
        if ranks is None or rank in ranks:
            by_clock.setdefault(times.clock, []).append(times.error_ns)
    if len(by_clock) < 2:
        return 0
    errors = [error for of_clock in by_clock.values() for error in of_clock]
    if any(error is None for error in errors):
        return None
    worst = sorted(max(error or 0 for error in of_clock) for of_clock in by_clock.values())
    return worst[-1] + worst[-2]


def clocks(run: RunLike) -> pa.Table:
    """One row per rank: how its clock stands to that of the first rank.

    ``clock`` is the first rank with the same clock. ``method``: ``same_clock`` (as the first rank's),
    ``peer_ping_pong``, ``host_anchors``, ``unix_time``, ``unknown``. ``offset_ns`` is to be added to the
    rank's times, at the start of the recording; it was measured at ``comparisons`` times and follows them,
    changing by ``drift_ppb`` from the first to the last, give or take ``drift_error_ppb`` (null when it was
    measured once). ``error_ns`` is what no aligned time of the rank is further off; null: not aligned,
    nothing that compares it with other clocks is told. Part of it is ``residual_ns``, how far a measurement
    lies off the line between its neighbours at most (null for fewer than three). ``note`` says why it is no
    better.

    Meaning: how far a time of one rank can be set against one of another. It lies when a clock ran less
    evenly between two measurements than across them; with two of them, when it did not run evenly at all.
    """
    rows = [
        {name: told.get(name) for name, _ in _FIELDS}
        | {"rank": rank, "clock": told.get("clock", 0), "comparisons": _comparisons(told)}
        for rank, told in _told(run).items()
    ]
    return answer(run, _FIELDS, rows, Counted())


def _comparisons(told: Mapping[str, Any]) -> int:
    compared = told.get("method") not in (SAME_CLOCK, _UNKNOWN)
    return len(told.get("measured_at_ns", ())) if compared else 0


def _told(run: RunLike) -> dict[int, Mapping[str, Any]]:
    entries = run.manifest.get("ranks", [])
    told = {entry["rank"]: entry.get("alignment") for entry in entries}
    one_clock = {"method": SAME_CLOCK, "offset_ns": 0, "error_ns": 0}
    return {rank: told.get(rank) or one_clock for rank in run.ranks}


def _times_of(told: Mapping[str, Any]) -> RankTimes:
    return RankTimes(
        clock=int(told.get("clock", 0)),
        error_ns=told["error_ns"],
        measured_at_ns=tuple(told.get("measured_at_ns", (0,))),
        offsets_ns=tuple(told.get("offsets_ns", (0,))),
    )
