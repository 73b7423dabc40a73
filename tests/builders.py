"""Builds synthetic runs, from text or from arrays, so that a test can say exactly what a recording holds.

Text form, one line a span; ``-`` is a stamp that was not written; times are device ns::

    r0 s0 l0 layer=3 sliding b1 w4 attention_compute 1000 1250
    r0 s0 l0 layer=3 sliding b1 w4 attention_merge   1250 -

A block's header time is its earliest stamp unless ``headers`` says otherwise. Host and device clock are the
same clock in a built run, and a launch was submitted at its earliest time and done at its latest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.job_table import Job, JobTable
from musetrace.store.frame import ChunkType
from musetrace.store.journal_files import journal_name
from musetrace.store.journal_writer import ChunkBuffer, JournalWriter
from musetrace.store.payloads import encode_json
from musetrace.store.stamp_batch import StampEncoder

RECORDING_ID = bytes(range(16))

# Two ranks; a launch with an end missing, a step number left out.
SMALL_RUN_TEXT = """
r0 s0 l0 layer=-1 entry   b0 w0 gemm_load 1000 1100
r0 s0 l0 layer=-1 entry   b0 w1 gemm_wait 1020 1100
r0 s0 l1 layer=0 sliding  b0 w1 norm      2000 2010
r0 s0 l1 layer=0 sliding  b1 w1 norm      2005 -
r0 s2 l0 layer=0 sliding  b1 w1 norm      9000 9007
r1 s0 l0 layer=-1 entry   b0 w0 gemm_load 1001 1102
"""


def small_table(slots: int = 16) -> JobTable:
    """Three jobs of op ``gemm`` and ``norm``, two warps, and at least one pair that no job uses."""
    jobs = (
        Job("gemm_load", "gemm", "load", "loader", (0, 0), (0,), None),
        Job("gemm_wait", "gemm", "wait", "group", (1, 1), (1,), 0),
        Job("norm", "norm", "compute", "group", (1, 1), (1,), None),
    )
    pairs = slots // 2
    job_of_pair = [0, 1, 2, *([-1] * pairs)][:pairs]
    warp_of_pair = [0, 1, 1, *([-1] * pairs)][:pairs]
    return JobTable("small", 2, slots, jobs, tuple(job_of_pair), tuple(warp_of_pair))


def wide_table(slots: int = 256, warps: int = 8) -> JobTable:
    """A table in which every slot pair is a job of its own."""
    pairs = slots // 2
    jobs = tuple(
        Job(f"job_{pair}", f"op_{pair // 8}", "compute", "all", (pair % warps,) * 2, (pair % warps,), None)
        for pair in range(pairs)
    )
    return JobTable(
        "wide", warps, slots, jobs, tuple(range(pairs)), tuple(pair % warps for pair in range(pairs))
    )


@dataclass
class LaunchStamps:
    """A launch of one rank as the device left it.

    ``slots`` u64[blocks, slots] are device times, 0 = not written (the low halves are stored when the journal
    has 4-byte slots); ``header_ns``, ``epochs``, ``sms`` and ``overflow`` have one entry per block.
    """

    step: int
    launch: int
    slots: npt.NDArray[np.uint64]
    header_ns: npt.NDArray[np.uint64]
    layer: int = 0
    kind: str = "sliding"
    epoch: int = 1
    epochs: npt.NDArray[np.uint32] | None = None
    sms: npt.NDArray[np.uint32] | None = None
    overflow: npt.NDArray[np.uint32] | None = None
    submit_ns: int | None = None
    done_ns: int | None = None

    def headers(self) -> npt.NDArray[Any]:
        """Block headers, as the ABI has them."""
        blocks = len(self.slots)
        headers = np.zeros(blocks, dtype=np.dtype(_core.abi.block_header_dtype))
        headers["time_ns"] = self.header_ns
        headers["epoch"] = self.epoch if self.epochs is None else self.epochs
        headers["sm"] = np.arange(blocks) if self.sms is None else self.sms
        headers["overflow"] = 0 if self.overflow is None else self.overflow
        return headers

    def info(self) -> dict[str, Any]:
        """The launch's JSON."""
        written = self.slots[self.slots != 0]
        times = np.concatenate([written, self.header_ns[self.header_ns != 0]])
        first, last = (int(times.min()), int(times.max())) if len(times) else (1, 1)
        return {
            "step": self.step,
            "launch": self.launch,
            "layer": self.layer,
            "kind": self.kind,
            "epoch": self.epoch,
            "submit_ns": first if self.submit_ns is None else self.submit_ns,
            "done_ns": last if self.done_ns is None else self.done_ns,
        }


