"""Host memory as a device: kernels that run as threads of the host, with the same header as on a GPU."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.abi import StampLayout
from musetrace.record.drain import read_anchor
from musetrace.record.kernel_device import CLOCK_READS, tick_of
from musetrace.record.kernel_launch import AlreadyEnded, Ended
from musetrace.record.kernel_region import EPOCH_WORD, HEADER_BYTES, HOST_BYTES, Region, write_header
from musetrace.record.peer_clock import PeerClock


class CpuKernelDevice:
    """A launch has ended when the ``with`` block around it ends."""

    kind = "cpu"
    peer_clock: Callable[[], PeerClock] | None = None
    clock_name = "CLOCK_MONOTONIC"

    def __init__(self) -> None:
        """Look at the processor and its clock."""
        self.facts: dict[str, Any] = {"kind": "cpu", "name": cpu_name(), "warps": "threads"}
        self.tick_ns = tick_of(_core.cpu.clock_ns() for _ in range(CLOCK_READS))
        self.anchor = read_anchor(self)

    def read_clock(self) -> int:
        """See :meth:`KernelDevice.read_clock`."""
        return int(_core.cpu.clock_ns())

    def stream(self, given: object) -> Any:
        """There are no streams."""
        return None

    def is_capturing(self, stream: Any) -> bool:
        """There are no graphs."""
        return False

    def regions(self, rows: int, layout: StampLayout) -> HostRegions:
        """See :meth:`KernelDevice.regions`."""
        return HostRegions(rows, layout)

    def no_region(self) -> Any:
        """See :meth:`KernelDevice.no_region`."""
        return np.zeros(0, dtype=np.uint8)

    def mark(self, stream: Any) -> Ended:
        """All has ended already."""
        return AlreadyEnded()

    def aside(self) -> AbstractContextManager[None]:
        """Nothing to be careful of."""
        return contextlib.nullcontext()

    def enter_thread(self) -> None:
        """Nothing to do."""


class HostMemory:
    """Plain memory to copy to."""

    def __init__(self, rows: int, size_bytes: int) -> None:
        """uint8[rows, size_bytes]."""
        self.memory: npt.NDArray[np.uint8] = np.zeros((rows, size_bytes), dtype=np.uint8)


class HostRegions:
    """Regions in host memory. Everything happens at once."""

    def __init__(self, rows: int, layout: StampLayout) -> None:
        """Allocate ``rows`` regions, aligned. Raises MemoryError."""
        self._rows = aligned_zeros(rows * layout.region_bytes).reshape(rows, layout.region_bytes)
        for row in self._rows:
            write_header(layout, row, epoch=1)
        self._epochs = self._rows.view(np.uint32)[:, EPOCH_WORD]
        self.addresses = [int(row.ctypes.data) for row in self._rows]

    def array(self, row: int) -> Region:
        """See :meth:`KernelRegions.array`."""
        region: Region = self._rows[row]
        return region

    def copies(self) -> HostMemory:
        """See :meth:`KernelRegions.copies`."""
        return HostMemory(*self._rows.shape)

    def bring(self, row: int, into: HostMemory, stream: Any) -> Ended:
        """See :meth:`KernelRegions.bring`."""
        into.memory[row] = self._rows[row]
        self._renew(slice(row, row + 1), HOST_BYTES)
        return AlreadyEnded()

    def snapshot(self, rows: int, into: HostMemory, stream: Any) -> Ended:
        """See :meth:`KernelRegions.snapshot`."""
        self.bring_now(rows, into)
        self._renew(slice(rows), HOST_BYTES)
        return AlreadyEnded()

    def forget(self, rows: int, stream: Any) -> None:
        """See :meth:`KernelRegions.forget`."""
        self._renew(slice(rows), HEADER_BYTES)

    def bring_now(self, rows: int, into: HostMemory) -> None:
        """See :meth:`KernelRegions.bring_now`."""
        into.memory[:rows] = self._rows[:rows]

    def _renew(self, rows: slice, kept_bytes: int) -> None:
        self._rows[rows, kept_bytes:] = 0
        self._epochs[rows] += 1


def aligned_zeros(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed uint8[size_bytes], aligned as a region must be."""
    align = int(_core.abi.REGION_ALIGN)
    memory = np.zeros(size_bytes + align, dtype=np.uint8)
    offset = -memory.ctypes.data % align
    return memory[offset : offset + size_bytes]


def cpu_name() -> str:
    """The processor as Linux names it, else its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
