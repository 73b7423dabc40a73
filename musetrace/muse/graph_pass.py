"""A verify pass as one CUDA graph: captured once, its stamps fetched after each replay.

The graph's launches stamp into regions of their own, at addresses that never change. Their epochs are 0, 1,
2... plus the number that the step brings along; leases that are taken at once have such epochs too, so each
header gets the epoch of its lease. A step that cannot have all its leases is counted as lost and never filed.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.launch_plan import PlannedLaunch
from musetrace.muse.passes import EagerPasses, Recording
from musetrace.record.kernel_launch import Ended
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, Lease


class StepGraph:
    """A captured pass and the regions that it stamps: ``regions`` uint8[launches, ranks * region_bytes].

    Args:
        device: what captures it.
        plan: the pass's launches.
        build: ``register``, ``store``, ``off``, or ``absent``: compiled from a source without stamps.
    """

    def __init__(self, device: CudaDevice, plan: Sequence[PlannedLaunch], build: str) -> None:
        self._device = device
        slots, slot_bytes = device.job_table.slots, SLOT_BYTES_OF_STAMPS.get(build, 0)
        self.layout = StampLayout(device.blocks, slots, slot_bytes)
        self.regions: Tensor = device.copies.regions(len(plan), device.ranks * self.layout.region_bytes)
        requests = [
            (planned.device_kind, planned.device_layer, region.data_ptr(), index)
            for index, (planned, region) in enumerate(zip(plan, self.regions, strict=True))
        ]
        self.launches = len(requests)
        self._graph = device.capture(requests, build)

    def replay(self, position: int, leases: Sequence[Lease] = ()) -> int:
        """Queue the pass behind all copies of stamps, and return its ticket."""
        self._device.copies.hold_launches()
        return self._device.replay(self._graph, position, leases[0].epoch if leases else 0)

    def fetch(self, leases: Sequence[Lease]) -> Ended:
        """Queue copies of the pass's stamps to its leases; none of them: the stamps are dropped.

        Returns:
            What ends when the stamps are in the leases' memory.
        """
        return self._device.copies.fetch(self.regions, [lease.address for lease in leases])


class GraphPasses:
    """Recorded passes as replays of a graph; eager ones while nobody records."""

    def __init__(self, device: CudaDevice, plan: Sequence[PlannedLaunch]) -> None:
        self.plan = tuple(plan)
        self._device = device
        self._eager = EagerPasses(device, plan)
        self._graphs: dict[str, StepGraph] = {}

    def prepare(self, stamps: str) -> None:
        """See :meth:`Passes.prepare`: captures the graph."""
        if stamps not in self._graphs:
            self._graphs[stamps] = StepGraph(self._device, self.plan, stamps)

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """See :meth:`Passes.run`."""
        if recording is None:
            self._eager.run(position, None, None)
            return
        self.prepare(recording.stamps)
        collector = recording.collector
        infos = [] if step is None else [planned.info(step) for planned in self.plan]
        leases = collector.acquire_all(infos) or []
        graph = self._graphs[recording.stamps]
        ticket = graph.replay(position, leases)
        ended = graph.fetch(leases)
        for lease in leases:
            collector.submit(lease, ended.synchronize)
        self._device.wait(ticket)


class WholeStepPasses(GraphPasses):
    """Whole steps, recorded or not, as replays of a graph; all of their numbers are the device's own."""

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """See :meth:`Passes.run`; ``position`` is ``FROM_STATE``."""
        if recording is not None:
            super().run(position, recording, step)
            return
        self.prepare("off")
        self._device.wait(self._graphs["off"].replay(position))
