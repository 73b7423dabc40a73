"""A second, slow reader of journals, written from the format's description alone, in plain Python.

Knows nothing of ``musetrace.store`` and of the compiled module. It is strict: for a journal that is not whole
it raises. ``crc32`` is the textbook algorithm, so that not even zlib is shared.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

META, CLOCK, STAMPS, STEP, LOSS, REPORT, END = range(1, 8)
MAGIC = b"MUSETRC\n"
CHUNK_MAGIC = 0x4B48434D
WIDEN_BACK_NS = 1 << 20
NO_WARP, UNKNOWN = 255, 0x8000
SLACK_NS = 1_000_000_000
OK, NO_END, NO_BEGIN, REVERSED, STALE, OUTSIDE = range(6)


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32(data: bytes, start: int = 0) -> int:
    """CRC-32 of IEEE 802.3, continuing from ``start``."""
    crc = start ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def read_chunks(data: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """(recording id, [(type, payload)]) of a complete journal; raises ValueError for any other."""
    magic, major, _, _, recording_id, file_crc = struct.unpack("<8sHHI16sI", data[:36])
    if magic != MAGIC or major != 1 or crc32(data[:32]) != file_crc:
        raise ValueError("file header")
    chunks, at = [], 36
    while at < len(data):
        chunk_magic, kind, length, seq, crc = struct.unpack("<IIQII", data[at : at + 24])
        payload = data[at + 24 : at + 24 + length]
        if chunk_magic != CHUNK_MAGIC or len(payload) != length or seq != len(chunks):
            raise ValueError(f"chunk header at {at}")
        if crc32(payload, crc32(data[at : at + 20], file_crc)) != crc:
            raise ValueError(f"crc of the chunk at {at}")
        chunks.append((kind, payload))
        at += 24 + length
    if not chunks or chunks[-1][0] != END:
        raise ValueError("no end chunk")
    return recording_id, chunks


@dataclass(frozen=True)
class Block:
    """One block of one launch as it stands in a journal."""

    block: int
    epoch: int
    sm: int
    overflow: int
    time_ns: int
    slots: list[int]


def read_stamps(payload: bytes) -> tuple[dict[str, Any], int, list[Block]]:
    """(launch, bytes of a slot, blocks) of a stamp chunk."""
    table = pa.ipc.open_stream(payload).read_all()
    launch = json.loads(table.schema.metadata[b"launch"])
    slot_bytes = table.schema.field("slots").type.value_type.bit_width // 8
    return launch, slot_bytes, [Block(**row) for row in table.to_pylist()]


def widen(low: int, header_ns: int) -> int:
    """The first time from a little before the header on whose low half is ``low``."""
    base = (header_ns - WIDEN_BACK_NS) % 2**64
    time_ns = base - base % 2**32 + low
    return (time_ns if time_ns >= base else time_ns + 2**32) % 2**64


def full_time(slot: int, slot_bytes: int, header_ns: int) -> int | None:
    """The time in a slot, None where nothing was written."""
    if slot == 0:
        return None
    return slot if slot_bytes == 8 else widen(slot, header_ns)


def earliest(launch: dict[str, Any], anchor: dict[str, int] | None) -> int | None:
    """When a launch was handed over by the device's clock, or a little before; None where nothing says."""
    if anchor is None or not 0 < launch["submit_ns"] <= launch["done_ns"]:
        return None
    drift = abs(launch["done_ns"] - anchor["host_monotonic_ns"]) // 1024
    return launch["submit_ns"] + anchor["device_ns"] - anchor["host_monotonic_ns"] - 1_000_000 - drift


def set_back(time: int | None, first: int | None, low: int, high: int) -> int | None:
    """A time that is 2^32 ns behind itself since its header came later."""
    if time is None or first is None or low <= time <= high:
        return time
    before = time - 2**32
    return before if before >= 0 and before >= first and low <= before <= high else time


