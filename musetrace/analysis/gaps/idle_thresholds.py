"""Thresholds of idle time: which gaps are told as idle time of their own, and what is launch skew."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from musetrace.analysis.gaps.idle_pieces import HEAD, OTHER_CAUSES, UNLABELLED, IdlePieces, KindClasses
from musetrace.analysis.spans.intervals import sorted_axis
from musetrace.analysis.spans.selection import StepSpans
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]

# The cause of what lies in a gap that is too short to be told.
SHORT = max(OTHER_CAUSES) + 1


@dataclass(frozen=True)
class IdleThresholds:
    """Idle time that is shorter is put together; none is left out. Raises AnalysisError for a negative one.

    ``shortest_ns``: a gap between two busy jobs of a block that is shorter has the cause ``short``, whatever
    lies in it; a busy job of no length does not end a gap. ``head_ns``: time before a block's first span
    that is shorter is no launch skew, but ``unlabelled``. 0: every one is told.
    """

    shortest_ns: int = 0
    head_ns: int = 0

    def __post_init__(self) -> None:
        """Check them."""
        for name, value in (("shortest_ns", self.shortest_ns), ("head_ns", self.head_ns)):
            if value < 0:
                raise AnalysisError(f"{name} is {value}: give 0 ns or more")

    def applied(self, pieces: IdlePieces, spans: StepSpans, classes: KindClasses) -> IdlePieces:
        """The same pieces, some with another cause; neighbours that now have one cause stay apart."""
        if not self.shortest_ns and not self.head_ns:
            return pieces
        gap_ns = _gap_lengths(pieces, spans, classes)
        no_skew = (pieces.cause == HEAD) & (pieces.length_ns < self.head_ns)
        cause = np.where(no_skew, UNLABELLED, pieces.cause)
        is_short = gap_ns < self.shortest_ns
        return replace(
            pieces,
            cause=np.where(is_short, SHORT, cause),
            contested_ns=np.where(is_short, 0, pieces.contested_ns),
        )


def _gap_lengths(pieces: IdlePieces, spans: StepSpans, classes: KindClasses) -> Ints:
    """For each piece the length of the gap between busy jobs that it lies in.

    Both the pieces and the gaps are a block's idle time in the order of time. So a piece lies in the gap that
    holds the same part of all idle time before it.
    """
    if not len(pieces.cause):
        return pieces.length_ns
    gaps = _gaps(pieces, spans, classes)
    at = np.searchsorted(np.cumsum(gaps), np.cumsum(pieces.length_ns))
    lengths: Ints = gaps[at]
    return lengths


def _gaps(pieces: IdlePieces, spans: StepSpans, classes: KindClasses) -> Ints:
    """The lengths of all gaps, int64[gaps] in the order of (instance, begin)."""
    launches = len(spans.launch_id)
    wall = spans.launch_end - spans.launch_begin
    busy = classes.busy[spans.job] & (spans.end > spans.begin)
    launch = spans.launch[busy]
    begin, end = (
        np.clip(times[busy] - spans.launch_begin[launch], 0, wall[launch])
        for times in (spans.begin, spans.end)
    )
    # Edges of the launches first, so that nothing of an instance is sorted before its own begin.
    none = np.zeros(len(pieces.instances), dtype=np.int64)
    group = np.concatenate([pieces.instances, spans.block[busy] * launches + launch, pieces.instances])
    opens = np.concatenate([none, begin, pieces.wall_ns])
    closes = np.concatenate([none, end, pieces.wall_ns])
    order = np.lexsort((opens, group))
    reach = int(wall.max()) + 1
    _, opens, closes = sorted_axis(group[order], opens[order], closes[order], reach)
    gaps = np.maximum(opens[1:] - np.maximum.accumulate(closes)[:-1], 0)
    of_one = opens[1:] // reach == opens[:-1] // reach
    lengths: Ints = gaps[of_one & (gaps > 0)]
    return lengths
