"""Runs and traces of torch.profiler of the same launches, made up, and what stands in an overlay of both."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from musetrace import JobTable, NewJob, Role
from musetrace.export.chrome_trace import microseconds
from tests.builders import JournalBuilder, LaunchStamps

UNIX_NS = 1_790_000_000_123_456_789
# torch counts ts from a time some weeks ago.
BASE_NS = UNIX_NS - 5_000_000_000_000_123
OFFSET_NS = -423_912
BLOCKS = 3
TABLE = JobTable.declare(
    "gemm",
    2,
    roles=[Role("producer", 0, 0), Role("consumer", 1, 1), Role("tile", 0, 1, owner="block")],
    jobs=[
        NewJob("load", "gemm", "load", "producer", iterations=3, payload=True),
        NewJob("multiply", "gemm", "compute", "consumer", iterations=3),
        NewJob("whole", "gemm", "compute", "consumer"),
        NewJob("go", "gemm", "sync", "tile", instant=True),
    ],
)
NO_WARP = 255
GPU_NAME = "void (anonymous namespace)::gemm<128>(float const*, int)"
OTHER_EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 712, "tid": 712, "ts": 1.5, "dur": 2.25},
    {"ph": "X", "cat": "kernel", "name": "fill<float>(float*)", "pid": 0, "tid": 7, "ts": 3, "dur": 1},
]


@dataclass
class Made:
    """A launch: ``spans`` are (block, job, iteration, begin, end) from ``begin_ns`` on. Its kernel in the
    trace begins ``lead`` ns before its first stamp and ends ``tail`` ns behind its last, all that moved by
    ``jitter`` ns.
    """

    begin_ns: int
    spans: Sequence[tuple[int, str, int, int, int]]
    lead: int = 0
    tail: int = 0
    jitter: int = 0
    kernel: str = "gemm"
    payloads: dict[tuple[int, int], int] = field(default_factory=dict)  # of loads, by block and iteration

    def times(self) -> tuple[int, int]:
        edges = [edge for *_, begin, end in self.spans for edge in (begin, end)]
        return self.begin_ns + min(edges), self.begin_ns + max(edges)

    def traced(self) -> tuple[int, int]:
        """Begin and end of its kernel on the trace's clock."""
        first, last = self.times()
        moved = OFFSET_NS + self.jitter
        return first + moved - self.lead, last + moved + self.tail


def begin_slot(job: str, iteration: int) -> int:
    number = [one.name for one in TABLE.jobs].index(job)
    pairs = zip(TABLE.job_of_pair, TABLE.iteration_of_pair, TABLE.payload_of_pair, strict=True)
    return 2 * next(at for at, pair in enumerate(pairs) if pair == (number, iteration, False))


def make_run(folder: Path, launches: Sequence[Made]) -> Path:
    """A run in which each launch is a step of its own."""
    builder = JournalBuilder(folder, TABLE, BLOCKS, anchor_ns=UNIX_NS)
    for step, made in enumerate(launches):
        slots = np.zeros((BLOCKS, TABLE.slots), dtype=np.uint64)
        for block, job, iteration, begin, end in made.spans:
            at = begin_slot(job, iteration)
            slots[block, at] = made.begin_ns + begin
            slots[block, at + 1] = 0 if job == "go" else made.begin_ns + end
        for (block, iteration), payload in made.payloads.items():
            at = begin_slot("load", iteration)
            slots[block, at + 2 : at + 4] = payload, 1
        header_ns = np.array(
            [int(row[row > np.uint64(UNIX_NS)].min(initial=np.uint64(made.times()[1]))) for row in slots],
            dtype=np.uint64,
        )
        sms = np.array([10, 10, 20], dtype=np.uint32)
        builder.launch(LaunchStamps(step, 0, slots, header_ns, kind=made.kernel, sms=sms))
        builder.step(step)
    builder.end()
    return folder


def kernel_event(name: str, begin_ns: int, end_ns: int, base_ns: int = BASE_NS, device: int = 0) -> str:
    head = {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": 7, "args": {"device": device}}
    ts, dur = microseconds(begin_ns - base_ns), microseconds(end_ns - begin_ns)
    return f'{json.dumps(head)[:-1]}, "ts": {ts}, "dur": {dur}}}'


def trace_text(events: Sequence[str], base_ns: int | None = BASE_NS) -> str:
    listed = ",\n  ".join([*map(json.dumps, OTHER_EVENTS), *events])
    base = "" if base_ns is None else f'"baseTimeNanoseconds": {base_ns},\n '
    return f'{{\n "schemaVersion": 1, {base}"traceEvents": [\n  {listed}\n ],\n "traceName": "x.json"\n}}\n'


def make_trace(path: Path, launches: Sequence[Made]) -> Path:
    events = [kernel_event(GPU_NAME.replace("gemm", made.kernel), *made.traced()) for made in launches]
    path.write_text(trace_text(events))
    return path


def events_in(path: Path) -> list[dict[str, Any]]:
    data = json.loads(path.read_text(), parse_float=Decimal)
    events: list[dict[str, Any]] = data["traceEvents"]
    return events


def to_ns(time: Decimal | int) -> int:
    exact = Decimal(time) * 1000
    assert exact == int(exact)
    return int(exact)


def inside(path: Path) -> list[dict[str, Any]]:
    """The events that are not names, of the processes that were added."""
    events = events_in(path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    added = {pid for pid, name in names.items() if name.startswith("inside ")}
    return [event for event in events if event["pid"] in added and event["ph"] != "M"]


def shown(path: Path) -> set[tuple[int, int, str, int, int, int]]:
    """(step, block, job, iteration, begin, end), in ns on the trace's clock."""
    return {
        (
            event["args"]["step"],
            event["args"]["block"],
            event["name"],
            event["args"].get("iteration", 0),
            BASE_NS + to_ns(event["ts"]),
            BASE_NS + to_ns(event["ts"]) + to_ns(event.get("dur", 0)),
        )
        for event in inside(path)
    }


def expected(launches: Sequence[Made], moves: Sequence[int]) -> set[tuple[int, int, str, int, int, int]]:
    return {
        (step, block, job, iteration, *(made.begin_ns + move + edge for edge in (begin, end)))
        for step, (made, move) in enumerate(zip(launches, moves, strict=True))
        for block, job, iteration, begin, end in made.spans
    }


def assert_tracks_are_stacks(events: Sequence[dict[str, Any]]) -> None:
    """Any two events of a track lie apart, or in each other and are of one block; each event is complete."""
    tracks = defaultdict(list)
    for event in events:
        assert event["ph"] in ("X", "i")
        begin = to_ns(event["ts"])
        assert begin >= 0
        if event["ph"] == "X":
            assert to_ns(event["dur"]) >= 0
            end, block = begin + to_ns(event["dur"]), event["args"]["block"]
            tracks[event["pid"], event["tid"]].append((begin, end, block))
    for spans in tracks.values():
        for at, (begin, end, block) in enumerate(spans):
            for other_begin, other_end, other_block in spans[at + 1 :]:
                apart = end <= other_begin or other_end <= begin
                within = begin <= other_begin <= other_end <= end or other_begin <= begin <= end <= other_end
                assert apart or (within and block == other_block)
