"""Everything a recording needs, made before its first launch: buffers, journals, drain thread."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from musetrace import _core
from musetrace.errors import RecordError
from musetrace.record.conditions import clocks_now
from musetrace.record.drain import Drain, read_anchor
from musetrace.record.host_clock import host_clock
from musetrace.record.kernel_device import tick_of
from musetrace.record.kernel_drain import KernelDrain
from musetrace.record.loss_ledger import LossLedger
from musetrace.record.rank_journal import RankJournal
from musetrace.record.run_output import OwnRanks, RunOutput
from musetrace.record.source import StampBuffer, StampSource
from musetrace.store.journal_files import journal_name
from musetrace.store.journal_writer import JournalWriter
from musetrace.store.limits import MAX_STAMP_BYTES
from musetrace.store.payloads import FORMAT_NAME
from musetrace.store.stamp_batch import StampEncoder

_PROCESS_ID_BYTES = 8
_HOST_CLOCK_READS = 1000


def start_drain(
    source: StampSource,
    stamps: str,
    output: RunOutput,
    ledger: LossLedger,
    kernels: KernelDrain | None = None,
) -> Drain:
    """Allocate, make the folder, open the journals and start the thread. Raises RecordError.

    Other people's ``kernels`` have allocated what they need.
    """
    encoder = StampEncoder(source.blocks, source.job_table.slots, source.slot_bytes)
    capacity_bytes = encoder.capacity_bytes if kernels is None else kernels.capacity_bytes
    if capacity_bytes > MAX_STAMP_BYTES:
        raise RecordError(f"a launch has {capacity_bytes} bytes of stamps; record fewer blocks")
    buffers = [] if kernels is not None else [_allocate(source) for _ in range(source.buffers)]
    anchor = source.anchor or read_anchor(source)
    own = output.begin(source.ranks)
    journals: list[RankJournal] = []
    try:
        _open_journals(journals, source, own, stamps, output.path, capacity_bytes)
        anchor = output.begun(anchor)
        for journal in journals:
            journal.clock(anchor)
        failures = [journal.failure for journal in journals if journal.failure]
        if failures:
            raise RecordError(f"{failures[0]}; choose another output")
        drain = Drain(source, encoder, journals, buffers, ledger, kernels)
        drain.last_clock = output.last_clock
        drain.start()
    except RecordError:
        _abandon(journals)
        raise
    except (TypeError, ValueError, MemoryError, RuntimeError) as error:
        _abandon(journals)
        raise RecordError(
            f"cannot start the recording: {error}; mend the device or free resources"
        ) from error
    return drain


def _allocate(source: StampSource) -> StampBuffer:
    size = source.ranks * source.layout.region_bytes
    try:
        memory = source.allocate(size)
    except MemoryError as error:
        raise RecordError(
            f"cannot allocate {source.buffers} x {size} bytes for stamps; record fewer blocks"
        ) from error
    align = _core.abi.REGION_ALIGN
    if memory.nbytes != size or memory.ctypes.data % align:
        raise RecordError(
            f"the device gave {memory.nbytes} bytes for {size}, or unaligned; mend its allocate"
        )
    return StampBuffer(memory)


def _open_journals(
    journals: list[RankJournal],
    source: StampSource,
    own: OwnRanks,
    stamps: str,
    folder: Path,
    capacity_bytes: int,
) -> None:
    meta = _meta(source, stamps, own)
    for rank in range(own.first_rank, own.first_rank + source.ranks):
        writer = JournalWriter(folder / journal_name(rank), own.recording_id)
        journals.append(RankJournal(writer, capacity_bytes, rank))
        journals[-1].meta({**meta, "rank": rank})


def _abandon(journals: Sequence[RankJournal]) -> None:
    for journal in journals:
        journal.writer.close()
        with contextlib.suppress(OSError):
            journal.writer.path.unlink()


def _meta(source: StampSource, stamps: str, own: OwnRanks) -> dict[str, Any]:
    return {
        "format": FORMAT_NAME,
        "recording_id": own.recording_id.hex(),
        "world": own.world,
        "blocks": source.blocks,
        "slots": source.job_table.slots,
        "slot_bytes": source.slot_bytes,
        "stamps": stamps,
        "job_table": source.job_table.to_json(),
        "device": source.device,
        "model": source.model,
        "build": source.build,
        "clock": {"name": source.clock_name, "tick_ns": source.tick_ns},
        "job_bytes": [one.to_json() for one in source.job_bytes],
        "command": typed_command(sys.argv),
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        # One clock stamps all ranks of a process; which clock of which host its anchors read.
        "process": os.urandom(_PROCESS_ID_BYTES).hex(),
        "clocks": clocks_now(source.device.get("kind")),
        "host_clock": host_clock(),
        "host_tick_ns": tick_of(time.monotonic_ns() for _ in range(_HOST_CLOCK_READS)),
    }


def typed_command(arguments: Sequence[str]) -> list[str]:
    """A command line about as it was typed: without the folder of the program, which is the machine's own."""
    if not arguments:
        return []
    program = Path(arguments[0])
    if program.name == "__main__.py":
        return ["python", "-m", program.parent.name, *arguments[1:]]
    return [program.name, *arguments[1:]]
