"""Which step and launch is which, when a program launches as it likes: in steps of its own, or in none."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from musetrace.errors import RecordError
from musetrace.store import limits

MAX_LAYERS = 1 << 15  # what fits into the store's column


@dataclass(frozen=True)
class LaunchNumber:
    """A launch: its step, its place in it, and its place among the step's launches of the same kernel."""

    step: int
    launch: int
    of_kernel: int


@dataclass
class OpenStep:
    """A step that has begun: ``launches`` so far, in all and of each kernel; ``begin_ns`` is host time."""

    number: int
    tokens: int
    launches: int = 0
    of_kernel: Counter[int] = field(default_factory=Counter)
    begin_ns: int = field(default_factory=time.monotonic_ns)

    def next_launch(self, kernel: int) -> LaunchNumber:
        """Number one more launch."""
        number = LaunchNumber(self.number, self.launches, self.of_kernel[kernel] % MAX_LAYERS)
        self.launches += 1
        self.of_kernel[kernel] += 1
        return number


class LaunchNumbers:
    """Numbers launches in the order in which they are handed to the drain thread, which it relies on.

    Not safe to use from several threads at once.
    """

    def __init__(self) -> None:
        """No steps yet."""
        self.next_step = 0
        self.step: OpenStep | None = None

    def begin_step(self, tokens: int) -> OpenStep:
        """Begin a step. Raises RecordError inside of another one, and when there can be no more."""
        if self.step is not None:
            raise RecordError("a step has begun and not ended: steps do not lie in each other")
        if not 0 <= tokens <= limits.MAX_TOKENS:
            raise RecordError(
                f"a step of {tokens} tokens cannot be recorded; the limit is {limits.MAX_TOKENS}"
            )
        self.step = OpenStep(self._take_step(), tokens)
        return self.step

    def end_step(self) -> None:
        """End the step."""
        self.step = None

    def enter(self, kernel: int) -> LaunchNumber | None:
        """The number of a launch of the step; None outside of a step."""
        return None if self.step is None else self.step.next_launch(kernel)

    def leave(self, entered: LaunchNumber | None, kernel: int) -> tuple[LaunchNumber, bool]:
        """The number that a launch keeps, and whether it is a step of its own.

        A launch whose step has ended meanwhile belongs to the step of now.
        """
        if self.step is None:
            return LaunchNumber(self._take_step(), 0, 0), True
        if entered is not None and entered.step == self.step.number:
            return entered, False
        return self.step.next_launch(kernel), False

    def _take_step(self) -> int:
        if self.next_step > limits.MAX_STEP:
            raise RecordError(f"a run has at most {limits.MAX_STEP + 1} steps; open another recorder")
        self.next_step += 1
        return self.next_step - 1
