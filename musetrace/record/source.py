"""What a device tells the recorder, and what it gets from it for each launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.abi import StampLayout
from musetrace.errors import RecordError
from musetrace.job_bytes import LaunchBytes
from musetrace.job_table import JobTable
from musetrace.record.peer_clock import PeerClock
from musetrace.store import limits
from musetrace.store.payloads import Clock

SLOT_BYTES_OF_STAMPS = {"register": 4, "store": 8, "off": 0}

# The drain thread shares the interpreter with the program and may have to wait for it: 5 ms by default
# (sys.getswitchinterval), which is 59 launches of 85 us. With fewer buffers than that, a busy program loses
# launches although the drain is faster than they come.
BUFFERS = 64
MAX_BUFFERS = 1024


@dataclass(frozen=True)
class StampSource:
    """A device that stamps, as the recorder must know it before the first launch.

    ``read_clock`` gives the clock of the stamps in ns. ``allocate(n)`` gives ``n`` zeroed bytes, uint8[n],
    aligned to 128, that the device can write and the host can read: one buffer, the regions of all ranks one
    after the other. ``slot_bytes`` is 8 for stamps kept by ``store``, 4 by ``register``, 0 for ``off``.
    ``buffers`` is how many are allocated: a device that takes one for each launch of a step at once needs as
    many, and more to go on while they are drained. ``job_bytes`` is what the jobs of a launch move, where
    that is known. ``anchor`` is a first reading of both clocks, if there is one. ``peer_clock`` gives the
    device's end of a comparison with the clocks of other processes' devices, or raises RuntimeError; it is
    called when there are others, who wait for each other then.
    """

    job_table: JobTable
    ranks: int
    blocks: int
    slot_bytes: int
    device: dict[str, Any]
    model: dict[str, Any]
    build: dict[str, Any]
    clock_name: str
    tick_ns: int
    read_clock: Callable[[], int]
    allocate: Callable[[int], npt.NDArray[np.uint8]]
    buffers: int = BUFFERS
    job_bytes: Sequence[LaunchBytes] = ()
    anchor: Clock | None = None
    peer_clock: Callable[[], PeerClock] | None = None

    def __post_init__(self) -> None:
        """Refuse what the format cannot hold. Raises RecordError."""
        slots = self.job_table.slots
        if not 1 <= self.ranks <= limits.MAX_RANKS:
            raise RecordError(f"{self.ranks} ranks cannot be recorded; the limit is {limits.MAX_RANKS}")
        if not 1 <= self.blocks <= limits.MAX_BLOCKS:
            raise RecordError(f"{self.blocks} blocks cannot be recorded; the limit is {limits.MAX_BLOCKS}")
        if self.slot_bytes not in SLOT_BYTES_OF_STAMPS.values():
            raise RecordError(
                f"slot_bytes is {self.slot_bytes}; it must be 8 (store), 4 (register) or 0 (off)"
            )
        if not 1 <= self.buffers <= MAX_BUFFERS:
            raise RecordError(f"{self.buffers} stamp buffers cannot be had; the limit is {MAX_BUFFERS}")
        if slots % 2 or not 2 <= slots <= limits.MAX_SLOTS:
            raise RecordError(
                f"a table of {slots} slots cannot be recorded; it must be even and at most 65536"
            )

    @property
    def layout(self) -> StampLayout:
        """The layout of one rank's region."""
        return StampLayout(self.blocks, self.job_table.slots, self.slot_bytes)


@dataclass(frozen=True)
class LaunchInfo:
    """Which launch it is; the launches of a step are numbered from 0, ``kind`` is its kind of layer.

    ``kernel`` is its place among the kernels of the job table, where that lists some; ``kind`` is then its
    name.
    """

    step: int
    launch: int
    layer: int
    kind: str
    kernel: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that the store's columns cannot hold. Raises RecordError."""
        numbers = (self.step, self.launch, self.layer)
        if not all(is_integer(number) for number in numbers) or not isinstance(self.kind, str):
            raise RecordError(f"{self} cannot be recorded; its numbers must be integers, its kind a string")
        fits = (
            0 <= self.step <= limits.MAX_STEP
            and 0 <= self.launch < limits.MAX_LAUNCHES_PER_STEP
            and -(1 << 15) <= self.layer < 1 << 15
            and len(self.kind) <= limits.MAX_NAME_CHARS
        )
        if not fits:
            raise RecordError(f"{self} cannot be recorded; step is u32, launch u16, layer i16")

    def to_json(self) -> dict[str, Any]:
        """What a journal says of it; a run of one kernel does not name it."""
        data = dict(vars(self))
        if not self.kernel:
            del data["kernel"]
        return data


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or numpy, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@dataclass
class StampBuffer:
    """Memory for the stamps of one launch, all ranks; ``info`` is the launch that holds it, if one does."""

    memory: npt.NDArray[np.uint8]
    info: LaunchInfo | None = None
    usable: bool = True

    @property
    def address(self) -> int:
        """Address of rank 0's region."""
        return int(self.memory.ctypes.data)


@dataclass(frozen=True)
class Lease:
    """A buffer lent to one launch: rank r's region is at ``address + r * region_bytes``.

    The kernel writes ``epoch`` into every block header.
    """

    address: int
    epoch: int
    info: LaunchInfo
    submit_ns: int
    buffer: StampBuffer = field(repr=False)
