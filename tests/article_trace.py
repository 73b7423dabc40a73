"""The article's sliding-window layer as a recording: all times that it publishes, and what follows.

Published (the article's figure, us from the layer's begin): expert prefetch 0.7 to 15; router and pooler
weights issued 7 before stop 1's data; GEMM 2's first tile issued at 45, before stop 3's data; the earliest
tenth of blocks in GEMM 2 at 47, the slowest tenth in GEMM 1 until 50; GEMM 2 ends at 55 to 64 (10th to 90th
percentile); combine at 65; next KV prefetch at 65; the next layer launched at 79, about 4 before the first
block exits, and landed at 84; from GEMM 2 to the end 12.5 without work a block on average, almost half of
all its idle time. 144 blocks, 45 layers, 19 replays, two GPUs.

The rest (when an op begins that nobody told) is made up and stands in ``Layer``. Two lengths are not free:
stop 5 waits so long that idle time after GEMM 2 is 12.5, and stop 2 so long that it is ``IDLE_SHARE`` of
all. Blocks differ where the article gives percentiles: each takes every place once in as many launches as
there are blocks. The clock is a GPU's, with a tick of 32 ns, and stamps are rounded down to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from musetrace.job_table import Job, JobTable
from tests.builders import JournalBuilder, LaunchStamps

PREFETCH = (0.7, 15.0)
WEIGHTS_BEFORE_STOP_1 = 7.0
GEMM2_TILE_ISSUED, GEMM2_EARLIEST_TENTH, GEMM1_SLOWEST_TENTH = 45.0, 47.0, 50.0
GEMM2_ENDS = (55.0, 64.0)
COMBINE, KV_PREFETCH, LAUNCHED, LANDED, EXIT_AFTER_LAUNCH = 65.0, 65.0, 79.0, 84.0, 4.0
IDLE_AFTER_GEMM2, IDLE_SHARE = 12.5, 0.48  # "almost half"
BLOCKS, LAYERS, REPLAYS, RANKS = 144, 45, 19, 2

TICK_NS = 32
START_NS = 1_790_000_000_000_000_000
STEP_PAUSE_NS = 40_000

# name, op, kind, warp, awaited job
_ROWS = (
    ("attention_load", "attention", "load", 1, None),
    ("attention_wait_kv", "attention", "wait", 4, "attention_load"),
    ("attention_compute", "attention", "compute", 4, None),
    ("attention_send", "attention", "send", 3, None),
    ("gemm1_prefetch", "gemm1", "prefetch", 2, None),
    ("o_proj_load", "o_proj", "load", 0, None),
    ("o_proj_wait_heads", "o_proj", "wait", 4, "attention_send"),
    ("o_proj_compute", "o_proj", "compute", 4, None),
    ("o_proj_send", "o_proj", "send", 3, None),
    ("pooler_load", "pooler", "load", 0, None),
    ("router_load", "router", "load", 1, None),
    ("stop1_wait_ranks", "stop1", "wait", 4, "o_proj_send"),
    ("stop1_norm", "stop1", "compute", 4, None),
    ("pooler_compute", "pooler", "compute", 4, None),
    ("router_compute", "router", "compute", 4, None),
    ("router_send", "router", "send", 3, None),
    ("stop2_wait_ranks", "stop2", "wait", 4, "router_send"),
    ("stop2_topk", "stop2", "compute", 4, None),
    ("gemm1_load", "gemm1", "load", 0, None),
    ("gemm1_wait_weights", "gemm1", "wait", 4, "gemm1_load"),
    ("gemm1_compute", "gemm1", "compute", 4, None),
    ("gemm1_send", "gemm1", "send", 4, None),
    ("gemm2_load", "gemm2", "load", 0, None),
    ("stop3_wait_ranks", "stop3", "wait", 4, "gemm1_send"),
    ("gemm2_compute", "gemm2", "compute", 4, None),
    ("gemm2_send", "gemm2", "send", 3, None),
    ("stop4_wait_ranks", "stop4", "wait", 4, "gemm2_send"),
    ("stop4_combine", "stop4", "compute", 4, None),
    ("kv_prefetch", "kv", "prefetch", 2, None),
    ("unpooler_compute", "unpooler", "compute", 4, None),
    ("unpooler_send", "unpooler", "send", 3, None),
    ("stop5_wait_ranks", "stop5", "wait", 4, "unpooler_send"),
    ("stop5_norm", "stop5", "compute", 4, None),
    ("qkv_compute", "qkv", "compute", 4, None),
)
NAMES = tuple(row[0] for row in _ROWS)
Times = dict[str, tuple[float, float]]


def job_table() -> JobTable:
    """Five warps that stamp, and a slot pair for each job."""
    jobs = tuple(
        Job(name, op, kind, "all", (warp, warp), (warp,), None if awaits is None else NAMES.index(awaits))
        for name, op, kind, warp, awaits in _ROWS
    )
    warps = tuple(row[3] for row in _ROWS)
    return JobTable("article", 12, 2 * len(jobs), jobs, tuple(range(len(jobs))), warps)


def across(low: float, high: float, blocks: int) -> list[float]:
    """Evenly growing times of which the 10th percentile is ``low`` and the 90th ``high`` (nearest rank)."""
    first, last = (max(-(-percent * blocks // 100), 1) - 1 for percent in (10, 90))
    return [low + (high - low) * (place - first) / max(last - first, 1) for place in range(blocks)]


@dataclass(frozen=True)
class Layer:
    """What is made up of a layer, us from its begin; ``stop2_us`` and ``stop5_us`` follow."""

    blocks: int
    stop1_data: float = 22.5
    stop2_us: float = 0.0
    stop5_us: float = 0.0

    @classmethod
    def of(cls, blocks: int) -> Layer:
        """The layer with the two waits that give the published idle time, which are idle all along."""
        after, all_idle = cls(blocks)._mean_idle()
        stop5 = IDLE_AFTER_GEMM2 - after
        return cls(blocks, stop5_us=stop5, stop2_us=IDLE_AFTER_GEMM2 / IDLE_SHARE - all_idle - stop5)

    def times_of(self, place: int) -> Times:
        """When each job runs on the block that has this place among its layer's blocks, in us."""
        come = self.comes(place)
        gemm1_end = across(44.0, GEMM1_SLOWEST_TENTH, self.blocks)[place]
        gemm2_begin = across(GEMM2_EARLIEST_TENTH, 51.0, self.blocks)[place]
        gemm2_end = min(across(*GEMM2_ENDS, self.blocks)[place], COMBINE - 0.2)
        stop2_data, unpooled = 28.5 + self.stop2_us, COMBINE + 4.5
        stop5_data = unpooled + self.stop5_us
        leaves = (
            LAUNCHED + EXIT_AFTER_LAUNCH + (LANDED - LAUNCHED - EXIT_AFTER_LAUNCH) * place / (self.blocks - 1)
        )
        return {
            "attention_load": (come, 8.0),
            "attention_wait_kv": (come, max(come, 2.0)),
            "attention_compute": (max(come, 2.0), 13.0),
            "attention_send": (12.9, 13.3),
            "gemm1_prefetch": (max(come, PREFETCH[0]), PREFETCH[1]),
            "o_proj_load": (8.0, 14.0),
            "o_proj_wait_heads": (13.0, 14.0),
            "o_proj_compute": (14.0, 17.0),
            "o_proj_send": (17.0, 17.5),
            "pooler_load": (self.stop1_data - WEIGHTS_BEFORE_STOP_1, 18.0),
            "router_load": (self.stop1_data - WEIGHTS_BEFORE_STOP_1, 19.0),
            "stop1_wait_ranks": (17.0, self.stop1_data),
            "stop1_norm": (self.stop1_data, 24.0),
            "pooler_compute": (24.0, 26.0),
            "router_compute": (26.0, 28.0),
            "router_send": (28.0, 28.5),
            "stop2_wait_ranks": (28.0, stop2_data),
            "stop2_topk": (stop2_data, 34.0),
            "gemm1_load": (34.0, 42.0),
            "gemm1_wait_weights": (34.0, 35.0),
            "gemm1_compute": (35.0, gemm1_end),
            "gemm1_send": (gemm1_end - 0.3, gemm1_end),
            "gemm2_load": (GEMM2_TILE_ISSUED, 54.0),
            "stop3_wait_ranks": (gemm1_end, gemm2_begin),
            "gemm2_compute": (gemm2_begin, gemm2_end),
            "gemm2_send": (gemm2_end - 0.3, gemm2_end),
            "stop4_wait_ranks": (gemm2_end, COMBINE),
            "stop4_combine": (COMBINE, 66.5),
            "kv_prefetch": (KV_PREFETCH, 65.6),
            "unpooler_compute": (66.5, unpooled),
            "unpooler_send": (unpooled - 0.3, unpooled),
            "stop5_wait_ranks": (unpooled, stop5_data),
            "stop5_norm": (stop5_data, stop5_data + 1.4),
            "qkv_compute": (stop5_data + 1.4, leaves),
        }

    def comes(self, place: int) -> float:
        """When a block begins: most at once, the last when the layer before it is gone."""
        return LANDED - LAUNCHED if place == self.blocks - 1 else 0.6 * place / self.blocks

    def _mean_idle(self) -> tuple[float, float]:
        """Idle us a block after the end of GEMM 2, and in all: from the begin of the layer to its end."""
        busy = {name for name, _, kind, _, _ in _ROWS if kind in ("compute", "send")}
        after = whole = 0.0
        for place in range(self.blocks):
            times = self.times_of(place)
            spans = sorted(times[name] for name in busy)
            free, end = 0.0, 0.0
            for begin, stop in spans:
                free, end = free + max(begin - end, 0.0), max(end, stop)
                if end <= times["gemm2_compute"][1]:
                    before = free
            whole += free + LANDED - end
            after += free + LANDED - end - before
        return after / self.blocks, whole / self.blocks


