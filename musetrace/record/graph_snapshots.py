"""Copies of what captured launches stamped, one a step: launches of a graph have no event of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from musetrace.record.kernel_buffers import CapturedLaunches, Slab
from musetrace.record.kernel_device import HostCopies, KernelDevice
from musetrace.record.kernel_launch import AlreadyEnded, Ended, KernelSnapshot
from musetrace.record.launch_numbers import LaunchNumber, LaunchNumbers, OpenStep
from musetrace.record.loss_ledger import BUFFERS_BUSY
from musetrace.record.source import LaunchInfo

_REPLAYED_AGAIN = "replayed {launches} times in one step"
_REPLAYED_OUTSIDE = "replayed {launches} times outside of a step"

InfoOf = Callable[[LaunchNumber, int, int | None], LaunchInfo]


class GraphSnapshots:
    """The captured launches of a recording, and their snapshots.

    Nobody tells which graph a step replays, so all captured launches are copied, and the count in each region
    says how often the kernel ran since the copy before.
    """

    def __init__(self, device: KernelDevice, info_of: InfoOf) -> None:
        """``info_of(number, kernel, layer)`` is what the journal says of a launch."""
        self._info_of = info_of
        self.captured = CapturedLaunches(device)

    def take(self, step: OpenStep, stream: Any) -> list[KernelSnapshot]:
        """Queue the copies of a step in its stream. Without free memory a slab's launches wait, and count."""
        found = []
        for slab in self.captured.slabs:
            copies, rows = slab.take_copies(), len(slab.launches)
            if copies is None:
                slab.regions.forget(rows, stream)
            else:
                ended = slab.regions.snapshot(rows, copies, stream)
                repeated = BUFFERS_BUSY if slab.skipped else _REPLAYED_AGAIN
                found.append(self._snapshot(slab, copies, ended, step, repeated))
            slab.renew(skipped=copies is None)
        return found

    @property
    def has_room(self) -> bool:
        """Whether the next step's replays can all be copied."""
        return all(slab.has_copies for slab in self.captured.slabs)

    def take_last(self, numbers: LaunchNumbers) -> list[KernelSnapshot]:
        """What was replayed since the last step, as a step more; waits for the device."""
        step = OpenStep(numbers.next_step, tokens=0)
        found = []
        for slab in self.captured.slabs:
            copies = slab.regions.copies()
            slab.regions.bring_now(len(slab.launches), copies)
            found.append(self._snapshot(slab, copies, AlreadyEnded(), step, _REPLAYED_OUTSIDE))
        return found

    def _snapshot(
        self, slab: Slab, copies: HostCopies, ended: Ended, step: OpenStep, repeated: str
    ) -> KernelSnapshot:
        """The launches of a slab, numbered in the order of capture behind the step's own launches."""
        numbers = [LaunchNumber(step.number, step.launches + one.number, 0) for one in slab.launches]
        return KernelSnapshot(
            infos=[
                self._info_of(number, slab.kernel, launch.layer)
                for number, launch in zip(numbers, slab.launches, strict=True)
            ],
            memory=copies.memory,
            epoch=slab.epoch,
            submit_ns=slab.since_ns,
            ended=ended,
            give_back=partial(slab.give_back, copies),
            repeated=repeated,
        )
