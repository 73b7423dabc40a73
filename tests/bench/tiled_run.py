"""A run of any size made cheaply: one realistic step of eight ranks, written again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from musetrace.job_table import JobTable
from tests.builders import JournalBuilder, LaunchStamps

RANKS, LAYERS, BLOCKS = 8, 62, 132
TICK_NS = 32
STEP_NS = 9_000_000
START_NS = 1_790_000_000_000_000_000
GAP_NS = 2_000
RUNS_AN_OP = 0.73  # of the blocks: the rest have no part of it

_LENGTHS_NS = {"compute": 3_000, "load": 900, "prefetch": 700, "send": 400, "recv": 500, "sync": 300}
_HOP_NS = 250

Ints = npt.NDArray[np.int64]


class TiledRun:
    """Writes the journals of a run whose steps are one step with other chances.

    ``faster`` makes one op's jobs shorter by that share in every step: a build to compare with.
    """

    def __init__(self, seed: int = 1, faster: dict[str, float] | None = None) -> None:
        """Make the step: u64 stamps [ranks, layers, blocks, slots], in ns from the step's begin."""
        self.table = JobTable.built_in("muse_hopper")
        self._random = np.random.default_rng(seed)
        self._faster = faster or {}
        self._stamps = np.zeros((RANKS, LAYERS, BLOCKS, self.table.slots), dtype=np.uint64)
        self._fill()
        self.spans_per_step = int(np.count_nonzero(self._stamps[..., ::2]))

    def write(self, folder: Path, steps: int) -> Path:
        """All ranks' journals; not the index."""
        for rank in range(RANKS):
            clock = {"name": "globaltimer", "tick_ns": TICK_NS}
            builder = JournalBuilder(
                folder, self.table, BLOCKS, rank, RANKS, slot_bytes=4, meta={"clock": clock, "pid": 1}
            )
            for step in range(steps):
                for stamps in self._launches(rank, step):
                    builder.launch(stamps)
                begin_ns = START_NS + step * STEP_NS
                builder.step(step, begin_ns, begin_ns + STEP_NS - 100_000, 16)
            builder.end()
        return folder

    def _launches(self, rank: int, step: int) -> Iterator[LaunchStamps]:
        """A step: whose blocks change places, and whose launches begin a few ticks apart from the last's."""
        chance = np.random.default_rng((step, 7))
        for layer in range(LAYERS):
            at = START_NS + step * STEP_NS + TICK_NS * int(chance.integers(0, 40))
            stamps = np.roll(self._stamps[rank, layer], int(chance.integers(0, BLOCKS)), axis=0)
            slots = np.where(stamps != 0, stamps + np.uint64(at), 0).astype(np.uint64)
            header_ns = np.min(slots, axis=1, where=slots != 0, initial=np.iinfo(np.uint64).max)
            kind = "global" if layer % 6 == 5 else "sliding"
            yield LaunchStamps(
                step, layer, slots, header_ns, layer, kind, step * LAYERS + layer + 1,
                submit_ns=at, done_ns=at + STEP_NS,
            )  # fmt: skip

    def _fill(self) -> None:
        shape = (RANKS, LAYERS, BLOCKS)
        begin = np.arange(LAYERS)[None, :, None] * 130_000 + GAP_NS
        begin = begin + self._random.integers(0, 600, shape)
        warp_free = {warp: begin.copy() for warp in range(self.table.warps_per_block)}
        ended: dict[int, Ints] = {}
        takes_part: dict[str, npt.NDArray[np.bool_]] = {}
        for job_id, warps in self._warps_of_jobs():
            job = self.table.jobs[job_id]
            part = takes_part.setdefault(job.op, self._random.random(shape) < RUNS_AN_OP)
            if job.op in ("entry", "lm_head"):
                continue
            ends = [self._one(job_id, warp, pair, warp_free, ended, part) for warp, pair in warps]
            ended[job_id] = np.where(part, np.maximum.reduce(ends), 0)

    def _one(
        self,
        job_id: int,
        warp: int,
        pair: int,
        warp_free: dict[int, Ints],
        ended: dict[int, Ints],
        part: npt.NDArray[np.bool_],
    ) -> Ints:
        """Stamp a job on a warp: it begins when the warp is free, and a wait ends just after its producer."""
        job, begin = self.table.jobs[job_id], warp_free[warp]
        jitter = self._random.gamma(4.0, 0.25, begin.shape)
        if job.kind == "wait":
            awaited = ended.get(job.awaits if job.awaits is not None else -1, begin)
            if job.name.endswith("_wait_ranks"):
                awaited = np.broadcast_to(awaited.max(axis=(0, 2), keepdims=True), begin.shape)
            end = np.maximum(begin, awaited) + (_HOP_NS * jitter).astype(np.int64)
        else:
            length = _LENGTHS_NS[job.kind] * (1 - self._faster.get(job.op, 0.0))
            end = begin + (length * jitter).astype(np.int64)
        for side, times in enumerate((begin, end)):
            ticks = np.where(part, times // TICK_NS * TICK_NS, 0)
            self._stamps[..., 2 * pair + side] = ticks
        warp_free[warp] = np.where(part, end, begin)
        return end

    def _warps_of_jobs(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """(warp, slot pair) of every instance of each job."""
        found: dict[int, list[tuple[int, int]]] = {}
        for pair, job in enumerate(self.table.job_of_pair):
            if job >= 0:
                found.setdefault(job, []).append((self.table.warp_of_pair[pair], pair))
        return sorted(found.items())