def window(launch: dict[str, Any], anchor: dict[str, int] | None, blocks: list[Block]) -> tuple[int, int]:
    """Times that a launch can have had."""
    if anchor is not None and 0 < launch["submit_ns"] <= launch["done_ns"]:
        offset = anchor["device_ns"] - anchor["host_monotonic_ns"]
        slack = SLACK_NS + abs(launch["done_ns"] - anchor["host_monotonic_ns"]) // 1024
        return launch["submit_ns"] + offset - slack, launch["done_ns"] + offset + slack
    headers = sorted(block.time_ns for block in blocks if block.epoch == launch["epoch"])
    if not headers:
        return 0, 2**64
    middle = headers[len(headers) // 2]
    return middle - 60 * 10**9, middle + 60 * 10**9


def launch_rows(
    launch: dict[str, Any],
    slot_bytes: int,
    blocks: list[Block],
    table: dict[str, Any] | None,
    anchor: dict[str, int] | None,
) -> tuple[list[dict[str, int]], list[int]]:
    """All spans of a launch with absolute times, and every believable time in it."""
    rows, believed = [], []
    low, high = window(launch, anchor, blocks)
    first = earliest(launch, anchor)
    first_pair, pairs = pairs_of_kernel(launch, table)
    for block in blocks:
        fresh = block.epoch == launch["epoch"]
        if fresh and low <= block.time_ns <= high:
            believed.append(block.time_ns)
        for pair in range(len(block.slots) // 2):
            raw = block.slots[2 * pair : 2 * pair + 2]
            if raw == [0, 0]:
                continue
            times = [full_time(value, slot_bytes, block.time_ns) for value in raw]
            if slot_bytes == 4:
                times = [set_back(time, first, low, high) for time in times]
            flag = flag_of(fresh, times, low, high)
            if flag < STALE:
                believed += [time for time in times if time is not None]
            at = first_pair + pair
            job = table["job_of_pair"][at] if table and pair < pairs else -1
            warp = table["warp_of_pair"][at] if table and pair < pairs else -1
            begin, end = times
            rows.append(
                {
                    "begin": begin if begin is not None else end or 0,
                    "dur": end - begin if flag == OK and begin is not None and end is not None else 0,
                    "job": job if job >= 0 else UNKNOWN + at,
                    "launch": launch["launch"],
                    "layer": launch["layer"],
                    "block": block.block,
                    "sm": min(block.sm, 65535),
                    "warp": warp if warp >= 0 else NO_WARP,
                    "flag": flag,
                }
            )
    return rows, believed


def pairs_of_kernel(launch: dict[str, Any], table: dict[str, Any] | None) -> tuple[int, int]:
    """(first pair, pairs) of the launch's kernel in the job table of all kernels."""
    if not table or not table.get("kernels"):
        return 0, len(table["job_of_pair"]) if table else 0
    kernel = table["kernels"][launch.get("kernel", 0)]
    return kernel["first_pair"], kernel["slots"] // 2


def flag_of(fresh: bool, times: list[int | None], low: int, high: int) -> int:
    """What is odd about a pair of stamps; the worst first."""
    if not fresh:
        return STALE
    if any(time is not None and not low <= time <= high for time in times):
        return OUTSIDE
    begin, end = times
    if begin is None:
        return NO_BEGIN
    if end is None:
        return NO_END
    return REVERSED if end < begin else OK


def read_spans(data: bytes) -> dict[int, list[dict[str, int]]]:
    """The spans of each step of a complete journal, as the store must give them."""
    _, chunks = read_chunks(data)
    table, anchor = None, None
    rows: dict[int, list[dict[str, int]]] = {}
    believed: dict[int, list[int]] = {}
    for kind, payload in chunks:
        if kind == META:
            table = json.loads(payload)["job_table"]
        elif kind == CLOCK:
            anchor = json.loads(payload)
        elif kind == STEP:
            rows.setdefault(json.loads(payload)["step"], [])
        elif kind == STAMPS:
            launch, slot_bytes, blocks = read_stamps(payload)
            more, times = launch_rows(launch, slot_bytes, blocks, table, anchor)
            rows.setdefault(launch["step"], []).extend(more)
            believed.setdefault(launch["step"], []).extend(times)
    return {step: relative(its_rows, believed.get(step, [])) for step, its_rows in rows.items()}


def relative(rows: list[dict[str, int]], believed: list[int]) -> list[dict[str, int]]:
    """Rows with begins from the step's base, unbelievable ones at the step's edge, by block and begin."""
    base, end = (min(believed), max(believed)) if believed else (0, 0)
    placed = [{**row, "begin": min(max(row["begin"], base), end) - base} for row in rows]
    return sorted(placed, key=lambda row: (row["block"], row["begin"]))
