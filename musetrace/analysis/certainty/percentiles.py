"""Exact percentiles and means of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

TENTHS = (10, 50, 90)


def nearest_rank(values: npt.NDArray[np.int64], percents: Sequence[int] = TENTHS) -> tuple[int | None, ...]:
    """The nearest-rank percentiles of ``values``, in any order: None each where there are no values.

    The p-th percentile of n values is the ceil(p * n / 100)-th smallest, so it is always one of the values:
    no rounding or interpolation comes in.
    """
    count = len(values)
    if count == 0:
        return (None,) * len(percents)
    places = [max(-(-percent * count // 100), 1) - 1 for percent in percents]
    ordered = np.partition(values, sorted(set(places)))
    return tuple(int(ordered[place]) for place in places)


def rounded_mean(values: npt.NDArray[np.int64]) -> int:
    """The mean of at least one integer, to the nearest whole one; a half is rounded up."""
    return (2 * int(values.sum()) + len(values)) // (2 * len(values))
