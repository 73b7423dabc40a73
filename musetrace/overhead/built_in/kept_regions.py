"""Memory that launches stamp while nobody records: a launch does all it does when it is recorded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.record.collector import OffCollector
from musetrace.record.source import LaunchInfo, Lease, StampBuffer, StampSource


class KeptRegions(OffCollector):
    """Lends the same buffer to the same launch of each step.

    Args:
        source: the device.
        launches: of a step.
    """

    def __init__(self, source: StampSource, launches: int) -> None:
        size = source.ranks * source.layout.region_bytes
        self.memory: list[npt.NDArray[np.uint8]] = [source.allocate(size) for _ in range(launches)]

    def acquire(self, info: LaunchInfo) -> Lease:
        """The buffer of the launch."""
        buffer = StampBuffer(self.memory[info.launch])
        return Lease(buffer.address, info.launch + 1, info, 0, buffer)

    def clear(self) -> None:
        """No launch has stamped."""
        for memory in self.memory:
            memory[:] = 0
