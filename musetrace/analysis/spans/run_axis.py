"""The time axis of a whole run: ns from its origin, on the clock of its first rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.rank_clocks import RankTimes, rank_times
from musetrace.analysis.spans.run_like import RunLike

Ints = npt.NDArray[np.int64]

# The longest step whose spans fit into u32 ns, also when an alignment stretches it.
_NARROW_NS = (1 << 32) - (1 << 24)


@dataclass(frozen=True)
class RankSteps:
    """The steps of a rank that left stamps, growing: int64[n] each, times in ns from the origin.

    ``base_ns`` is by the rank's own clock; spans of a step begin at or after it.
    """

    rank: int
    step: Ints
    base_ns: Ints
    from_ns: Ints
    to_ns: Ints

    def place_of(self, step: int) -> int | None:
        """Where a step stands; None for one that is not there."""
        place = int(np.searchsorted(self.step, step))
        return place if place < len(self.step) and self.step[place] == step else None


@dataclass(frozen=True)
class RunAxis:
    """The axis of a run.

    ``origin_ns`` is the earliest base of a step of any rank, by the first rank's clock; all other times are
    ns from it. ``to_ns`` is the latest end of a step, at least 1. ``wide``: a step is too long for u32 ns.
    """

    origin_ns: int
    to_ns: int
    wide: bool
    ranks: Mapping[int, RankSteps]
    clocks: Mapping[int, RankTimes]

    @classmethod
    def of(cls, run: RunLike) -> RunAxis:
        """Read the steps of all ranks."""
        clocks = rank_times(run)
        raw = {rank: _stamped_steps(run, rank, clocks[rank]) for rank in run.ranks}
        begins = [int(steps.from_ns.min()) for steps in raw.values() if len(steps.step)]
        origin_ns = min(begins, default=0)
        ranks = {
            rank: RankSteps(
                rank, steps.step, steps.base_ns, steps.from_ns - origin_ns, steps.to_ns - origin_ns
            )
            for rank, steps in raw.items()
        }
        ends = [int(steps.to_ns.max()) for steps in ranks.values() if len(steps.step)]
        longest = max(
            (int((steps.to_ns - steps.from_ns).max()) for steps in ranks.values() if len(steps.step)),
            default=0,
        )
        return cls(origin_ns, max(*ends, 1) if ends else 1, longest > _NARROW_NS, ranks, clocks)

    def on_axis(self, rank: int, times_ns: Ints) -> Ints:
        """Times of a rank's clock as ns from the origin."""
        return self.clocks[rank].aligned(times_ns) - self.origin_ns

    def steps_inside(self, rank: int, from_ns: int, to_ns: int) -> Iterator[int]:
        """The steps of a rank of which some lies in ``[from_ns, to_ns)``, in the order of time."""
        steps = self.ranks[rank]
        inside = (steps.from_ns < to_ns) & (steps.to_ns >= from_ns)
        places = np.flatnonzero(inside)
        yield from steps.step[places[np.argsort(steps.from_ns[places], kind="stable")]].tolist()


def origin_ns(run: RunLike) -> int:
    """Where the axis of a run begins; 0 where nothing was stamped."""
    return RunAxis.of(run).origin_ns


def _stamped_steps(run: RunLike, rank: int, clock: RankTimes) -> RankSteps:
    table = run.steps(rank)
    step, base, end = (table[name].to_numpy().astype(np.int64) for name in ("step", "base_ns", "end_ns"))
    stamped = base > 0
    step, base, end = step[stamped], base[stamped], end[stamped]
    return RankSteps(rank, step, base, clock.aligned(base), clock.aligned(end))