def launches(rank: int, blocks: int, layers: int, replays: int) -> Iterator[LaunchStamps]:
    """The launches of one rank, in order; layers follow each other 79 us apart, and overlap."""
    layer = Layer.of(blocks)
    pattern = np.zeros((blocks, 2 * len(NAMES)), dtype=np.int64)
    for place in range(blocks):
        for pair, name in enumerate(NAMES):
            pattern[place, 2 * pair : 2 * pair + 2] = np.round(1000 * np.array(layer.times_of(place)[name]))
    header = np.round(1000 * np.array([layer.comes(place) for place in range(blocks)])).astype(np.int64)
    period_ns = round(1000 * LAUNCHED)
    for step in range(replays):
        for launch in range(layers):
            begin = START_NS + 7 * rank + step * (layers * period_ns + STEP_PAUSE_NS) + launch * period_ns
            turn = -(step * layers + launch) % blocks
            slots, headers = (ticks(begin + np.roll(of, turn, axis=0)) for of in (pattern, header))
            yield LaunchStamps(step, launch, slots, headers, layer=launch, epoch=step * layers + launch + 1)


def ticks(times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Times as the clock shows them."""
    return (times_ns // TICK_NS * TICK_NS).astype(np.uint64)


def build_article_run(
    folder: Path, *, blocks: int = BLOCKS, layers: int = LAYERS, replays: int = REPLAYS, ranks: int = RANKS
) -> Path:
    """Write the run's journals and return its folder."""
    meta = {"clock": {"name": "globaltimer", "tick_ns": TICK_NS}}
    for rank in range(ranks):
        journal = JournalBuilder(folder, job_table(), blocks, rank=rank, world=ranks, slot_bytes=4, meta=meta)
        step = -1
        for one in launches(rank, blocks, layers, replays):
            if one.step != step and step >= 0:
                journal.step(step)
            step = one.step
            journal.launch(one)
        journal.step(step)
        journal.end()
    return folder
