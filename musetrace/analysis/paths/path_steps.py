"""The critical path of one launch, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.paths.launch_graph import NO_TIME, LaunchGraph

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# How the path goes through a stretch of time; csrc/analysis/span_graph.h says what each is, but for the last:
# from the end of a launch to the begin of the next.
OWN, PIECE, WAY, LAST_PIECE, GAP, HAND_OFF, LAUNCH_WAY, BEFORE, HEAD, TAIL, BETWEEN = range(11)
STEP_NAMES: tuple[str, ...] = (*_core.analysis.PATH_STEPS, "between")
# Steps from one warp to another: from the span of the cause into the step's own.
EDGES = (PIECE, WAY, LAST_PIECE, HAND_OFF)
# Steps that no job stands for.
OUTSIDE = (LAUNCH_WAY, BEFORE, HEAD, TAIL, BETWEEN)


@dataclass(frozen=True)
class PathSteps:
    """Stretches of time that follow each other without a hole, int64[steps].

    Each is of a span, which is ``span_begin`` to ``span_end`` long, and an edge comes from the cause's. Of a
    step that is outside of all spans it is the span in front of or behind it. ``rank`` is a rank, not its
    place. ``error_ns`` lies between the clocks of both ends of an edge; ``tied`` is 1 where another span may
    have been the cause.
    """

    step: Ints
    begin: Ints
    end: Ints
    job: Ints
    rank: Ints
    block: Ints
    warp: Ints
    span_begin: Ints
    span_end: Ints
    cause_job: Ints
    cause_rank: Ints
    cause_block: Ints
    error_ns: Ints
    tied: Ints

    @classmethod
    def of(cls, graph: LaunchGraph, rank: int | None) -> PathSteps | None:
        """The path to the last end on a rank, or on all; None where the rank has no such launch."""
        begin, end = graph.windows.whole
        place = -1
        if rank is not None:
            place = graph.ranks.index(rank)
            end = int(graph.windows.end[place])
            if end == NO_TIME:
                return None
        found = (of.astype(np.int64) for of in graph.native.path(place, min(begin, end), end))
        step, span, cause, begins, ends = found
        names = np.array(graph.ranks)
        caused = np.isin(step, EDGES)
        error = graph.error_ns[graph.rank[span], graph.rank[cause]]
        return cls(
            step,
            begins,
            ends,
            graph.job[span],
            names[graph.rank[span]],
            graph.block[span],
            graph.warp[span],
            graph.begin[span],
            graph.end[span],
            np.where(caused, graph.job[cause], -1),
            np.where(caused, names[graph.rank[cause]], -1),
            np.where(caused, graph.block[cause], -1),
            np.where(caused & (step != PIECE), error, 0),
            (np.isin(step, (PIECE, WAY)) & graph.tied[span]).astype(np.int64),
        )

    @property
    def length(self) -> Ints:
        """The time of each step in ns."""
        return self.end - self.begin

    @property
    def edge(self) -> Bools:
        """Which steps come from another warp."""
        return np.isin(self.step, EDGES)

    def take(self, chosen: Bools) -> PathSteps:
        """Some of the steps."""
        return PathSteps(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def until(self, time_ns: int) -> PathSteps:
        """The path up to a time; the step that goes on then is cut."""
        left = self.take(self.begin < time_ns)
        return replace(left, end=np.minimum(left.end, time_ns))

    def outside(self, step: int, begin_ns: int, end_ns: int) -> PathSteps:
        """One step of no span, beside the first of these; none where it has no length."""
        one = self.take(np.arange(len(self.step)) < (1 if end_ns > begin_ns else 0))
        nothing = np.zeros(len(one.step), dtype=np.int64)
        return replace(
            one,
            step=nothing + step,
            begin=nothing + begin_ns,
            end=nothing + end_ns,
            error_ns=nothing,
            tied=nothing,
        )

    @classmethod
    def joined(cls, parts: Sequence[PathSteps]) -> PathSteps:
        """One path behind the other."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))
