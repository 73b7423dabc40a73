"""What medians with bootstrap intervals allow to say of the cost of stamps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.bootstrap import LEAST_VALUES, Interval, Values

_LEAST_TIME = 1.0

COSTS = "costs"
SAVES = "saves"
CANNOT_TELL = "cannot tell"


def verdict_of(added: Interval, resolution: float = 0.0) -> str:
    """``costs`` or ``saves`` when zero lies outside of the interval, else ``cannot tell``.

    Fewer than six values tell nothing, nor does a median within the resolution of the clock, which is given
    in the unit of the interval.
    """
    if added.count < LEAST_VALUES or added.low <= 0.0 <= added.high or abs(added.median) <= resolution:
        return CANNOT_TELL
    return COSTS if added.low > 0.0 else SAVES


def paired(side: npt.ArrayLike, base: npt.ArrayLike) -> tuple[Values, Values]:
    """What a side adds to its baseline, one value for each block of the schedule.

    In a block both were timed twice, each side beside a baseline, once before and once behind it. The mean
    over both neighbours is free of a drift that is the same over the block.

    Args:
        side: [blocks, 2] times in ns; ``[b, i]`` was timed beside ``base[b, i]``.
        base: [blocks, 2] times.

    Returns:
        [blocks] added times, and [blocks] added shares of the baseline.
    """
    times, beside = np.asarray(side, dtype=np.float64), np.asarray(base, dtype=np.float64)
    # What the clock did not see took less than its tick, not nothing.
    shares = times / np.maximum(beside, _LEAST_TIME)
    return (times - beside).mean(axis=1), shares.mean(axis=1) - 1.0
