"""What the recorder needs of a device that other people's kernels run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from musetrace.abi import StampLayout
from musetrace.record.kernel_launch import Ended
from musetrace.record.peer_clock import PeerClock
from musetrace.store.payloads import Clock

CLOCK_READS = 20_000


class HostCopies(Protocol):
    """Memory of the host for the regions of some rows."""

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """uint8[rows, region_bytes]; what is in it is there once the copy has ended."""


class KernelRegions(Protocol):
    """Regions of one kernel in the device's memory, a row each, cleared and with the host's part filled in.

    All rows begin with epoch 1, and ``bring`` and ``snapshot`` leave them cleared, with the next epoch.
    """

    @property
    def addresses(self) -> Sequence[int]:
        """Of the rows, on the device."""

    def array(self, row: int) -> Any:
        """The row as an object with ``__dlpack__``, of shape [region_bytes] and dtype uint8."""

    def copies(self) -> HostCopies:
        """Host memory for all rows, and what it takes to bring them there."""

    def bring(self, row: int, into: Any, stream: Any) -> Ended:
        """Queue a copy of one row behind what the stream has, then its clearing: both beside the stream."""

    def snapshot(self, rows: int, into: Any, stream: Any) -> Ended:
        """Queue a copy of the first ``rows`` rows and their clearing in the stream; the host's, beside it."""

    def forget(self, rows: int, stream: Any) -> None:
        """Queue the clearing of the stamps of the first ``rows`` rows in the stream; launches count on."""

    def bring_now(self, rows: int, into: Any) -> None:
        """Wait for the device, then copy the first ``rows`` rows; for the end of a recording."""


class KernelDevice(Protocol):
    """A device that kernels run on, with a clock and streams. Errors of it are RuntimeErrors."""

    kind: str
    facts: dict[str, Any]
    clock_name: str
    tick_ns: int
    anchor: Clock

    @property
    def peer_clock(self) -> Callable[[], PeerClock] | None:
        """See :class:`StampSource`."""

    def read_clock(self) -> int:
        """The clock of the stamps, in ns; may wait for the device."""

    def stream(self, given: object) -> Any:
        """The stream that a user names, the current one for None. Raises RecordError for anything else."""

    def is_capturing(self, stream: Any) -> bool:
        """Whether what is queued there becomes part of a graph."""

    def regions(self, rows: int, layout: StampLayout) -> KernelRegions:
        """New regions, ready. Also while a stream is being captured. Raises MemoryError."""

    def no_region(self) -> Any:
        """An object with ``__dlpack__`` of shape [0]: the kernel that gets it does not stamp."""

    def mark(self, stream: Any) -> Ended:
        """What ends when all that is in the stream now has."""

    def aside(self) -> AbstractContextManager[None]:
        """Around the recorder's own calls, so that they never break a capture of the program's."""

    def enter_thread(self) -> None:
        """First of all in a thread of the recorder's."""


def tick_of(times: Iterable[int]) -> int:
    """What all steps between successive reads of a clock are a multiple of, in ns; 1 when it never stepped.

    For a clock that is read slowly the step is an upper bound, and its residue shows a finer tick.
    """
    steps = np.diff(np.fromiter((int(time_ns) for time_ns in times), dtype=np.int64))
    return int(np.gcd.reduce(steps[steps > 0])) if (steps > 0).any() else 1
