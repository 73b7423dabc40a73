"""The drain thread: takes the stamps of finished launches out of their buffers and into the journals.

Whatever goes wrong here stays here. The program goes on; the recording is marked as failed, and every launch
that is not recorded is counted.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from musetrace.record.kernel_drain import KernelDrain
from musetrace.record.kernel_launch import KernelLaunch, KernelSnapshot
from musetrace.record.loss_ledger import (
    NEVER_SUBMITTED,
    OUT_OF_ORDER,
    RECORDING_FAILED,
    LossLedger,
    LostLaunches,
)
from musetrace.record.rank_journal import RankJournal
from musetrace.record.source import LaunchInfo, Lease, StampBuffer, StampSource
from musetrace.store.payloads import Clock
from musetrace.store.stamp_batch import StampEncoder

_CLOCK_READS = 5
_MAX_REASON_CHARS = 500
_POLL_S = 0.0002
# Buffers of launches whose end nobody saw: a kernel may still write to them, so they live on.
_never_returned: list[StampBuffer] = []


@dataclass
class SubmittedLaunch:
    """A launch in flight; ``stored`` are the ranks whose journal has it."""

    lease: Lease
    wait_done: Callable[[], None]
    stored: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class StepDone:
    """A step whose launches were all submitted before."""

    data: dict[str, Any]


@dataclass(frozen=True)
class WaitReported:
    """A wait report of the device."""

    data: dict[str, Any]


@dataclass(frozen=True)
class ClockRead:
    """An anchor, read while it was recorded."""

    anchor: Clock


@dataclass(frozen=True)
class Stop:
    """Nothing follows."""

    reason: str


Item = SubmittedLaunch | KernelLaunch | KernelSnapshot | StepDone | WaitReported | ClockRead | Stop


class Drain:
    """Owns the journals from ``start`` until ``join`` returns."""

    def __init__(
        self,
        source: StampSource,
        encoder: StampEncoder,
        journals: Sequence[RankJournal],
        buffers: Sequence[StampBuffer],
        ledger: LossLedger,
        kernels: KernelDrain | None = None,
    ) -> None:
        """``journals`` are open, one a rank; ``encoder`` is made for the source's layout.

        ``kernels`` takes the launches of other people's kernels, into the first journal.
        """
        self._source = source
        self._encoder = encoder
        self._layout = source.layout
        self._no_slots = np.zeros((0, source.job_table.slots), dtype=np.uint32)
        self._buffers = buffers
        self._ledger = ledger
        self._kernels = kernels
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="musetrace-drain", daemon=True)
        self._ended = threading.Event()
        self.journals = journals
        # What else is known of the clock at the end; see RunOutput.
        self.last_clock: Callable[[Clock], Clock] = lambda anchor: anchor
        self.free: deque[StampBuffer] = deque(buffers)
        self.failure: str | None = None
        self.stamps = 0
        self._step = 0

    def start(self) -> None:
        """Start the thread. Raises RuntimeError when there can be no more threads."""
        self._thread.start()

    def read_clock(self) -> Clock:
        """Device and host clock now; from any thread."""
        return read_anchor(self._source)

    def put(self, item: Item) -> None:
        """Queue an item; never blocks."""
        self._queue.put(item)

    def wait_free(self, buffers: int, timeout_s: float) -> bool:
        """Wait until so many buffers are free; False when that never happens, or not in time."""
        deadline = time.monotonic() + timeout_s
        while len(self.free) < buffers:
            if self.failure is not None or buffers > len(self._buffers) or time.monotonic() > deadline:
                return False
            # Polled, so that the drain thread never has to wake anybody.
            time.sleep(_POLL_S)
        return True

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all before a Stop is written and the journals are closed; False after the timeout."""
        # Not the thread's own join: interrupted once, Python 3.11 takes the thread for ended ever after.
        return self._ended.wait(timeout_s)

    def _run(self) -> None:
        if self._kernels is not None:
            self._guard(self._kernels.enter_thread)
        item = self._queue.get()
        while not isinstance(item, Stop):
            try:
                self._write_losses()
                if self.failure is None:
                    self._take(item)
                else:
                    self._lose(item)
            except BaseException as error:
                self.fail(f"{type(error).__name__}: {error}")
                self._lose(item)
            item = self._queue.get()
        try:
            self._finish(item.reason)
        finally:
            self._ended.set()

    def _take(self, item: Item) -> None:
        if isinstance(item, SubmittedLaunch):
            self._take_launch(item)
        elif isinstance(item, (KernelLaunch, KernelSnapshot)) and self._kernels is not None:
            self.stamps += self._kernels.take(item, self.journals[0])
        elif isinstance(item, StepDone):
            for journal in self.journals:
                journal.step(item.data)
        elif isinstance(item, WaitReported):
            self._journal_of(item.data).report(item.data)
        elif isinstance(item, ClockRead):
            for journal in self.journals:
                journal.clock(item.anchor)
        failures = [journal.failure for journal in self.journals if journal.failure]
        if failures:
            self.fail(failures[0])
            self._lose(item)

    def _journal_of(self, report: dict[str, Any]) -> RankJournal:
        """The journal of the rank that waited; the first one when the report names none that there is."""
        own = (journal for journal in self.journals if journal.rank == report.get("rank"))
        return next(own, self.journals[0])

    def _take_launch(self, item: SubmittedLaunch) -> None:
        buffer = item.lease.buffer
        try:
            item.wait_done()
        except BaseException:
            # The launch may still be running: its stamps so far are worth having, its memory is not free.
            buffer.usable = False
            self._store(item, self._encode(item))
            raise
        in_order = item.lease.info.step >= self._step
        lengths = self._encode(item) if in_order else []
        buffer.memory[:] = 0
        buffer.info = None
        self.free.append(buffer)
        if in_order:
            self._step = item.lease.info.step
            self._store(item, lengths)
        else:
            self._lose(item, OUT_OF_ORDER)

    def _encode(self, item: SubmittedLaunch) -> list[int]:
        """Copy the stamps of all ranks into the journals' buffers; returns the bytes they take there."""
        info = item.lease.info
        launch = {
            **info.to_json(),
            "epoch": item.lease.epoch,
            "submit_ns": item.lease.submit_ns,
            "done_ns": time.monotonic_ns(),
        }
        size = self._layout.region_bytes
        lengths = []
        for rank, journal in enumerate(self.journals):
            region = item.lease.buffer.memory[rank * size : (rank + 1) * size]
            headers = self._layout.headers(region)
            slots = self._layout.stamps(region) if self._layout.slot_bytes else self._no_slots
            lengths.append(self._encoder.encode(journal.stamp_buffer.payload, launch, headers, slots))
            self.stamps += int(np.count_nonzero(slots))
        return lengths

    def _store(self, item: SubmittedLaunch, lengths: list[int]) -> None:
        for rank, (journal, length) in enumerate(zip(self.journals, lengths, strict=True)):
            if journal.launch(length):
                item.stored.add(rank)

    def _lose(self, item: Item, reason: str = RECORDING_FAILED) -> None:
        """Count a launch as lost in every journal that does not have it."""
        if isinstance(item, (KernelLaunch, KernelSnapshot)) and self._kernels is not None:
            with contextlib.suppress(Exception):
                self._kernels.lose(item, self.journals[0], reason)
        if not isinstance(item, SubmittedLaunch):
            return
        for rank, journal in enumerate(self.journals):
            if rank not in item.stored:
                item.stored.add(rank)
                self._lose_one(journal, item.lease.info, reason)
        # After a failure the buffer is never lent again, and is accounted for.
        if item.lease.buffer.info is item.lease.info:
            item.lease.buffer.usable = False

    def _lose_one(self, journal: RankJournal, info: LaunchInfo, reason: str) -> None:
        with contextlib.suppress(Exception):
            journal.lose(LostLaunches(info.step, info.launch, 1, reason))

    def _write_losses(self) -> None:
        for lost in self._ledger.take():
            for journal in self.journals:
                with contextlib.suppress(Exception):
                    journal.lose(lost)

    def fail(self, reason: str) -> None:
        """Record no more, for a reason that is told once; from any thread."""
        if self.failure is not None:
            return
        self.failure = " ".join(reason.split())[:_MAX_REASON_CHARS]
        with contextlib.suppress(Exception):
            line = f"recording stopped: {self.failure}; the program goes on, later launches count as lost"
            print(f"musetrace: {line}", file=sys.stderr, flush=True)

    def _guard(self, act: Callable[[], None]) -> None:
        """Do something that may fail, and with it the recording."""
        try:
            act()
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")

    def _finish(self, reason: str) -> None:
        kernels = self._kernels
        if kernels is not None and self.failure is None:
            self._guard(lambda: kernels.finish(self.journals[0]))
        if kernels is not None and self.failure is not None:
            kernels.abandon()
        self._write_losses()
        for buffer in self._buffers:
            if buffer.info is not None:
                _never_returned.append(buffer)
            if buffer.info is not None and buffer.usable:
                for journal in self.journals:
                    self._lose_one(journal, buffer.info, NEVER_SUBMITTED)
        anchor = None
        with contextlib.suppress(Exception):
            anchor = self.last_clock(read_anchor(self._source))
        for journal in self.journals:
            with contextlib.suppress(Exception):
                if anchor is not None:
                    journal.clock(anchor)
            with contextlib.suppress(Exception):
                journal.end(f"failed: {self.failure}" if self.failure else reason)
            journal.writer.close()


class ReadableClock(Protocol):
    """A device clock; ``tick_ns`` is its step."""

    @property
    def tick_ns(self) -> int:
        """In ns."""

    def read_clock(self) -> int:
        """In ns."""


def read_anchor(source: StampSource | ReadableClock) -> Clock:
    """Device and host clock at one moment: the tightest of a few readings.

    The device was read somewhere between two readings of the host, and is taken to be half way; its own
    reading may be late by a tick.
    """
    readings = []
    for _ in range(_CLOCK_READS):
        before = time.monotonic_ns()
        device_ns = source.read_clock()
        after = time.monotonic_ns()
        readings.append((after - before, device_ns, before + (after - before) // 2))
    width_ns, device_ns, host_ns = min(readings)
    return Clock(device_ns, host_ns, time.time_ns(), error_ns=(width_ns + 1) // 2 + source.tick_ns)
