"""How far one clock is ahead of another over time, from measurements of it: exact, in integers of ns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# Two clocks that were compared only once: crystals are good to 50 ppm each.
ASSUMED_DRIFT_PPB = 100_000
# The kernel slews CLOCK_MONOTONIC by at most 500 ppm. Two clocks that part faster than this: one was set.
MOST_DRIFT_PPB = 1_000_000
# Of a line. A recording of hours has more measurements: then the residual says what those in between add.
MOST_POINTS = 512
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
    """An offset that changes evenly from point to point, and is known less and less well outside of them.

    ``residual_ns`` is how far a measurement lies off the straight line between its neighbours at most: what
    two clocks that do not run evenly may do between two points. None with fewer than three measurements.
    """

    points: tuple[OffsetPoint, ...]
    residual_ns: int | None = None

    @property
    def drift_ppb(self) -> float | None:
        """How much faster the other clock runs, from the first point to the last; None when there is one."""
        if len(self.points) < 2:
            return None
        first, last = self.points[0], self.points[-1]
        return (last.offset_ns - first.offset_ns) * _PPB / (last.at_ns - first.at_ns)

    @property
    def drift_error_ppb(self) -> float | None:
        """The error of ``drift_ppb``."""
        if len(self.points) < 2:
            return None
        first, last = self.points[0], self.points[-1]
        return (first.error_ns + last.error_ns) * _PPB / (last.at_ns - first.at_ns)

    def offset_ns(self, at_ns: int) -> int:
        """How far the other clock is ahead when the one reads ``at_ns``."""
        before, after = self._around(at_ns)
        if at_ns <= before.at_ns or before is after:
            return before.offset_ns
        return _between(before, after, at_ns)

    def error_ns(self, at_ns: int) -> int:
        """How far from the truth ``offset_ns(at_ns)`` can be.

        If both clocks run evenly, or with three points and more, if they run no less evenly between
        measurements than across them.
        """
        return self.even_error_ns(at_ns) + (self.residual_ns or 0)

    def even_error_ns(self, at_ns: int) -> int:
        """As :meth:`error_ns`, without the residual: of clocks that run evenly."""
        before, after = self._around(at_ns)
        own_ns = max(before.error_ns, after.error_ns)
        if before.at_ns <= at_ns <= after.at_ns:
            # An offset in between is rounded.
            return own_ns + (len(self.points) > 1)
        faster_ppb = ASSUMED_DRIFT_PPB
        if self.drift_ppb is not None and self.drift_error_ppb is not None:
            faster_ppb = max(faster_ppb, int(abs(self.drift_ppb) + self.drift_error_ppb) + 1)
        return own_ns + -(-abs(at_ns - before.at_ns) * faster_ppb // _PPB)

    def before(self, other_ns: int) -> int:
        """What the one clock reads when the other reads ``other_ns``."""
        at_ns = other_ns - self.points[0].offset_ns
        # The offset changes by less than a thousandth of the time, so each round gains three digits.
        for _ in range(_INVERSIONS):
            at_ns = other_ns - self.offset_ns(at_ns)
        return at_ns

    def _around(self, at_ns: int) -> tuple[OffsetPoint, OffsetPoint]:
        """The two points that a time is between; twice the nearest one outside of all."""
        place = bisect_right(self.points, at_ns, key=lambda point: point.at_ns)
        if place == len(self.points) and at_ns == self.points[-1].at_ns:
            place -= 1
        before, after = self.points[max(place - 1, 0)], self.points[min(place, len(self.points) - 1)]
        return before, after


def line_through(points: Iterable[OffsetPoint]) -> OffsetLine | None:
    """The line from measurement to measurement; None without any.

    None also when the clocks parted faster than two clocks do that nobody sets. Measurements that follow each
    other sooner than their errors may say that the one clock stands still or runs backwards while the other
    runs: then the better of the two alone says more.
    """
    kept: list[OffsetPoint] = []
    for point in sorted(points, key=lambda point: point.at_ns):
        best = point
        while kept:
            if _was_set(kept[-1], best):
                return None
            if not _runs_backwards(kept[-1], best):
                break
            best = min(kept.pop(), best, key=lambda one: one.error_ns)
        kept.append(best)
    if not kept:
        return None
    drawn = _thinned(kept)
    line = OffsetLine(tuple(drawn))
    off_ns = [abs(point.offset_ns - line.offset_ns(point.at_ns)) for point in kept]
    off_ns += [
        abs(point.offset_ns - _between(before, after, point.at_ns))
        for before, point, after in zip(kept, kept[1:], kept[2:], strict=False)
    ]
    return replace(line, residual_ns=max(off_ns)) if len(kept) > 2 else line


def _runs_backwards(first: OffsetPoint, then: OffsetPoint) -> bool:
    return abs(then.offset_ns - first.offset_ns) >= then.at_ns - first.at_ns


def _was_set(first: OffsetPoint, then: OffsetPoint) -> bool:
    run_ns = then.at_ns - first.at_ns
    most_ns = first.error_ns + then.error_ns + run_ns * MOST_DRIFT_PPB // _PPB
    return run_ns > 0 and abs(then.offset_ns - first.offset_ns) > most_ns


def _between(first: OffsetPoint, then: OffsetPoint, at_ns: int) -> int:
    run = at_ns - first.at_ns
    return first.offset_ns + (then.offset_ns - first.offset_ns) * run // (then.at_ns - first.at_ns)


def _thinned(points: Sequence[OffsetPoint]) -> Sequence[OffsetPoint]:
    """As many as a line may have, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    apart = -(-(len(points) - 1) // (MOST_POINTS - 1))
    return [*points[:-1:apart], points[-1]]


def chained(to_common: OffsetLine, other_to_common: OffsetLine) -> OffsetLine:
    """From a clock to another one, where both are known against a third."""
    errors_ns = {point.at_ns: point.error_ns for point in to_common.points}
    first_ns, last_ns = min(errors_ns), max(errors_ns)
    for bend in other_to_common.points[1:-1]:
        # Where the other's line bends, so does the one from here to there.
        at_ns = to_common.before(bend.at_ns + bend.offset_ns)
        if first_ns < at_ns < last_ns:
            errors_ns.setdefault(at_ns, to_common.even_error_ns(at_ns))
    points = []
    for at_ns, own_ns in sorted(errors_ns.items()):
        other_ns = other_to_common.before(at_ns + to_common.offset_ns(at_ns))
        # The errors add up; in ns of the other clock they are a thousandth more at most, and ns are rounded.
        error_ns = own_ns + other_to_common.even_error_ns(other_ns)
        points.append(OffsetPoint(at_ns, other_ns - at_ns, error_ns + error_ns // 1000 + 2))
    residuals = [line.residual_ns for line in (to_common, other_to_common) if line.residual_ns is not None]
    return OffsetLine(tuple(points), sum(residuals) if residuals else None)
