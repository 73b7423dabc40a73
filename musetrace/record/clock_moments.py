"""When clocks are compared between steps: after so many of them, so that no process has to ask the others."""

from __future__ import annotations

import time
from collections.abc import Callable

# A short recording has a comparison in its middle, too.
FIRST_STEPS = 4
EVERY_S = 2.0
# Steps may become faster, and a plan of many times what was seen could wait for ever. With four times and
# less, a drift that changes evenly leaves less between two comparisons (h^2 / 4 of an interval h) than the
# comparison before shows beside the line through its neighbours (h times the interval before).
_MOST_GROWTH = 4


class ClockMoments:
    """Counts the steps of this process, which are those of all processes.

    Rank 0 plans the next moment by the pace of its steps, and tells the others.

    Args:
        read_s: the host's clock, in s.
    """

    def __init__(self, read_s: Callable[[], float] = time.monotonic) -> None:
        self._read_s = read_s
        self._since_s = read_s()
        self._planned = self._left = FIRST_STEPS

    def step(self) -> bool:
        """Another step is over. Returns whether now is a moment."""
        self._left -= 1
        return self._left == 0

    def plan(self) -> int:
        """At a moment: after how many steps the next one is, some seconds away, and 1 at least."""
        now_s = self._read_s()
        seen = max(self._planned - max(self._left, 0), 1)
        step_s = max((now_s - self._since_s) / seen, 1e-9)
        self._since_s = now_s
        steps = max(1, min(round(EVERY_S / step_s), _MOST_GROWTH * self._planned))
        self.follow(steps)
        return steps

    def follow(self, steps: int) -> None:
        """The next moment is after so many steps; 0: there is none any more."""
        self._planned = self._left = steps
