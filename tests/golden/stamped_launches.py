"""The stamps of a journal as they stand in it, launch by launch: no store, no analysis, no flags.

Only for whole recordings of one kernel with slots of 32 bits; what is odd about a stamp fails here.
"""

from __future__ import annotations

import bisect
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

META, CLOCK, STAMPS, STEP = 1, 2, 3, 4
FILE_HEADER, CHUNK_HEADER = 36, struct.Struct("<IIQII")
WORK, LOADS = ("compute", "send", "recv", "sync"), ("load", "prefetch")


class Stamp(NamedTuple):
    """One span; its times in ns, here from the launch's begin."""

    begin: int
    end: int
    job: str
    op: str
    kind: str
    warp: int


@dataclass(frozen=True)
class StampedLaunch:
    """One launch: its first and last time on the device's clock in ns, and the spans of each block."""

    step: int
    launch: int
    kind: str
    begin: int
    end: int
    blocks: list[list[Stamp]]

    @property
    def length(self) -> int:
        return self.end - self.begin


@dataclass
class Journal:
    """A journal: its jobs in the order of the table, hashes of outputs by step, CLOCK chunks, META."""

    jobs: list[dict[str, Any]]
    outputs: dict[int, str]
    clocks: list[dict[str, Any]]
    meta: dict[str, Any]
    _table: dict[str, Any]
    _stamps: list[bytes]

    @classmethod
    def read(cls, file: Path) -> Journal:
        """Read a whole recording."""
        by_kind: dict[int, list[bytes]] = defaultdict(list)
        for kind, payload in _chunks(file.read_bytes()):
            by_kind[kind].append(payload)
        meta = json.loads(by_kind[META][0])
        table = meta["job_table"]
        steps = [json.loads(payload) for payload in by_kind[STEP]]
        outputs = {step["step"]: step["output"] for step in steps}
        clocks = [json.loads(payload) for payload in by_kind[CLOCK]]
        return cls(table["jobs"], outputs, clocks, meta, table, by_kind[STAMPS])

    def launches(self) -> Iterator[StampedLaunch]:
        """All launches, in the order in which they were drained."""
        for payload in self._stamps:
            yield _launch(payload, self._table)


def _chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = FILE_HEADER
    while at < len(data):
        _, kind, length, _, _ = CHUNK_HEADER.unpack_from(data, at)
        at += CHUNK_HEADER.size
        yield kind, data[at : at + length]
        at += length


def _launch(payload: bytes, table: dict[str, Any]) -> StampedLaunch:
    stamps = pa.ipc.open_stream(payload).read_all()
    about = json.loads(stamps.schema.metadata[b"launch"])
    headers = stamps["time_ns"].to_numpy().astype(np.int64)
    slots = stamps["slots"].combine_chunks().flatten().to_numpy().astype(np.int64)
    low = slots.reshape(len(headers), -1, 2)  # the lower halves of begin and end, by block and pair
    # Every time of a launch lies within 2 s of its block's header: the low half says which one.
    distance = (low - headers[:, None, None] + 2**31) % 2**32 - 2**31
    times = np.where(low == 0, 0, headers[:, None, None] + distance)
    assert np.array_equal(low[..., 0] == 0, low[..., 1] == 0)
    assert (times[..., 1] >= times[..., 0]).all()
    assert set(stamps["epoch"].to_pylist()) == {about["epoch"]}
    stamped = times[times != 0]
    begin = int(min(stamped.min(), headers.min()))
    end = int(max(stamped.max(), headers.max()))
    blocks: list[list[Stamp]] = [[] for _ in headers]
    for row, pair in np.argwhere(low[..., 0] != 0).tolist():
        job = table["jobs"][table["job_of_pair"][pair]]
        first, last = (times[row, pair] - begin).tolist()
        warp = table["warp_of_pair"][pair]
        blocks[row].append(Stamp(first, last, job["name"], job["op"], job["kind"], warp))
    return StampedLaunch(about["step"], about["launch"], about["kind"], begin, end, blocks)


def union_ns(spans: list[Stamp]) -> int:
    """How long at least one of the spans is under way."""
    total = covered = 0
    for span in sorted(spans):
        total += max(0, span.end - max(span.begin, covered))
        covered = max(covered, span.end)
    return total


def idle_by_cause(launch: StampedLaunch, jobs: list[dict[str, Any]], tick: int) -> dict[str, int]:
    """Idle ns over all blocks of a launch, by the job that is waited in, or by ``head``, ``tail`` and so on.

    Painted tick by tick, the strongest claim last: no job, a load, nothing to do yet or any more, a wait (of
    several the one whose warp works first afterwards, never one for a wait), work.
    """
    names = [job["name"] for job in jobs]
    causes = [*names, "unlabelled", "load_only", "head", "tail", "work"]
    number = {name: at for at, name in enumerate(causes)}
    second_hand = {
        job["name"] for job in jobs if job["awaits"] is not None and jobs[job["awaits"]]["kind"] == "wait"
    }
    total: dict[str, int] = defaultdict(int)
    for spans in launch.blocks:
        assert all(span.begin % tick == span.end % tick == 0 for span in spans)
        painted = np.full(launch.length // tick, number["unlabelled"], np.int16)

        def paint(begin: int, end: int, cause: str, on: Any = painted) -> None:
            on[begin // tick : end // tick] = number[cause]

        for span in spans:
            if span.kind in LOADS:
                paint(span.begin, span.end, "load_only")
        paint(0, min(span.begin for span in spans), "head")
        paint(max(span.end for span in spans), launch.length, "tail")
        for *_, wait in sorted(_claims(spans, second_hand, number), reverse=True):
            paint(wait.begin, wait.end, wait.job)
        for span in spans:
            if span.kind in WORK:
                paint(span.begin, span.end, "work")
        for cause, ticks in enumerate(np.bincount(painted, minlength=len(causes)).tolist()):
            total[causes[cause]] += ticks * tick
    del total["work"]
    return {cause: ns for cause, ns in total.items() if ns}


def _claims(
    spans: list[Stamp], second_hand: set[str], number: dict[str, int]
) -> Iterator[tuple[int, int, int, Stamp]]:
    """Each wait behind what ranks it: when its warp works next, when it ends, its place in the table."""
    works: dict[int, list[int]] = defaultdict(list)
    for span in sorted(spans):
        if span.kind in WORK:
            works[span.warp].append(span.begin)
    for span in spans:
        if span.kind == "wait":
            later = works[span.warp]
            at = bisect.bisect_left(later, span.end)
            never = at == len(later) or span.job in second_hand
            yield 2**62 if never else later[at], span.end, number[span.job], span
