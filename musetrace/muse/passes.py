"""How a verify pass is launched: launch after launch here, as one graph in ``graph_pass``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from musetrace.muse.device import Device
from musetrace.muse.launch_plan import PlannedLaunch
from musetrace.record.collector import Collector


@dataclass(frozen=True)
class Recording:
    """With what a pass is recorded."""

    collector: Collector
    stamps: str


class Passes(Protocol):
    """Runs verify passes on a device."""

    plan: tuple[PlannedLaunch, ...]

    def prepare(self, stamps: str) -> None:
        """Make what recorded passes need, so that the first is no slower than the others."""

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """Run a pass to its end.

        Args:
            position: of the first of the 16 tokens.
            recording: None while nobody records.
            step: the number under which the launches are filed; None for a pass that is not.

        Raises:
            DeviceError: no room in the cache, or a wait inside a launch ran out of time.
        """


class EagerPasses:
    """One launch after the other; each is drained when it has ended."""

    def __init__(self, device: Device, plan: Sequence[PlannedLaunch]) -> None:
        self.plan = tuple(plan)
        self._device = device
        self._in_flight: deque[int] = deque()

    def prepare(self, stamps: str) -> None:
        """See :meth:`Passes.prepare`: nothing."""

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """See :meth:`Passes.run`."""
        try:
            for planned in self.plan:
                if len(self._in_flight) == self._device.launches_in_flight:
                    self._device.wait(self._in_flight.popleft())
                self._launch(planned, position, recording, step)
            while self._in_flight:
                self._device.wait(self._in_flight.popleft())
        finally:
            self._in_flight.clear()

    def _launch(
        self, planned: PlannedLaunch, position: int, recording: Recording | None, step: int | None
    ) -> None:
        stamps = "off" if recording is None else recording.stamps
        kind, layer = planned.device_kind, planned.device_layer
        lease = None if recording is None or step is None else recording.collector.acquire(planned.info(step))
        address, epoch = (0, 0) if lease is None else (lease.address, lease.epoch)
        ticket = self._device.launch(kind, layer, position, stamps, address, epoch)
        self._in_flight.append(ticket)
        if lease is not None and recording is not None:
            recording.collector.submit(lease, self._device.stamps_ready(ticket))
