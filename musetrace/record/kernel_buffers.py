"""Regions that launches of somebody's kernel borrow, and those that captured launches keep."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from musetrace.abi import StampLayout
from musetrace.record.kernel_device import HostCopies, KernelDevice
from musetrace.record.kernel_launch import Ended
from musetrace.store import limits

# Snapshots of captured launches: one is made, one copied, one drained, and one more for a slow moment.
_SNAPSHOTS = 4
_FIRST_SLAB_ROWS = 8
_MOST_SLAB_ROWS = 1024
# A step numbers them all, and has numbers left for others.
_MOST_CAPTURED = limits.MAX_LAUNCHES_PER_STEP // 2


@dataclass
class LentRegion:
    """A region that one launch has, at ``address`` on the device; the host writes ``epoch`` into it."""

    row: int
    address: int
    epoch: int = 1


class RegionPool:
    """As many regions of a kernel as launches may be in flight or not drained yet."""

    def __init__(self, device: KernelDevice, layout: StampLayout, rows: int) -> None:
        """Allocate all of it. Raises MemoryError."""
        self._regions = device.regions(rows, layout)
        self._copies = self._regions.copies()
        self._free = deque(LentRegion(row, self._regions.addresses[row]) for row in range(rows))
        self._rows = rows

    @property
    def is_lent(self) -> bool:
        """Whether some launch has a region now, or one that was not drained."""
        return len(self._free) < self._rows

    def take(self) -> LentRegion | None:
        """A region that is free, or None."""
        return self._free.popleft() if self._free else None

    def give_back(self, lent: LentRegion) -> None:
        """A region whose copy was read; any thread."""
        lent.epoch += 1
        self._free.append(lent)

    def array(self, lent: LentRegion) -> Any:
        """The region as an object with ``__dlpack__``."""
        return self._regions.array(lent.row)

    def memory(self, lent: LentRegion) -> Any:
        """uint8[region_bytes] of the host, where :meth:`bring` copies the region to."""
        return self._copies.memory[lent.row]

    def bring(self, lent: LentRegion, stream: Any) -> Ended:
        """Queue the copy of a region to the host, behind the launch in its stream."""
        return self._regions.bring(lent.row, self._copies, stream)


@dataclass(frozen=True)
class CapturedLaunch:
    """A launch that is part of a graph: the ``number``-th that was captured, ``layer`` is for the reader."""

    number: int
    layer: int


@dataclass
class Slab:
    """Regions of one kernel's captured launches, which are theirs for good.

    Attributes:
        launches: those that have a region, in its row; all rows have the same epoch.
        skipped: whether the last step found no free snapshot, so that its launches were left uncopied.
        since_ns: the host's clock (monotonic) when the regions were cleared last.
    """

    kernel: int
    regions: Any
    rows: int
    launches: list[CapturedLaunch] = field(default_factory=list)
    epoch: int = 1
    skipped: bool = False
    since_ns: int = field(default_factory=time.monotonic_ns)
    _free: deque[HostCopies] = field(default_factory=deque)
    _made: int = 0

    def add(self, launch: CapturedLaunch) -> int:
        """Give a captured launch a region for good; returns its row."""
        self.launches.append(launch)
        return len(self.launches) - 1

    def take_copies(self) -> HostCopies | None:
        """Memory for a snapshot; None when all that there is waits to be drained."""
        if self._free:
            return self._free.popleft()
        if self._made == _SNAPSHOTS:
            return None
        self._made += 1
        try:
            return self.regions.copies()  # type: ignore[no-any-return]
        except MemoryError:
            self._made = _SNAPSHOTS
            return None

    @property
    def has_copies(self) -> bool:
        """Whether the next snapshot finds memory."""
        return bool(self._free) or self._made < _SNAPSHOTS

    def give_back(self, copies: HostCopies) -> None:
        """A snapshot that was read; any thread."""
        self._free.append(copies)

    def renew(self, skipped: bool) -> None:
        """All rows were cleared, and are in the next epoch."""
        self.epoch += 1
        self.skipped = skipped
        self.since_ns = time.monotonic_ns()


class CapturedLaunches:
    """All launches that were captured, of all kernels, in slabs that double in size."""

    def __init__(self, device: KernelDevice) -> None:
        """None yet."""
        self._device = device
        self.count = 0
        self.slabs: list[Slab] = []

    def add(self, kernel: int, layout: StampLayout, layer: int) -> tuple[Slab, int]:
        """A region for a launch that is being captured, by slab and row. Raises MemoryError."""
        if self.count == _MOST_CAPTURED:
            raise MemoryError(f"{self.count} captured launches are recorded already")
        mine = [slab for slab in self.slabs if slab.kernel == kernel]
        if not mine or len(mine[-1].launches) == mine[-1].rows:
            rows = min(2 * mine[-1].rows, _MOST_SLAB_ROWS) if mine else _FIRST_SLAB_ROWS
            mine.append(Slab(kernel, self._device.regions(rows, layout), rows))
            self.slabs.append(mine[-1])
            keep([mine[-1].regions])
        row = mine[-1].add(CapturedLaunch(self.count, layer))
        self.count += 1
        return mine[-1], row


# Graphs may be replayed when their recording is long over, and a kernel may outlive it: its region must too.
_kept: list[Any] = []


def keep(regions: Sequence[Any]) -> None:
    """Let some regions live as long as the process."""
    _kept.extend(regions)