@dataclass
class JournalBuilder:
    """Writes one rank's journal, chunk by chunk; ``end()`` closes it properly, ``close()`` as a kill does."""

    folder: Path
    job_table: JobTable
    blocks: int
    rank: int = 0
    world: int = 1
    slot_bytes: int = 8
    recording_id: bytes = RECORDING_ID
    meta: Mapping[str, Any] = field(default_factory=dict)
    anchor_ns: int | None = 1

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.writer = JournalWriter(self.folder / journal_name(self.rank), self.recording_id)
        self.counts = dict.fromkeys(("stamp_chunks", "launches", "steps", "lost_launches"), 0)
        self._encoder = StampEncoder(self.blocks, self.job_table.slots, self.slot_bytes)
        self._buffer = ChunkBuffer(self._encoder.capacity_bytes)
        self.json(ChunkType.META, {**self._meta(), **self.meta})
        if self.anchor_ns is not None:
            self.clock(self.anchor_ns)

    def _meta(self) -> dict[str, Any]:
        return {
            "format": "musetrace",
            "recording_id": self.recording_id.hex(),
            "rank": self.rank,
            "world": self.world,
            "blocks": self.blocks,
            "slots": self.job_table.slots,
            "slot_bytes": self.slot_bytes,
            "stamps": {0: "off", 4: "register", 8: "store"}[self.slot_bytes],
            "job_table": self.job_table.to_json(),
            "device": {"kind": "synthetic"},
            "model": {"name": "synthetic"},
            "build": {},
            "clock": {"name": "CLOCK_MONOTONIC", "tick_ns": 1},
            "command": ["synthetic"],
            "recorded_at": "2026-01-01T00:00:00+00:00",
            "host": "localhost",
            "pid": 1,
        }

    def json(self, kind: ChunkType, data: Mapping[str, Any]) -> None:
        assert self.writer.write(kind, encode_json(dict(data)))

    def clock(self, device_ns: int, host_ns: int | None = None) -> None:
        host_ns = device_ns if host_ns is None else host_ns
        self.json(ChunkType.CLOCK, {"device_ns": device_ns, "host_monotonic_ns": host_ns, "unix_ns": host_ns})

    def launch(self, stamps: LaunchStamps) -> None:
        slots = stamps.slots if self.slot_bytes == 8 else (stamps.slots & 0xFFFFFFFF).astype(np.uint32)
        length = self._encoder.encode(self._buffer.payload, stamps.info(), stamps.headers(), slots)
        assert self.writer.write_buffer(ChunkType.STAMPS, self._buffer, length)
        self.counts["stamp_chunks"] += 1
        self.counts["launches"] += 1

    def step(self, step: int, begin_ns: int = 0, end_ns: int = 0, tokens: int = 0, **more: object) -> None:
        data = {"step": step, "host_begin_ns": begin_ns, "host_end_ns": end_ns, "tokens": tokens}
        self.json(ChunkType.STEP, {**data, **more})
        self.counts["steps"] += 1

    def loss(self, step: int, launch: int, launches: int, reason: str = "buffers_busy") -> None:
        self.json(ChunkType.LOSS, {"step": step, "launch": launch, "launches": launches, "reason": reason})
        self.counts["lost_launches"] += launches

    def end(self, **totals: int) -> Path:
        self.json(ChunkType.END, {"reason": "closed", "chunks": self.writer.chunks, **self.counts, **totals})
        return self.close()

    def close(self) -> Path:
        self.writer.close()
        return self.writer.path


_LINE = re.compile(
    r"r(?P<rank>\d+)\s+s(?P<step>\d+)\s+l(?P<launch>\d+)\s+layer=(?P<layer>-?\d+)\s+(?P<kind>\w+)\s+"
    r"b(?P<block>\d+)\s+w(?P<warp>\d+)\s+(?P<job>\w+)\s+(?P<begin>\d+|-)\s+(?P<end>\d+|-)"
)


