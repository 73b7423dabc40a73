"""A device for tests of graphs: host memory, streams that can be captured, copies that end when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from musetrace.abi import StampLayout
from musetrace.record import recorder
from musetrace.record.cpu_kernel_device import CpuKernelDevice, HostMemory, HostRegions
from musetrace.record.kernel_launch import Ended
from tests.host_kernel import HostKernel


class CopyEnd:
    """The end of a copy: at once, after ``hold()`` when it is let go, or never, when the device failed."""

    def __init__(self, device: ScriptedDevice) -> None:
        self._device = device

    def synchronize(self) -> None:
        assert self._device.gate.wait(20)
        if self._device.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")


class ScriptedRegions(HostRegions):
    """Regions whose copies are noted by their stream."""

    def __init__(self, device: ScriptedDevice, rows: int, layout: StampLayout) -> None:
        super().__init__(rows, layout)
        self._device = device

    def bring(self, row: int, into: HostMemory, stream: Any) -> Ended:
        self._device.queue("bring", stream)
        super().bring(row, into, stream)
        return CopyEnd(self._device)

    def snapshot(self, rows: int, into: HostMemory, stream: Any) -> Ended:
        self._device.queue("snapshot", stream)
        super().snapshot(rows, into, stream)
        return CopyEnd(self._device)

    def forget(self, rows: int, stream: Any) -> None:
        self._device.queue("forget", stream)
        super().forget(rows, stream)


class ScriptedDevice(CpuKernelDevice):
    """Streams are strings; ``log`` has what was queued, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.capturing: set[str] = set()
        self.log: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self.rows_left = 1 << 20

    def queue(self, what: str, stream: str) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")
        assert stream not in self.capturing, f"{what} would become part of a graph"
        self.log.append((what, stream))

    def stream(self, given: object) -> str:
        return "current" if given is None else str(given)

    def is_capturing(self, stream: str) -> bool:
        return stream in self.capturing

    def regions(self, rows: int, layout: StampLayout) -> ScriptedRegions:
        self.rows_left -= rows
        if self.rows_left < 0:
            raise MemoryError("no memory for stamps")
        return ScriptedRegions(self, rows, layout)

    def mark(self, stream: str) -> Ended:
        self.queue("mark", stream)
        return CopyEnd(self)


@dataclass
class Graph:
    """Launches at fixed addresses, to be replayed."""

    launches: list[tuple[HostKernel, int]] = field(default_factory=list)

    def add(self, kernel: HostKernel, address: int) -> None:
        """A launch that was captured."""
        self.launches.append((kernel, address))

    def replay(self) -> list[int]:
        """Run all launches; returns when each began."""
        return [kernel.run(address) for kernel, address in self.launches]


@contextmanager
def capture(device: ScriptedDevice, stream: str = "current") -> Iterator[Graph]:
    """A graph, captured inside of the block."""
    device.capturing.add(stream)
    yield Graph()
    device.capturing.remove(stream)


def install(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    """The device that attach() gets in this test, whatever it asks for."""
    device = ScriptedDevice()
    monkeypatch.setattr(recorder, "open_kernel_device", lambda name: device)
    return device
