"""Takes the stamps of other people's kernels out of their regions, in the drain thread.

What is odd about a kernel is said once, in one line, on stderr and in the journal, and counted each time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from musetrace import _core
from musetrace.abi import StampLayout
from musetrace.errors import DeviceError
from musetrace.record.kernel_launch import KernelItem, KernelLaunch, KernelSnapshot
from musetrace.record.kernel_region import (
    RegionState,
    drop_earlier_launches,
    region_state,
    rows_that_ran,
)
from musetrace.record.kernel_table import KernelTable
from musetrace.record.loss_ledger import MISMATCH, RECORDING_FAILED, LostLaunches
from musetrace.record.rank_journal import RankJournal
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, LaunchInfo
from musetrace.store.stamp_batch import StampEncoder

_BUILD_FLAG = {8: "-DMUSETRACE_STAMPS=1", 4: "-DMUSETRACE_STAMPS=2"}
_STAMPS_OF_SLOT_BYTES = {size: stamps for stamps, size in SLOT_BYTES_OF_STAMPS.items()}


@dataclass
class DrainedKernel:
    """A kernel as the drain thread knows it.

    ``launched`` counts what the program launched or captured, ``seen`` the launches whose region was looked
    at, ``stamped`` those that the kernel wrote anything about.
    """

    kernel: KernelTable
    slot_bytes: int
    launched: int = 0
    captured: int = 0
    seen: int = 0
    stamped: int = 0

    def __post_init__(self) -> None:
        """Prepare what is needed for each launch."""
        table = self.kernel.table
        self.layout = StampLayout(self.kernel.blocks, table.slots, self.slot_bytes)
        self.encoder = StampEncoder(self.kernel.blocks, table.slots, self.slot_bytes)
        self.payload_pairs = np.zeros(table.slots // 2, dtype=np.bool_)
        self.payload_pairs[: len(table.payload_of_pair)] = table.payload_of_pair
        self.no_headers = np.zeros(0, dtype=np.dtype(_core.abi.block_header_dtype))
        self.no_slots = np.zeros((0, table.slots), dtype=np.uint32)


@dataclass
class KernelDrain:
    """The kernels of a run. All of it but the counting of launches belongs to the drain thread.

    ``enter_thread`` is called first of all in that thread, ``at_end`` gives the launches that nobody handed
    over, ``abandon`` is called at the end of a recording that failed: kernels may still write to their
    regions.
    """

    kernels: Sequence[DrainedKernel]
    enter_thread: Callable[[], None]
    at_end: Callable[[], Sequence[KernelItem]]
    abandon: Callable[[], None]
    _said: set[tuple[str, str]] = field(default_factory=set)

    @property
    def capacity_bytes(self) -> int:
        """Of the largest launch, encoded."""
        return max(one.encoder.capacity_bytes for one in self.kernels)

    def take(self, item: KernelItem, journal: RankJournal) -> int:
        """Wait for a launch, or for a snapshot of some, and file it; returns how many stamps there are.

        Raises DeviceError when the device failed: then nothing is known of the launches.
        """
        one = self.kernels[_first_info(item).kernel]
        try:
            item.ended.synchronize()
        except Exception as error:
            raise DeviceError(f"kernel {one.kernel.name}: {first_line(error)}") from None
        if isinstance(item, KernelLaunch):
            stamps = self._file(item, one, journal)
        else:
            rows = rows_that_ran(item.memory[: len(item.infos)], item.epoch)
            stamps = sum(self._file(item.launch(row), one, journal) for row in rows)
        item.give_back()
        return stamps

    def lose(self, item: KernelItem, journal: RankJournal, reason: str = RECORDING_FAILED) -> None:
        """Count a launch that cannot be filed, or all that may have been in a snapshot."""
        if isinstance(item, KernelSnapshot):
            _lose(item.infos[0], journal, len(item.infos), reason)
        elif not item.filed:
            item.filed = True
            _lose(item.info, journal, 1, reason)

    def finish(self, journal: RankJournal) -> None:
        """File what nobody handed over, and say which kernels never stamped."""
        for item in self.at_end():
            self.take(item, journal)
        for one in self.kernels:
            self._say_silent(one, journal)

    def _file(self, item: KernelLaunch, one: DrainedKernel, journal: RankJournal) -> int:
        if item.memory is None:
            return self._store(item, one, journal, dropped_blocks=0)
        state = region_state(one.layout, item.memory, item.epoch)
        if state.launches == 0 and item.may_be_absent:
            item.filed = True
            return 0
        one.seen += 1
        one.stamped += state.launches > 0
        if state.built_for is not None:
            self._say_mismatch(one, journal, *state.built_for)
            item.filed = True
            _lose(item.info, journal, state.launches, MISMATCH)
            return 0
        lost = state.launches - state.is_there
        if lost:
            _lose(item.info, journal, lost, item.repeated.format(launches=state.launches))
        if not state.is_there and state.launches:
            item.filed = True
            return 0
        if lost:
            drop_earlier_launches(one.layout, item.memory, item.epoch, one.payload_pairs)
        if state.dropped_blocks:
            self._say_dropped(one, journal, state)
        return self._store(item, one, journal, state.dropped_blocks)

    def _store(
        self, item: KernelLaunch, one: DrainedKernel, journal: RankJournal, dropped_blocks: int
    ) -> int:
        launch: dict[str, Any] = {
            **item.info.to_json(),
            "epoch": item.epoch,
            "submit_ns": item.submit_ns,
            "done_ns": time.monotonic_ns(),
        }
        if dropped_blocks:
            launch["dropped_blocks"] = dropped_blocks
        headers, slots = one.no_headers, one.no_slots
        if item.memory is not None:
            headers, slots = one.layout.headers(item.memory), one.layout.stamps(item.memory)
        length = one.encoder.encode(journal.stamp_buffer.payload, launch, headers, slots)
        item.filed = journal.launch(length)
        return int(np.count_nonzero(slots))

    def _say_mismatch(self, one: DrainedKernel, journal: RankJournal, slots: int, slot_bytes: int) -> None:
        told = one.layout
        remedy = []
        if slots != told.slots:
            remedy.append("give attach() the job table that the kernel is built with")
        if slot_bytes != told.slot_bytes:
            flag = _BUILD_FLAG[told.slot_bytes]
            stamps = _STAMPS_OF_SLOT_BYTES.get(slot_bytes, "register")
            remedy.append(f"build the kernel with {flag}, or record with stamps={stamps!r}")
        self._say(
            one,
            journal,
            "mismatch",
            f"was built for {slots} slots of {slot_bytes} bytes, attach() was told {told.slots} slots of "
            f"{told.slot_bytes} bytes: its launches are lost; {'; '.join(remedy)}",
        )

    def _say_dropped(self, one: DrainedKernel, journal: RankJournal, state: RegionState) -> None:
        room, dropped = one.kernel.blocks, state.dropped_blocks
        self._say(
            one,
            journal,
            "dropped",
            f"ran {room + dropped} blocks, attach() was told {room}: the stamps of {dropped} are lost; "
            f"attach it with grid={room + dropped}",
        )

    def _say_silent(self, one: DrainedKernel, journal: RankJournal) -> None:
        if one.slot_bytes == 0 or one.stamped or (one.launched and not one.captured and not one.seen):
            return
        times = "once" if one.launched == 1 else f"{one.launched} times"
        if one.launched == 0:
            text = "was attached and never launched: launch it inside of its launch()"
        elif one.captured == one.launched:
            text = (
                f"was captured {times} and its graph never replayed while the recorder was open, or it never "
                f"stamped: {_never_stamped(one)}"
            )
        else:
            text = f"was launched {times} and never stamped: {_never_stamped(one)}"
        self._say(one, journal, "silent", text)

    def _say(self, one: DrainedKernel, journal: RankJournal, what: str, text: str) -> None:
        if (one.kernel.name, what) in self._said:
            return
        self._said.add((one.kernel.name, what))
        line = f"kernel {one.kernel.name} {text}"
        with contextlib.suppress(Exception):
            print(f"musetrace: {line}", file=sys.stderr, flush=True)
        journal.report({"kernel": one.kernel.name, "text": line})


def first_line(error: BaseException) -> str:
    """What an error says, without the advice that CUDA's have below it."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _never_stamped(one: DrainedKernel) -> str:
    return f"pass stamps.ptr to it, and build it with {_BUILD_FLAG[one.slot_bytes]}"


def _first_info(item: KernelItem) -> LaunchInfo:
    return item.info if isinstance(item, KernelLaunch) else item.infos[0]


def _lose(info: LaunchInfo, journal: RankJournal, launches: int, reason: str) -> None:
    journal.lose(LostLaunches(info.step, info.launch, launches, reason))
