"""Passes and whole steps that several processes run together, each on the ranks that it holds."""

from __future__ import annotations

from musetrace.errors import DeviceError
from musetrace.muse.passes import Passes, Recording
from musetrace.muse.peer_device import PeerDevice


class JointPasses:
    """Passes of this process that end well when they do in all processes.

    Args:
        device: what ``passes`` runs on.
        passes: how this process launches them.
    """

    def __init__(self, device: PeerDevice, passes: Passes) -> None:
        self.plan = passes.plan
        self._has_logits = any(planned.device_kind == "head" for planned in passes.plan)
        self._device = device
        self._passes = passes

    def prepare(self, stamps: str) -> None:
        """See :meth:`Passes.prepare`."""
        self._passes.prepare(stamps)

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """See :meth:`Passes.run`. After a failure all processes can run the next pass, unless one is gone."""
        self._device.meet()
        failure: DeviceError | None = None
        try:
            self._passes.run(position, recording, step)
        except DeviceError as error:
            failure = error
        self._device.end_pass(position, failure, self._has_logits)
