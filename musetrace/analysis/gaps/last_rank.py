"""Which rank came last, as far as the clocks can tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.rank_clocks import RankTimes

Ints = npt.NDArray[np.int64]


def may_be_last(
    sent_ns: Ints, clocks: Sequence[RankTimes], tick_ns: int | None
) -> npt.NDArray[np.bool_] | None:
    """Whether no other rank is later for certain.

    Of two instants of one clock the later one is later for certain once they are a tick apart; of two clocks,
    once they are a tick and both clocks' errors apart.

    Args:
        sent_ns: int64[ranks, n], n instants of each rank, not aligned.
        clocks: of the ranks.
        tick_ns: step of the clocks, None if not known.

    Returns:
        bool[ranks, n]; None where nothing can be told: the tick is not known, or a rank is not aligned.
    """
    several = len({one.clock for one in clocks}) > 1
    if tick_ns is None or (several and any(one.error_ns is None for one in clocks)):
        return None
    aligned = np.stack([one.aligned(times) for one, times in zip(clocks, sent_ns, strict=True)])
    clock = np.array([one.clock for one in clocks])
    latest_of_own = np.empty_like(aligned)
    for name in np.unique(clock):
        latest_of_own[clock == name] = aligned[clock == name].max(axis=0)
    error_ns = np.array([one.error_ns or 0 for one in clocks], dtype=np.int64)[:, None]
    # Of any clock: for ranks of the same clock this asks less than the line above.
    latest_surely = (aligned - error_ns).max(axis=0)
    late: npt.NDArray[np.bool_] = aligned > latest_of_own - tick_ns
    late &= aligned + error_ns > latest_surely - tick_ns
    return late
