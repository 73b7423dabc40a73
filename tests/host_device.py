"""A device for tests of the recorder: its launches stamp as a kernel does, through raw addresses."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.job_table import JobTable
from musetrace.record.collector import Collector
from musetrace.record.peer_clock import PeerClock
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, LaunchInfo, Lease, StampSource
from tests.builders import small_table


@dataclass
class HostDevice:
    """Stamps pair p of block b of rank r at ``t0 + 100 * b + 10 * p`` for ``p + 1`` ns."""

    ranks: int = 1
    blocks: int = 2
    stamps: str = "store"
    table: JobTable = field(default_factory=small_table)
    clock_name: str = "CLOCK_MONOTONIC"
    read_clock: Callable[[], int] = time.monotonic_ns
    peer_clock: Callable[[], PeerClock] | None = None

    def source(self) -> StampSource:
        """What a recorder gets to know."""
        return StampSource(
            job_table=self.table,
            ranks=self.ranks,
            blocks=self.blocks,
            slot_bytes=SLOT_BYTES_OF_STAMPS[self.stamps],
            device={"kind": "host"},
            model={"name": "none"},
            build={"flags": "-O0"},
            clock_name=self.clock_name,
            tick_ns=1,
            read_clock=self.read_clock,
            allocate=aligned_zeros,
            peer_clock=self.peer_clock,
        )

    def stamp(self, lease: Lease) -> None:
        """Write all headers and all stamps of a launch."""
        layout = self.source().layout
        size = layout.region_bytes
        whole = (ctypes.c_uint8 * (size * self.ranks)).from_address(lease.address)
        memory = np.frombuffer(whole, dtype=np.uint8)
        for rank in range(self.ranks):
            region = memory[rank * size : (rank + 1) * size]
            headers = layout.headers(region)
            t0 = self.read_clock()
            headers["time_ns"], headers["epoch"], headers["sm"] = t0, lease.epoch, np.arange(self.blocks) + 7
            if layout.slot_bytes:
                layout.stamps(region)[:] = self.times(t0).astype(f"<u{layout.slot_bytes}")

    def times(self, t0: int) -> npt.NDArray[np.uint64]:
        """The stamps of a launch that began at ``t0``: u64[blocks, slots]."""
        pair = np.arange(self.table.slots // 2, dtype=np.uint64)
        begin = t0 + 100 * np.arange(self.blocks, dtype=np.uint64)[:, None] + 10 * pair[None, :]
        return np.stack([begin, begin + pair + 1], axis=2).reshape(self.blocks, self.table.slots)

    def run_step(self, collector: Collector, step: int, launches: int = 3, **wait: Callable[[], None]) -> int:
        """Make a step's launches and return how many of them got a buffer."""
        begin_ns = time.monotonic_ns()
        recorded = 0
        for launch in range(launches):
            lease = collector.acquire(LaunchInfo(step, launch, launch - 1, "sliding"))
            if lease is not None:
                self.stamp(lease)
                collector.submit(lease, wait.get("wait_done", already_done))
                recorded += 1
        collector.step(step, begin_ns, time.monotonic_ns(), tokens=16)
        return recorded

    def run_steps_unhurried(self, recorder: Any, collector: Collector, steps: int, launches: int = 3) -> None:
        """Make steps so slowly that every launch finds a free buffer."""
        for step in range(steps):
            for launch in range(launches):
                wait_until(lambda: bool(recorder._drain.free))
                lease = collector.acquire(LaunchInfo(step, launch, launch - 1, "sliding"))
                assert lease is not None
                self.stamp(lease)
                collector.submit(lease, already_done)
            collector.step(step, 1, 2, tokens=16)


def already_done() -> None:
    """The end of a launch that has ended."""


def aligned_zeros(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory, aligned to 128 bytes."""
    memory = np.zeros(size_bytes + 128, dtype=np.uint8)
    offset = -memory.ctypes.data % 128
    return memory[offset : offset + size_bytes]


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until a condition holds."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition never held")
        pause.wait(0.0005)
