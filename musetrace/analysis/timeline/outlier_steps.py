"""Steps that took much longer than the others of the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, in_places
from musetrace.analysis.certainty.observed import seen_by_rank
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, chosen_ranks
from musetrace.analysis.timeline.overview import STEP_CLOCKS
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]

THRESHOLD = 5.0
LEAST_STEPS = 6

# Standard deviation by median absolute deviation of a normal distribution: 1 / 0.67449, its 75 % point.
_SIGMA_BY_MAD = 1.4826

_FIELDS = [
    ("step", pa.uint32()),
    ("rank", pa.uint32()),
    ("step_ns", pa.int64()),
    ("step_uncertainty_ns", pa.int64()),
    ("median_ns", pa.int64()),
    ("growth_ns", pa.int64()),
    ("growth_uncertainty_ns", pa.int64()),
    ("deviation_ns", pa.float64()),
]


def outlier_steps(run: RunLike, *, rank: int | None = None, threshold: float = THRESHOLD) -> pa.Table:
    """One row per step that is longer than the others by more than chance and the clock explain.

    A step is as long (``step_ns``, on the device) as on its slowest rank; ``rank`` is that one, null where
    the clock does not tell which it is, and where the run or the step misses a rank: whoever is not seen may
    have been slower. ``median_ns`` is the nearest-rank median of all steps, ``growth_ns``
    what the step takes on top. A step is an outlier where that exceeds ``threshold`` robust standard
    deviations (``deviation_ns``: 1.4826 times the median absolute deviation of all steps from the median) and
    also what the clock leaves open in a difference of two steps, two of its ticks
    (``growth_uncertainty_ns``). The longest come first; those that the clock does not tell apart stand in the
    order of the run. With fewer than six steps, or a clock of unknown tick, there are none.

    Meaning: what spoils the tail of the step times. It lies where most steps are slow: then the few quick
    ones are the odd ones. A step that lost launches looks short.

    Raises:
        AnalysisError: the run has no such rank, or the threshold is not above 0.
    """
    steps = StepLengths.of(run, rank)
    tick = tick_ns(run)
    found = steps.outliers(threshold, tick)
    whole = rank is not None or not run.losses.get("missing_ranks")
    rows = [
        {
            "step": int(steps.step[at]),
            "rank": steps.slowest(at, tick) if whole else None,
            "step_ns": int(steps.longest_ns[at]),
            "step_uncertainty_ns": tick,
            "median_ns": steps.median_ns,
            "growth_ns": int(steps.longest_ns[at]) - steps.median_ns,
            "growth_uncertainty_ns": combined_ns(tick, tick),
            "deviation_ns": steps.deviation_ns,
        }
        for at in found
    ]
    columns = {one: LaunchColumns.of(run.launches(one)) for one in chosen_ranks(run, Selection(rank=rank))}
    return answer(run, _FIELDS, rows, Counted(seen=seen_by_rank(run, Selection(rank=rank), columns)))


@dataclass(frozen=True)
class StepLengths:
    """The steps of a run, growing, and their lengths.

    ``by_rank_ns`` int64[ranks, steps] has -1 where a rank has no stamps of a step.
    """

    ranks: tuple[int, ...]
    step: Ints
    by_rank_ns: Ints

    @classmethod
    def of(cls, run: RunLike, rank: int | None, clock: str = "device") -> StepLengths:
        """Of one rank, or of all, by one of STEP_CLOCKS. Raises AnalysisError for no such rank."""
        ranks = chosen_ranks(run, Selection(rank=rank))
        tables = [run.steps(one) for one in ranks]
        read = [
            tuple(table[name].to_numpy().astype(np.int64) for name in ("step", *STEP_CLOCKS[clock]))
            for table in tables
        ]
        stamped = [(begin > 0) & (end >= begin) for _, begin, end in read]
        nothing = np.zeros(0, dtype=np.int64)
        step = np.unique(
            np.concatenate([nothing, *(one[0][of] for one, of in zip(read, stamped, strict=True))])
        )
        by_rank = np.full((len(ranks), len(step)), -1, dtype=np.int64)
        for row, (number, begin, end), some in zip(by_rank, read, stamped, strict=True):
            row[np.searchsorted(step, number[some])] = (end - begin)[some]
        return cls(ranks, step, by_rank)

    @property
    def longest_ns(self) -> Ints:
        """int64[steps], of the slowest rank of each."""
        longest: Ints = self.by_rank_ns.max(axis=0, initial=-1)
        return longest

    @property
    def median_ns(self) -> int:
        """The nearest-rank median of the steps; 0 where there are none."""
        return nearest_rank(self.longest_ns, (50,))[0] or 0

    @property
    def deviation_ns(self) -> float:
        """The robust standard deviation of the steps; 0 where there are none."""
        from_median = np.abs(self.longest_ns - self.median_ns)
        return _SIGMA_BY_MAD * (nearest_rank(from_median, (50,))[0] or 0)

    def outliers(self, threshold: float, tick: int | None) -> list[int]:
        """Places of the outliers, the longest first (:func:`outlier_steps` has the rule)."""
        if not threshold > 0:
            raise AnalysisError(f"a threshold of {threshold:g} makes every step an outlier: give one above 0")
        open_ns = combined_ns(tick, tick)
        if open_ns is None or len(self.step) < LEAST_STEPS:
            return []
        growth = self.longest_ns - self.median_ns
        found = np.flatnonzero((growth > threshold * self.deviation_ns) & (growth >= open_ns)).tolist()
        return in_places(found, [-int(growth[at]) for at in found], [tick] * len(found))

    def slowest(self, at: int, tick: int | None) -> int | None:
        """The rank on which a step is longest, None where the clock does not tell."""
        lengths = self.by_rank_ns[:, at]
        order = np.argsort(-lengths, kind="stable")
        open_ns = combined_ns(tick, tick)
        if lengths.min() < 0 or open_ns is None:
            return None
        if len(order) > 1 and lengths[order[0]] - lengths[order[1]] < open_ns:
            return None
        return self.ranks[int(order[0])]
