"""What the step of the clock leaves open in every number that is made of stamps.

A stamp is a reading of a clock that steps: at time t it shows ``tick * floor(t / tick)``. So it is never
later than what it stamps, and less than one tick earlier: ``-tick < error <= 0``. All that follows is derived
from this one line, and speaks of nothing else (what a stamp costs, other clocks, chance).

* An instant has the stamp's error. Of two instants of one clock the later one is later for certain once their
  stamps are a tick apart.
* A difference of two stamps (a length, a time from the launch's begin) is off by less than a tick either way.
* The first or last of many instants is the reading of the first or last: rounding down keeps the order.
* A percentile of differences is off by less than a tick, whatever n: if every value moves by less than a
  tick, so does the k-th smallest. More values make it no better: it stands on a multiple of the tick.
* A sum of k differences of one launch is off by less than k ticks. Their errors may all have the same sign,
  since what happens in a launch follows its begin.
* A difference whose true length is (m + f) ticks is read as m or m + 1 of them. When it begins anywhere
  within a tick with equal chance, it is m + 1 with chance f: its mean is right, and its variance
  f (1 - f) tick^2 at most tick^2 / 4 (tick^2 / 6 on average over f, hence tick * sqrt(1 / (6 n)) for the mean
  of n differences of mixed lengths). So k differences of one launch have a standard deviation of at most
  k * tick / 2. Launches begin at times that have nothing to do with the tick, so over launches variances add
  up: two standard deviations of the sum are at most ``tick * sqrt(sum of k^2)``, which for one launch is the
  bound above.
* A mean is such a sum by n. Where all values are equal nothing shows that they began at different places
  within the tick, so their mean is no better than one of them.

None means not known: it comes in with a clock whose tick is not known, and whatever is made with it is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

# A clock with a longer step times no kernel: such a tick is a mistake.
MAX_TICK_NS = 1_000_000_000

Ints = npt.NDArray[np.int64]
Thing = TypeVar("Thing")
Row = TypeVar("Row", bound=Mapping[str, Any])


def tick_ns_of(clock: object) -> int | None:
    """The tick of a manifest's ``clock``, in ns; None where there is none or where it cannot be one."""
    tick = clock.get("tick_ns") if isinstance(clock, dict) else None
    if not isinstance(tick, int) or isinstance(tick, bool):
        return None
    return tick if 0 < tick <= MAX_TICK_NS else None


def combined_ns(*parts: int | None) -> int | None:
    """The uncertainty of what is made of several things, each with its own: bounds add up. None if any is.

    For the difference of two numbers, for an instant on another rank's clock (its tick and the error between
    the clocks), and the like.
    """
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def sum_uncertainty_ns(tick_ns: int | None, squares: int) -> int | None:
    """The uncertainty of a sum of differences: ``tick * sqrt(squares)``, rounded up to whole ns.

    Args:
        tick_ns: step of the clock, None if not known.
        squares: the sum, over the launches that add to it, of k^2 for k differences of two stamps.

    Returns:
        The bound for a single launch, at least two standard deviations for several (see the module).
    """
    if tick_ns is None:
        return None
    square = tick_ns * tick_ns * squares
    root = math.isqrt(square)
    return root + (root * root < square)


def mean_uncertainty_ns(tick_ns: int | None, values: Ints, per_launch: Ints) -> int | None:
    """The uncertainty of the mean of differences, rounded up to whole ns; one tick where all are equal.

    Args:
        tick_ns: step of the clock, None if not known.
        values: int64[n], the differences, n > 0.
        per_launch: int64[launches], how many of them each launch gave.
    """
    squares = int((per_launch * per_launch).sum())
    return mean_uncertainty_of_squares(tick_ns, squares, len(values), bool(values.min() == values.max()))


def mean_uncertainty_of_squares(tick_ns: int | None, squares: int, n: int, all_equal: bool) -> int | None:
    """The same from the ``squares`` of :func:`sum_uncertainty_ns`, the number of values, n > 0, and whether
    they are all equal.
    """
    of_sum = sum_uncertainty_ns(tick_ns, squares)
    return tick_ns if of_sum is None or all_equal else -(-of_sum // n)


def share_uncertainty(
    part_ns: int, part_uncertainty_ns: int | None, whole_ns: int, whole_uncertainty_ns: int | None
) -> float | None:
    """The uncertainty of ``part / whole``, a fraction; None where it is not known or the whole may be 0."""
    if part_uncertainty_ns is None or whole_uncertainty_ns is None or whole_ns <= whole_uncertainty_ns:
        return None
    moved = part_uncertainty_ns + part_ns / whole_ns * whole_uncertainty_ns
    return moved / (whole_ns - whole_uncertainty_ns)


def told_apart(first: float, second: float, uncertainty: float | None) -> bool:
    """Whether two numbers differ for certain; ``uncertainty`` is that of their difference."""
    return uncertainty is not None and abs(first - second) >= uncertainty > 0


def places(values: Sequence[float], uncertainties: Sequence[int | None]) -> list[int]:
    """The place of each value in growing order, from 0; values that cannot be told apart share one.

    The smallest value that has no place yet leads the next one, which holds everything that is not told apart
    from it, by the uncertainties of both. So each value is told apart from what leads the places before its
    own. Where an uncertainty is None all values share one place.
    """
    off = [one for one in uncertainties if one is not None]
    found = [0] * len(values)
    left = sorted(range(len(values)), key=values.__getitem__) if len(off) == len(values) else []
    place = 0
    while left:
        first, later = left[0], []
        for index in left:
            if told_apart(values[index], values[first], off[index] + off[first]):
                later.append(index)
            else:
                found[index] = place
        left, place = later, place + 1
    return found


def in_places(
    things: Sequence[Thing], values: Sequence[float], uncertainties: Sequence[int | None]
) -> list[Thing]:
    """Things by the places of their values; those that share a place stay in the order in which they came."""
    found = places(values, uncertainties)
    return [things[index] for index in sorted(range(len(things)), key=found.__getitem__)]


def largest_first(rows: Sequence[Row], name: str, uncertainty: str) -> list[Row]:
    """Rows by a value, the largest first; those that the clock cannot tell apart in the order they came in.

    ``uncertainty`` names that of each row's value. Where one is None all rows share one place.
    """
    return in_places(rows, [-row[name] for row in rows], [row[uncertainty] for row in rows])


def grid_ns(times_ns: Ints) -> int | None:
    """What all differences of some times are a multiple of, in ns: the tick as the stamps themselves show it.

    A multiple of the true tick, so only many times give the tick itself; None where all times are one.
    """
    steps = np.abs(np.diff(times_ns))
    steps = steps[steps > 0]
    return int(np.gcd.reduce(steps)) if len(steps) else None
