"""All spans of one step, of all ranks, on the axis of the run's first rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.rank_clocks import RankTimes
from musetrace.analysis.selection import StepSpans

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepAxis:
    """Spans of one step, sorted by job; times are ns from the first of them, on the common axis.

    ``rank`` is the place of a span's rank in ``ranks``.
    """

    ranks: tuple[int, ...]
    reach: int  # beyond every time
    begin: Ints
    end: Ints
    rank: Ints
    launch: Ints  # ids
    block: Ints
    iteration: Ints
    _jobs: Ints
    _bounds: Ints

    @classmethod
    def of(cls, of_ranks: Sequence[StepSpans], clocks: Mapping[int, RankTimes]) -> StepAxis:
        """Put the spans of one step together."""
        begin, end = (
            np.concatenate(
                [
                    clocks[one.rank].aligned(one.base_ns + times)
                    for one, times in zip(of_ranks, side, strict=True)
                ]
            )
            for side in ([one.begin for one in of_ranks], [one.end for one in of_ranks])
        )
        first = int(begin.min(initial=np.iinfo(np.int64).max)) if len(begin) else 0
        job = np.concatenate([one.job for one in of_ranks])
        order = np.argsort(job.astype(np.uint16), kind="stable")
        rank = np.repeat(np.arange(len(of_ranks)), [len(one.job) for one in of_ranks])
        jobs, bounds = np.unique(job[order], return_index=True)
        return cls(
            tuple(one.rank for one in of_ranks),
            int((end - first).max(initial=0)) + 1,
            (begin - first)[order],
            (end - first)[order],
            rank[order],
            np.concatenate([one.launch_id[one.launch] for one in of_ranks])[order],
            np.concatenate([one.block for one in of_ranks])[order],
            np.concatenate([one.iteration for one in of_ranks])[order],
            jobs,
            np.append(bounds, len(job)),
        )

    def spans_of(self, job: int) -> slice:
        """Where the spans of a job stand."""
        at = int(np.searchsorted(self._jobs, job))
        if at == len(self._jobs) or self._jobs[at] != job:
            return slice(0, 0)
        return slice(int(self._bounds[at]), int(self._bounds[at + 1]))
