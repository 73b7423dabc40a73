"""The collector: lends stamp buffers to launches and hands them to the drain thread.

Nothing but ``wait_free`` blocks, which is for the time between steps.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from musetrace.errors import RecordError
from musetrace.record.drain import Drain, StepDone, SubmittedLaunch, WaitReported
from musetrace.record.loss_ledger import BUFFERS_BUSY, NUMBER_USED, RECORDING_FAILED, LossLedger
from musetrace.record.source import LaunchInfo, Lease, StampBuffer, is_integer
from musetrace.store import limits

_MAX_EPOCH = (1 << 32) - 1


class Collector(ABC):
    """What a device calls around each launch, from one thread at a time."""

    @abstractmethod
    def acquire(self, info: LaunchInfo) -> Lease | None:
        """A buffer for a launch that is about to be made, or None when it cannot be recorded. Never blocks.

        (step, launch) grows from call to call; a launch whose numbers do not is counted as lost.
        """

    @abstractmethod
    def acquire_all(self, infos: Sequence[LaunchInfo]) -> list[Lease] | None:
        """A buffer for each of some launches that are made at once, with epochs that follow each other.

        None when not all of them can be recorded: then all count as lost. Never blocks.
        """

    @abstractmethod
    def wait_free(self, buffers: int, timeout_s: float) -> bool:
        """Wait between steps until so many buffers are free; False when they are not in time."""

    @abstractmethod
    def submit(self, lease: Lease, wait_done: Callable[[], None]) -> None:
        """Hand over the launch that was made with a lease.

        The drain thread calls ``wait_done()``, which returns when the launch has ended.
        """

    @abstractmethod
    def step(
        self, step: int, host_begin_ns: int, host_end_ns: int, tokens: int = 0, output: str = ""
    ) -> None:
        """Note a step whose launches were all submitted, with the host clock (monotonic, ns) around it.

        ``output`` is the digest of what it made (``musetrace.step_output``), if that is known. Steps grow
        from call to call; raises RecordError otherwise.
        """

    @abstractmethod
    def report(self, wait_report: dict[str, Any]) -> None:
        """Note a wait report of the device."""


class OffCollector(Collector):
    """The collector of a recorder that is switched off."""

    def acquire(self, info: LaunchInfo) -> Lease | None:
        """Always None."""
        return None

    def acquire_all(self, infos: Sequence[LaunchInfo]) -> list[Lease] | None:
        """Always None."""
        return None

    def wait_free(self, buffers: int, timeout_s: float) -> bool:
        """There is nothing to wait for."""
        return True

    def submit(self, lease: Lease, wait_done: Callable[[], None]) -> None:
        """Nothing: there are no leases."""

    def step(
        self, step: int, host_begin_ns: int, host_end_ns: int, tokens: int = 0, output: str = ""
    ) -> None:
        """Nothing."""

    def report(self, wait_report: dict[str, Any]) -> None:
        """Nothing."""


class LiveCollector(Collector):
    """The collector of a recorder that records. ``closed`` switches it off for good."""

    def __init__(self, drain: Drain, ledger: LossLedger) -> None:
        """``drain`` has been started and reads the same ledger."""
        self._drain = drain
        self._ledger = ledger
        self._epoch = 0
        self._last = (-1, -1)
        self._last_step = -1
        self.closed = False

    def acquire(self, info: LaunchInfo) -> Lease | None:
        """See :meth:`Collector.acquire`."""
        leases = self.acquire_all([info])
        return leases[0] if leases else None

    def acquire_all(self, infos: Sequence[LaunchInfo]) -> list[Lease] | None:
        """See :meth:`Collector.acquire_all`."""
        if self.closed or not infos:
            return None
        reason = self._refusal(infos)
        if reason is not None:
            for info in infos:
                self._ledger.note(info, reason)
            return None
        if self._epoch + len(infos) > _MAX_EPOCH:
            self._epoch = 0
        return [self._lend(info) for info in infos]

    def _refusal(self, infos: Sequence[LaunchInfo]) -> str | None:
        """Why these launches cannot be recorded; None when they can. Their numbers count as used."""
        numbers = [self._last, *((info.step, info.launch) for info in infos)]
        if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
            return NUMBER_USED
        self._last = numbers[-1]
        if self._drain.failure is not None:
            return RECORDING_FAILED
        # Only this thread takes buffers out, so those that are free now stay so.
        return BUFFERS_BUSY if len(self._drain.free) < len(infos) else None

    def _lend(self, info: LaunchInfo) -> Lease:
        buffer: StampBuffer = self._drain.free.popleft()
        buffer.info = info
        self._epoch += 1
        return Lease(buffer.address, self._epoch, info, time.monotonic_ns(), buffer)

    def wait_free(self, buffers: int, timeout_s: float) -> bool:
        """See :meth:`Collector.wait_free`."""
        return not self.closed and self._drain.wait_free(buffers, timeout_s)

    def submit(self, lease: Lease, wait_done: Callable[[], None]) -> None:
        """See :meth:`Collector.submit`."""
        if not self.closed:
            self._drain.put(SubmittedLaunch(lease, wait_done))

    def step(
        self, step: int, host_begin_ns: int, host_end_ns: int, tokens: int = 0, output: str = ""
    ) -> None:
        """See :meth:`Collector.step`."""
        if self.closed:
            return
        self._check_step(step, host_begin_ns, host_end_ns, tokens)
        data = {"step": step, "host_begin_ns": host_begin_ns, "host_end_ns": host_end_ns, "tokens": tokens}
        numbers = {name: int(value) for name, value in data.items()}
        self._drain.put(StepDone({**numbers, "output": output} if output else numbers))

    def report(self, wait_report: dict[str, Any]) -> None:
        """See :meth:`Collector.report`."""
        if not self.closed:
            self._drain.put(WaitReported(dict(wait_report)))

    def _check_step(self, step: int, host_begin_ns: int, host_end_ns: int, tokens: int) -> None:
        if not all(is_integer(value) for value in (step, host_begin_ns, host_end_ns, tokens)):
            raise RecordError(f"step {step} is noted with numbers that are no integers; times are in ns")
        if min(host_begin_ns, host_end_ns) < 0 or max(host_begin_ns, host_end_ns) > limits.MAX_TIME_NS:
            raise RecordError(f"step {step} is noted with a time that is no clock's; times are in ns")
        if step <= self._last_step or step < self._last[0] or step > limits.MAX_STEP:
            raise RecordError(
                f"step {step} is noted after step {max(self._last_step, self._last[0])}; "
                "note each step once, before the launches of the next one"
            )
        if not 0 <= tokens <= limits.MAX_TOKENS:
            raise RecordError(
                f"a step of {tokens} tokens cannot be recorded; the limit is {limits.MAX_TOKENS}"
            )
        self._last_step = step
