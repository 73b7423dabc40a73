"""All spans of one step, of all ranks, on the axis of the run's first rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.certainty.rank_clocks import RankTimes
from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class StepAxis:
    """Spans of one step, sorted by job; times are ns from the first of them, on the common axis.

    ``rank`` is the place of a span's rank in ``ranks``.
    """

    ranks: tuple[int, ...]
    begin: Ints
    end: Ints
    rank: Places
    launch: Places  # ids
    block: Places
    iteration: Places
    _first: Ints

    @classmethod
    def of(cls, of_ranks: Sequence[StepSpans], clocks: Mapping[int, RankTimes]) -> StepAxis:
        """Put the spans of one step together."""
        times = [
            [clocks[one.rank].aligned(one.base_ns + side) for side in (one.begin, one.end)]
            for one in of_ranks
        ]
        some = [begin for begin, _ in times if len(begin)]
        from_ns = min((int(begin.min()) for begin in some), default=0)
        columns: tuple[Any, ...] = _core.analysis.by_job(
            [
                (*its_times, one.job, one.launch, one.block, one.iteration, one.launch_id)
                for one, its_times in zip(of_ranks, times, strict=True)
            ],
            from_ns=from_ns,
        )
        return cls(tuple(one.rank for one in of_ranks), *columns)

    def spans_of(self, job: int) -> slice:
        """Where the spans of a job stand."""
        return slice(int(self._first[job]), int(self._first[job + 1]))
