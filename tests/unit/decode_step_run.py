"""A synthetic decode step whose every time is arithmetic: the shape of the article's figure, on two ranks.

Rank 1 is 0.9 us later with its sends than rank 0, so rank 0 waits longer at each stop. Blocks, steps and
launches differ by a little, so that percentiles are not all one number. The job table is the test's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from musetrace.job_table import Job, JobTable
from tests.builders import LaunchStamps, build_run

RANKS, BLOCKS, STEPS = 2, 4, 3
KINDS = ("entry", "sliding", "sliding", "global", "sliding", "head")
LAUNCH_NS, GAP_NS, STEP_NS = 84_000, 1_500, 700_000
START_NS = 1_790_000_000_000_000_000
SEND_LATE_NS = 900


class Row(NamedTuple):
    """A job and when it runs in a layer's launch, ns from the launch's begin."""

    name: str
    op: str
    kind: str
    begin: int
    end: int
    awaits: str | None = None


LAYER = (
    Row("attention_load_k", "attention", "load", 300, 9_000),
    Row("attention_wait_kv", "attention", "wait", 400, 2_000, "attention_load_k"),
    Row("attention_compute", "attention", "compute", 2_000, 13_000),
    Row("attention_merge", "attention", "compute", 13_000, 14_500),
    Row("attention_send", "attention", "send", 14_500, 15_200),
    Row("o_proj_load", "o_proj", "load", 9_000, 16_000),
    Row("o_proj_wait_heads", "o_proj", "wait", 15_300, 16_900, "attention_send"),
    Row("o_proj_compute", "o_proj", "compute", 16_900, 20_000),
    Row("o_proj_send", "o_proj", "send", 20_000, 20_600),
    Row("stop1_wait_ranks", "stop1", "wait", 20_700, 23_000, "o_proj_send"),
    Row("stop1_sum", "stop1", "recv", 23_000, 24_000),
    Row("stop1_norm", "stop1", "compute", 24_000, 25_000),
    Row("pooler_load", "pooler", "load", 16_000, 18_500),
    Row("pooler_compute", "pooler", "compute", 25_000, 27_500),
    Row("router_load", "router", "load", 18_500, 19_500),
    Row("router_compute", "router", "compute", 27_500, 29_000),
    Row("router_send", "router", "send", 29_000, 29_400),
    Row("stop2_wait_ranks", "stop2", "wait", 29_500, 31_500, "router_send"),
    Row("stop2_topk", "stop2", "compute", 31_500, 33_000),
    Row("gemm1_prefetch", "gemm1", "prefetch", 700, 15_000),
    Row("gemm1_load", "gemm1", "load", 33_000, 45_000),
    Row("gemm1_compute", "gemm1", "compute", 33_500, 48_000),
    Row("gemm1_send", "gemm1", "send", 48_000, 48_500),
    Row("stop3_wait_ranks", "stop3", "wait", 48_600, 50_400, "gemm1_send"),
    Row("gemm2_load", "gemm2", "load", 45_000, 58_000),
    Row("gemm2_compute", "gemm2", "compute", 50_400, 60_000),
    Row("gemm2_send", "gemm2", "send", 60_000, 60_500),
    Row("stop4_wait_ranks", "stop4", "wait", 60_600, 65_000, "gemm2_send"),
    Row("stop4_combine", "stop4", "compute", 65_000, 66_000),
    Row("unpooler_load", "unpooler", "load", 58_000, 60_000),
    Row("unpooler_compute", "unpooler", "compute", 66_000, 69_000),
    Row("unpooler_send", "unpooler", "send", 69_000, 69_500),
    Row("stop5_wait_ranks", "stop5", "wait", 69_600, 73_000, "unpooler_send"),
    Row("stop5_sum", "stop5", "recv", 73_000, 73_500),
    Row("stop5_norm", "stop5", "compute", 73_500, 74_500),
    Row("qkv_load", "qkv", "load", 60_000, 72_000),
    Row("qkv_compute", "qkv", "compute", 74_500, 80_000),
    Row("qkv_rope", "qkv", "compute", 80_000, 81_500),
    Row("kv_write", "kv_write", "send", 81_500, 82_500),
)
ENTRY = (
    Row("qkv_load", "qkv", "load", 500, 6_000),
    Row("qkv_compute", "qkv", "compute", 1_500, 9_000),
    Row("kv_write", "kv_write", "send", 9_000, 10_000),
)
HEAD = (
    Row("lm_head_load", "lm_head", "load", 200, 30_000),
    Row("lm_head_compute", "lm_head", "compute", 1_000, 33_000),
)
JOBS = (*LAYER, *HEAD)
PAIR = {row.name: pair for pair, row in enumerate(JOBS)}


def job_table() -> JobTable:
    """One warp, and a slot pair for each job."""
    jobs = tuple(
        Job(row.name, row.op, row.kind, "all", (0, 0), (0,), PAIR[row.awaits] if row.awaits else None)
        for row in JOBS
    )
    pairs = tuple(range(len(jobs)))
    return JobTable("figure", 1, 2 * len(jobs), jobs, pairs, (0,) * len(jobs))


def schedule(kind: str, rank: int, block: int, step: int, launch: int) -> dict[str, tuple[int, int]]:
    """The times of one block in one launch by job, ns from the launch's begin."""
    times = {}
    for index, row in enumerate({"entry": ENTRY, "head": HEAD}.get(kind, LAYER)):
        if row.name == "pooler_compute" and block == 3:
            continue  # as on the GPU, not every block has a tile of every op
        jitter = (37 * block + 53 * step + 71 * launch + 29 * index) % 240
        begin_late = SEND_LATE_NS * rank if row.name.endswith("_wait_ranks") else 0
        end_late = SEND_LATE_NS * rank if row.kind == "send" else 0
        times[row.name] = (row.begin + begin_late + jitter, row.end + end_late + jitter)
    return times


def launches_of(rank: int, kinds: tuple[str, ...], steps: int) -> list[LaunchStamps]:
    """The stamps of all launches of a rank."""
    found = []
    for step in range(steps):
        for launch, kind in enumerate(kinds):
            begin = START_NS + step * STEP_NS + launch * (LAUNCH_NS + GAP_NS)
            slots = np.zeros((BLOCKS, 2 * len(JOBS)), dtype=np.uint64)
            for block in range(BLOCKS):
                for job, (first, last) in schedule(kind, rank, block, step, launch).items():
                    slots[block, 2 * PAIR[job] : 2 * PAIR[job] + 2] = (begin + first, begin + last)
            headers = np.full(BLOCKS, begin, dtype=np.uint64)
            found.append(LaunchStamps(step, launch, slots, headers, layer=launch - 1, kind=kind))
    return found


def build_decode_steps(
    folder: Path, *, kinds: tuple[str, ...] = KINDS, steps: int = STEPS, ranks: int = RANKS, end: bool = True
) -> Path:
    """Write the run's journals and return its folder."""
    launches = {rank: launches_of(rank, kinds, steps) for rank in range(ranks)}
    return build_run(folder, launches, job_table(), BLOCKS, slot_bytes=4, end=end)
