"""How far one clock is ahead of another over time, from one or two measurements: exact, in integers of ns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Two clocks that were compared only once: crystals are good to 50 ppm each.
ASSUMED_DRIFT_PPB = 100_000
# The kernel slews CLOCK_MONOTONIC by at most 500 ppm. Two clocks that part faster than this: one was set.
MOST_DRIFT_PPB = 1_000_000
_PPB = 1_000_000_000
_INVERSIONS = 5


@dataclass(frozen=True)
class OffsetPoint:
    """When the one clock read ``at_ns``, the other was ``offset_ns`` ahead, give or take ``error_ns``."""

    at_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class OffsetLine:
    """An offset that changes evenly between two points, and is known less and less well outside of them."""

    points: tuple[OffsetPoint, ...]

    @property
    def drift_ppb(self) -> float | None:
        """How much faster the other clock runs; None when it was measured once."""
        if len(self.points) < 2:
            return None
        first, last = self.points
        return (last.offset_ns - first.offset_ns) * _PPB / (last.at_ns - first.at_ns)

    @property
    def drift_error_ppb(self) -> float | None:
        """The error of ``drift_ppb``."""
        if len(self.points) < 2:
            return None
        first, last = self.points
        return (first.error_ns + last.error_ns) * _PPB / (last.at_ns - first.at_ns)

    def offset_ns(self, at_ns: int) -> int:
        """How far the other clock is ahead when the one reads ``at_ns``."""
        first, last = self.points[0], self.points[-1]
        if at_ns <= first.at_ns:
            return first.offset_ns
        if at_ns >= last.at_ns:
            return last.offset_ns
        run = at_ns - first.at_ns
        return first.offset_ns + (last.offset_ns - first.offset_ns) * run // (last.at_ns - first.at_ns)

    def error_ns(self, at_ns: int) -> int:
        """How far from the truth ``offset_ns(at_ns)`` can be, if both clocks run evenly."""
        first, last = self.points[0], self.points[-1]
        if first.at_ns <= at_ns <= last.at_ns:
            # An offset in between is rounded.
            return max(first.error_ns, last.error_ns) + (len(self.points) > 1)
        nearest = first if at_ns < first.at_ns else last
        faster_ppb = ASSUMED_DRIFT_PPB
        if self.drift_ppb is not None and self.drift_error_ppb is not None:
            faster_ppb = max(faster_ppb, int(abs(self.drift_ppb) + self.drift_error_ppb) + 1)
        return nearest.error_ns + -(-abs(at_ns - nearest.at_ns) * faster_ppb // _PPB)

    def before(self, other_ns: int) -> int:
        """What the one clock reads when the other reads ``other_ns``."""
        at_ns = other_ns - self.points[0].offset_ns
        # The offset changes by less than a thousandth of the time, so each round gains three digits.
        for _ in range(_INVERSIONS):
            at_ns = other_ns - self.offset_ns(at_ns)
        return at_ns


def line_through(points: Iterable[OffsetPoint]) -> OffsetLine | None:
    """The line through the first and the last of some measurements; None without any.

    None also when the clocks parted faster than two clocks do that nobody sets. Measurements that follow each
    other sooner than their errors may say that the one clock stands still or runs backwards while the other
    runs: then the better of the two alone says more.
    """
    ordered = sorted(points, key=lambda point: point.at_ns)
    if not ordered:
        return None
    first, last = ordered[0], ordered[-1]
    run_ns = last.at_ns - first.at_ns
    if run_ns == 0:
        return OffsetLine((min(ordered, key=lambda point: point.error_ns),))
    most_ns = first.error_ns + last.error_ns + run_ns * MOST_DRIFT_PPB // _PPB
    if abs(last.offset_ns - first.offset_ns) > most_ns:
        return None
    if abs(last.offset_ns - first.offset_ns) >= run_ns:
        return OffsetLine((min(first, last, key=lambda point: point.error_ns),))
    return OffsetLine((first, last))


def chained(to_common: OffsetLine, other_to_common: OffsetLine) -> OffsetLine:
    """From a clock to another one, where both are known against a third."""
    points = []
    for point in to_common.points:
        other_ns = other_to_common.before(point.at_ns + point.offset_ns)
        # The errors add up; in ns of the other clock they are a thousandth more at most, and ns are rounded.
        error_ns = point.error_ns + other_to_common.error_ns(other_ns)
        points.append(OffsetPoint(point.at_ns, other_ns - point.at_ns, error_ns + error_ns // 1000 + 2))
    return OffsetLine(tuple(points))
