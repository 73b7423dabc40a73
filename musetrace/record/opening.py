"""Everything a recording needs, made before its first launch: buffers, journals, drain thread."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from musetrace import _core
from musetrace.errors import RecordError
from musetrace.record.drain import Drain, read_anchor
from musetrace.record.kernel_drain import KernelDrain
from musetrace.record.loss_ledger import LossLedger
from musetrace.record.output import OutputFolder
from musetrace.record.rank_journal import RankJournal
from musetrace.record.source import StampBuffer, StampSource
from musetrace.store.frame import RECORDING_ID_BYTES
from musetrace.store.journal_files import journal_name
from musetrace.store.journal_writer import JournalWriter
from musetrace.store.limits import MAX_STAMP_BYTES
from musetrace.store.payloads import FORMAT_NAME
from musetrace.store.stamp_batch import StampEncoder


def start_drain(
    source: StampSource,
    stamps: str,
    output: OutputFolder,
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
    output.create()
    journals: list[RankJournal] = []
    try:
        _open_journals(journals, source, stamps, output.path, capacity_bytes)
        for journal in journals:
            journal.clock(anchor)
        failures = [journal.failure for journal in journals if journal.failure]
        if failures:
            raise RecordError(f"{failures[0]}; choose another output")
        drain = Drain(source, encoder, journals, buffers, ledger, kernels)
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
    journals: list[RankJournal], source: StampSource, stamps: str, folder: Path, capacity_bytes: int
) -> None:
    recording_id = os.urandom(RECORDING_ID_BYTES)
    meta = _meta(source, stamps, recording_id)
    for rank in range(source.ranks):
        writer = JournalWriter(folder / journal_name(rank), recording_id)
        journals.append(RankJournal(writer, capacity_bytes))
        journals[-1].meta({**meta, "rank": rank})


def _abandon(journals: Sequence[RankJournal]) -> None:
    for journal in journals:
        journal.writer.close()
        with contextlib.suppress(OSError):
            journal.writer.path.unlink()


def _meta(source: StampSource, stamps: str, recording_id: bytes) -> dict[str, Any]:
    return {
        "format": FORMAT_NAME,
        "recording_id": recording_id.hex(),
        "world": source.ranks,
        "blocks": source.blocks,
        "slots": source.job_table.slots,
        "slot_bytes": source.slot_bytes,
        "stamps": stamps,
        "job_table": source.job_table.to_json(),
        "device": source.device,
        "model": source.model,
        "build": source.build,
        "clock": {"name": source.clock_name, "tick_ns": source.tick_ns},
        "command": sys.argv,
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
