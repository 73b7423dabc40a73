"""What times a step: CUDA events around it in its stream, or the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

ClockNs = Callable[[], int]


@dataclass(frozen=True)
class Clock:
    """What a time was read from, and what it can be off by in ns."""

    name: str
    resolution_ns: float


HOST_CLOCK = Clock("host clock", 1)
# The documentation of cudaEventElapsedTime: a resolution of about half a microsecond.
EVENT_RESOLUTION_NS = 500
# About 100 us of a GPU. What is launched meanwhile waits, so that the time between two events behind it is
# that of the launches and not of the host that makes them.
_HEAD_START_CYCLES = 200_000


class Stopwatch(Protocol):
    """Takes the time of one step after the other, from ``clock``."""

    clock: Clock

    def start(self) -> None:
        """A step begins now."""

    def stop(self) -> None:
        """It has been handed to the device, or has ended."""

    def elapsed_ns(self) -> float:
        """Of the last step, in ns; waits for its end."""


class HostStopwatch:
    """The host's clock, for steps that have ended when they return.

    Args:
        clock_ns: a clock that only goes forward, in ns.
    """

    def __init__(self, clock_ns: ClockNs = time.perf_counter_ns) -> None:
        self.clock = HOST_CLOCK
        self._clock_ns = clock_ns
        self._begin = self._end = 0

    def start(self) -> None:
        """See :meth:`Stopwatch.start`."""
        self._begin = self._clock_ns()

    def stop(self) -> None:
        """See :meth:`Stopwatch.stop`."""
        self._end = self._clock_ns()

    def elapsed_ns(self) -> float:
        """See :meth:`Stopwatch.elapsed_ns`."""
        return float(self._end - self._begin)


class CudaStopwatch:
    """CUDA events in a stream of torch.

    Args:
        stream: a ``torch.cuda.Stream``; None for the one that is current when a step begins.
        head_start: keep the stream busy for 0.1 ms in front of a step, for steps that only launch. Without it
            the device is idle when a step begins.
    """

    def __init__(self, stream: Any = None, *, head_start: bool = False) -> None:
        import torch

        behind = ", behind a head start of 0.1 ms" if head_start else ""
        self.clock = Clock(f"CUDA events{behind}", EVENT_RESOLUTION_NS)
        self._cuda, self._stream, self._head_start = torch.cuda, stream, head_start
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """See :meth:`Stopwatch.start`."""
        if self._head_start:
            with self._cuda.stream(self._stream):
                self._cuda._sleep(_HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
        else:
            self._cuda.synchronize()
        self._begin.record(self._stream)

    def stop(self) -> None:
        """See :meth:`Stopwatch.stop`."""
        self._end.record(self._stream)

    def elapsed_ns(self) -> float:
        """See :meth:`Stopwatch.elapsed_ns`."""
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e6
