"""A run in memory for tests of the analysis: lists of plain tuples, served in the store's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from musetrace.job_table import Job, JobTable

BASE_NS = 1_790_000_000_000_000_000  # a time of day, as a GPU's clock gives it


class Launch(NamedTuple):
    """``begin`` and ``end`` are ns from the step's base; ``stamped`` False: it left no stamps."""

    rank: int
    step: int
    launch: int
    layer: int
    kind: str
    begin: int
    end: int
    blocks: int
    stamped: bool = True


class Span(NamedTuple):
    rank: int
    step: int
    launch: int
    block: int
    job: int
    begin: int
    dur: int
    flag: int = 0
    warp: int = 0
    iteration: int = 0


def job(name: str, op: str, kind: str, awaits: int | None = None) -> Job:
    return Job(name=name, op=op, kind=kind, role="all", warps=(0, 0), stamped_by=(0,), awaits=awaits)


SMALL_JOBS = (
    job("a_load", "a", "load"),
    job("a_wait_weights", "a", "wait", awaits=0),
    job("a_compute", "a", "compute"),
    job("a_merge", "a", "compute"),
    job("b_prefetch", "b", "prefetch"),
    job("b_load", "b", "load"),
    job("b_compute", "b", "compute"),
    job("b_send", "b", "send"),
    job("stop1_wait_ranks", "stop1", "wait", awaits=7),
    job("stop1_sum", "stop1", "recv"),
    job("stop1_norm", "stop1", "compute"),
    job("reset", "exchange", "sync"),
    job("b_wait_a", "b", "wait", awaits=3),
    job("b_wait_wait", "b", "wait", awaits=12),
)
UNKNOWN_JOB = 0x8000 + 3


def small_table() -> JobTable:
    pairs = tuple(range(len(SMALL_JOBS)))
    return JobTable("small", 1, 2 * len(pairs), SMALL_JOBS, pairs, (0,) * len(pairs))


@dataclass
class FakeRun:
    """Serves ``all_launches`` and ``all_spans``; ``missing`` are ranks that the run should have."""

    all_launches: Sequence[Launch]
    all_spans: Sequence[Span]
    blocks: int
    ranks: tuple[int, ...]
    missing: tuple[int, ...] = ()
    job_table: JobTable = field(default_factory=small_table)
    tick_ns: int | None = 1
    alignment: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    job_bytes: Sequence[dict[str, Any]] = ()

    @property
    def manifest(self) -> dict[str, Any]:
        ranks = [{"rank": rank, "alignment": self.alignment.get(rank)} for rank in self.ranks]
        clock = {"name": "test", "tick_ns": self.tick_ns}
        return {"clock": clock, "ranks": ranks, "job_bytes": list(self.job_bytes)}

    @property
    def losses(self) -> dict[str, Any]:
        return {"missing_ranks": list(self.missing)}

    def step_ids(self, rank: int) -> list[int]:
        return sorted({launch.step for launch in self.all_launches if launch.rank == rank})

    def base_ns(self, rank: int, step: int) -> int:
        return BASE_NS + 1000 * step + 2 * rank

    def steps(self, rank: int) -> pa.Table:
        rows = []
        for step in self.step_ids(rank):
            ends = [x.end for x in self.all_launches if (x.rank, x.step) == (rank, step) and x.stamped]
            base = self.base_ns(rank, step)
            host = {"host_begin_ns": 5_000 + 100 * step, "host_end_ns": 5_040 + 107 * step}
            rows.append({"step": step, "base_ns": base, "end_ns": base + max(ends, default=0), **host})
        names = ("step", "base_ns", "end_ns", "host_begin_ns", "host_end_ns")
        schema = pa.schema([(name, pa.uint32() if name == "step" else pa.uint64()) for name in names])
        return pa.Table.from_pylist(rows, schema=schema)

    def launches(self, rank: int) -> pa.Table:
        kinds = {"step": pa.uint32(), "launch": pa.uint16(), "layer": pa.int16(), "kind": pa.string()}
        kinds |= {"begin_ns": pa.uint64(), "end_ns": pa.uint64(), "blocks": pa.uint16()}
        rows = [
            {
                "step": x.step,
                "launch": x.launch,
                "layer": x.layer,
                "kind": x.kind,
                "begin_ns": self.base_ns(rank, x.step) + x.begin if x.stamped else 0,
                "end_ns": self.base_ns(rank, x.step) + x.end if x.stamped else 0,
                "blocks": x.blocks,
            }
            for x in self.all_launches
            if x.rank == rank
        ]
        return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))

    def spans(self, rank: int, step: int) -> pa.RecordBatch:
        kinds = {"begin": pa.uint32(), "dur": pa.uint32(), "job": pa.uint16(), "launch": pa.uint16()}
        kinds |= {"block": pa.uint16(), "flag": pa.uint8(), "warp": pa.uint8(), "iteration": pa.uint16()}
        rows = [x._asdict() for x in self.all_spans if (x.rank, x.step) == (rank, step)]
        return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kinds.items())))