def parse_spans(text: str) -> list[dict[str, Any]]:
    """The lines of the text form as dicts; a missing stamp is 0."""
    spans = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a span line: {line!r}")
        row = match.groupdict()
        numbers = {key: int(row[key]) for key in ("rank", "step", "launch", "layer", "block", "warp")}
        times = {key: 0 if row[key] == "-" else int(row[key]) for key in ("begin", "end")}
        spans.append({**numbers, **times, "kind": row["kind"], "job": row["job"]})
    return spans


def slot_pair(table: JobTable, job: str, warp: int) -> int:
    """The slot pair of a job's instance on a warp."""
    for pair, (job_id, its_warp) in enumerate(zip(table.job_of_pair, table.warp_of_pair, strict=True)):
        if job_id >= 0 and table.jobs[job_id].name == job and its_warp == warp:
            return pair
    raise ValueError(f"job {job} has no stamps on warp {warp}")


def launches_from_text(
    text: str, table: JobTable, blocks: int, headers: Mapping[tuple[int, int, int, int], int] | None = None
) -> dict[int, list[LaunchStamps]]:
    """The launches of each rank in order. ``headers`` maps (rank, step, launch, block) to a header time."""
    grouped: dict[tuple[int, int, int], LaunchStamps] = {}
    for span in parse_spans(text):
        key = (span["rank"], span["step"], span["launch"])
        if key not in grouped:
            slots = np.zeros((blocks, table.slots), dtype=np.uint64)
            header_ns = np.zeros(blocks, dtype=np.uint64)
            grouped[key] = LaunchStamps(*key[1:], slots, header_ns, span["layer"], span["kind"])
        pair = slot_pair(table, span["job"], span["warp"])
        grouped[key].slots[span["block"], 2 * pair : 2 * pair + 2] = (span["begin"], span["end"])
    result: dict[int, list[LaunchStamps]] = {}
    for epoch, (key, launch) in enumerate(sorted(grouped.items()), start=1):
        _complete_headers(launch, key, headers or {}, epoch)
        result.setdefault(key[0], []).append(launch)
    return result


def _complete_headers(
    launch: LaunchStamps,
    key: tuple[int, int, int],
    headers: Mapping[tuple[int, int, int, int], int],
    epoch: int,
) -> None:
    launch.epoch = epoch
    epochs = np.zeros(len(launch.slots), dtype=np.uint32)
    for block, slots in enumerate(launch.slots):
        written = slots[slots != 0]
        told = headers.get((*key, block))
        if told is not None or len(written):
            launch.header_ns[block] = told if told is not None else int(written.min())
            epochs[block] = epoch
    launch.epochs = epochs


def build_run(
    folder: Path,
    launches: Mapping[int, Sequence[LaunchStamps]],
    table: JobTable,
    blocks: int,
    *,
    slot_bytes: int = 8,
    world: int | None = None,
    tokens: int = 16,
    steps: Iterable[int] | None = None,
    end: bool = True,
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run's journals (not its index) and return its folder."""
    world = world or max(launches) + 1
    for rank, its_launches in launches.items():
        builder = JournalBuilder(
            folder, table, blocks, rank=rank, world=world, slot_bytes=slot_bytes, meta=meta or {}
        )
        for step in steps if steps is not None else sorted({launch.step for launch in its_launches}):
            infos = []
            for launch in (launch for launch in its_launches if launch.step == step):
                builder.launch(launch)
                infos.append(launch.info())
            begin = min((info["submit_ns"] for info in infos), default=0)
            builder.step(step, begin, max((info["done_ns"] for info in infos), default=0), tokens)
        builder.end() if end else builder.close()
    return folder


def build_run_from_text(
    folder: Path,
    text: str,
    table: JobTable | None = None,
    *,
    blocks: int = 4,
    headers: Mapping[tuple[int, int, int, int], int] | None = None,
    slot_bytes: int = 8,
    world: int | None = None,
    end: bool = True,
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Write the run that a text describes and return its folder; the default table is the Muse layer's."""
    table = table or JobTable.built_in()
    launches = launches_from_text(text, table, blocks, headers)
    return build_run(folder, launches, table, blocks, slot_bytes=slot_bytes, world=world, end=end, meta=meta)


def launch_at(step: int, launch: int) -> LaunchStamps:
    begin = 9_000_000_000_000 + 1000 * step + 100 * launch
    slots = np.zeros((1, 16), dtype=np.uint64)
    slots[0, :2] = (begin, begin + 9)
    return LaunchStamps(step, launch, slots, np.array([begin], dtype=np.uint64), epoch=launch + 1)
