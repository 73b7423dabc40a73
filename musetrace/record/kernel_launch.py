"""Launches of other people's kernels on their way from the program to the drain thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from musetrace.record.source import LaunchInfo


class Ended(Protocol):
    """Something in a stream that can be waited for, in any thread."""

    def synchronize(self) -> None:
        """Until it has ended. Raises RuntimeError when the device failed."""


class AlreadyEnded:
    """What ended before anybody asked."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


@dataclass
class KernelLaunch:
    """A launch whose stamps stand in ``memory`` once ``ended`` has.

    Attributes:
        info: which launch it is.
        memory: uint8[region_bytes]; None where the recorder keeps no stamps.
        epoch: that the host told the kernel.
        submit_ns: the host's clock (monotonic) before the launch.
        give_back: called when the memory is no longer needed.
        may_be_absent: whether the kernel need not have run, so that no stamps mean no launch.
        repeated: the reason under which launches before the last one count as lost.
        filed: whether the journal has the launch, or its loss.
    """

    info: LaunchInfo
    memory: npt.NDArray[np.uint8] | None
    epoch: int
    submit_ns: int
    ended: Ended
    give_back: Callable[[], None]
    may_be_absent: bool
    repeated: str
    filed: bool = False


@dataclass
class KernelSnapshot:
    """All captured launches of a slab as they stood at one moment, in ``memory`` once ``ended`` has.

    Attributes:
        infos: of the launches, in the order of their rows: those that ran since the snapshot before.
        memory: uint8[rows or more, region_bytes].
        epoch, submit_ns, ended, give_back, repeated: see :class:`KernelLaunch`.
    """

    infos: Sequence[LaunchInfo]
    memory: npt.NDArray[np.uint8]
    epoch: int
    submit_ns: int
    ended: Ended
    give_back: Callable[[], None]
    repeated: str

    def launch(self, row: int) -> KernelLaunch:
        """One of the launches, which may be absent."""
        return KernelLaunch(
            info=self.infos[row],
            memory=self.memory[row],
            epoch=self.epoch,
            submit_ns=self.submit_ns,
            ended=self.ended,
            give_back=nothing,
            may_be_absent=True,
            repeated=self.repeated,
        )


KernelItem = KernelLaunch | KernelSnapshot


def nothing() -> None:
    """Nothing has to be given back."""
