"""A synthetic decode step of the Muse layer, at any width: the shape of the article's figure.

Every time is arithmetic on the place of a stamp, so that it is the same each time. Ranks run apart, the
weight loads run ahead of their ops, the two groups of warps differ a little, and some blocks run the router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from builders import JournalBuilder, LaunchStamps

from musetrace.job_table import JobTable

START_NS = 1_790_000_000_000_000_000
STEP_NS, GAP_NS = 900_000, 3_300
KINDS = ("entry", "sliding", "sliding", "global", "sliding", "head")
SKEW_NS = 900

# job: begin and end in ns from the launch's begin
LAYER = {
    "attention_load_k": (200, 6_400),
    "attention_load_v": (250, 7_600),
    "attention_wait_kv": (400, 2_100),
    "attention_compute": (2_100, 12_700),
    "attention_merge": (12_700, 14_300),
    "attention_wait_merge": (500, 14_300),
    "attention_send": (14_300, 15_000),
    "exchange_reset": (15_000, 15_900),
    "gemm1_prefetch": (700, 15_000),
    "o_proj_load": (6_500, 14_900),
    "o_proj_wait_heads": (8_000, 15_900),
    "o_proj_load_input": (15_900, 16_700),
    "o_proj_wait_input": (14_400, 16_700),
    "o_proj_compute": (16_700, 20_100),
    "o_proj_wait_output": (15_900, 20_100),
    "o_proj_send": (20_100, 20_900),
    "pooler_load": (15_000, 17_100),
    "router_load": (17_100, 18_000),
    "stop1_wait_ranks": (20_200, 24_600),
    "stop1_sum": (24_600, 25_500),
    "stop1_norm": (25_500, 26_600),
    "pooler_compute": (26_600, 29_000),
    "router_compute": (29_000, 30_600),
    "router_wait_output": (20_900, 30_600),
    "router_send": (30_600, 31_000),
    "stop2_wait_ranks": (30_700, 33_600),
    "stop2_norm": (33_600, 34_300),
    "stop2_topk": (34_300, 35_200),
    "gemm1_wait_tiles": (18_100, 35_200),
    "gemm1_load": (35_300, 45_000),
    "gemm1_compute": (35_900, 47_500),
    "gemm1_send": (47_500, 48_100),
    "stop3_wait_ranks": (48_100, 50_300),
    "gemm2_load": (45_000, 58_800),
    "gemm2_wait_input": (48_100, 50_700),
    "gemm2_compute": (50_700, 59_600),
    "gemm2_send": (59_600, 60_200),
    "stop4_wait_ranks": (60_200, 64_200),
    "stop4_combine": (64_200, 65_300),
    "unpooler_load": (58_800, 61_000),
    "unpooler_compute": (65_300, 68_900),
    "unpooler_wait_output": (60_300, 68_900),
    "unpooler_send": (68_900, 69_500),
    "qkv_load": (61_000, 71_200),
    "stop5_wait_ranks": (69_000, 73_300),
    "stop5_sum": (73_300, 73_900),
    "stop5_norm": (73_900, 75_200),
    "qkv_compute": (75_200, 80_400),
    "qkv_rope": (80_400, 81_600),
    "kv_write": (81_600, 82_600),
}
ENTRY = {
    "entry_norm": (200, 1_400),
    "qkv_load": (300, 6_000),
    "qkv_compute": (1_500, 9_000),
    "kv_write": (9_000, 10_000),
}
HEAD = {"lm_head_load": (200, 30_000), "lm_head_norm": (300, 1_500), "lm_head_compute": (1_500, 33_000)}
SOME_BLOCKS = {"pooler_compute": 3, "router_compute": 4, "router_send": 4, "stop2_topk": 2}


Schedule = Mapping[str, tuple[int, int]]
SCHEDULES: Mapping[str, Schedule] = {"entry": ENTRY, "sliding": LAYER, "global": LAYER, "head": HEAD}


def jitter_ns(rank: int, step: int, launch: int, block: int, warp: int, job: int) -> int:
    """How much later than the schedule a job runs."""
    mixed = (rank * 97 + step * 131 + launch * 59 + block * 7919 + warp * 13 + job * 389) * 2_654_435_761
    return SKEW_NS * rank + (mixed >> 7) % (200 + 9 * job)


def runs(job: str, block: int) -> bool:
    """Whether a block has this job: not every block has a tile of every op."""
    return block % SOME_BLOCKS.get(job, 1) == 0


def launch_slots(
    table: JobTable, times: Schedule, place: tuple[int, int, int], blocks: int, begin_ns: int
) -> npt.NDArray[np.uint64]:
    """The stamps of one launch, u64[blocks, slots]; ``place`` is rank, step, launch."""
    slots = np.zeros((blocks, table.slots), dtype=np.uint64)
    for pair, (job, warp) in enumerate(zip(table.job_of_pair, table.warp_of_pair, strict=True)):
        if job < 0 or table.jobs[job].name not in times:
            continue
        first, last = times[table.jobs[job].name]
        for block in range(blocks):
            if runs(table.jobs[job].name, block):
                late = jitter_ns(*place, block, warp, job)
                late_end = jitter_ns(*place, block, warp, job + 1)
                begin, end = first + min(late, late_end), last + max(late, late_end)
                slots[block, 2 * pair : 2 * pair + 2] = (begin_ns + begin, begin_ns + end)
    return slots


def build_decode_run(
    folder: Path,
    *,
    ranks: int = 2,
    blocks: int = 4,
    steps: int = 3,
    kinds: tuple[str, ...] = KINDS,
    schedules: Mapping[str, Schedule] = SCHEDULES,
    table: JobTable | None = None,
    meta: Mapping[str, object] | None = None,
    end: bool = True,
) -> Path:
    """Write the journals of a run and return its folder."""
    table = table or JobTable.built_in()
    for rank in range(ranks):
        journal = JournalBuilder(
            folder, table, blocks, rank=rank, world=ranks, slot_bytes=4, meta=dict(meta or {})
        )
        for step in range(steps):
            write_step(journal, step, [(kind, schedules[kind]) for kind in kinds])
        journal.end() if end else journal.close()
    return folder


def write_step(journal: JournalBuilder, step: int, launches: Sequence[tuple[str, Schedule]]) -> None:
    """Write the launches of a step one after the other, each as long as its schedule."""
    begin_ns = step_begin_ns = START_NS + step * STEP_NS
    for launch, (kind, times) in enumerate(launches):
        slots = launch_slots(journal.job_table, times, (journal.rank, step, launch), journal.blocks, begin_ns)
        headers = np.full(journal.blocks, begin_ns, dtype=np.uint64)
        stamps = LaunchStamps(step, launch, slots, headers, layer=launch - 1, kind=kind, epoch=launch + 1)
        journal.launch(stamps)
        begin_ns += max(end for _, end in times.values()) + GAP_NS
    journal.step(step, step_begin_ns, begin_ns, tokens=16)
