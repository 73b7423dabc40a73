"""The rows of a timeline: every block, every SM, or every warp of one block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from musetrace.analysis.spans.run_like import RunLike
from musetrace.errors import AnalysisError

BLOCKS, SMS, WARPS = "blocks", "sms", "warps"
KINDS = (BLOCKS, SMS, WARPS)
OWNED_BY_BLOCK = 255  # the warp of a job that the block owns


@dataclass(frozen=True)
class Rows:
    """Rows of some ranks, one rank after the other, ``per_rank`` of each.

    A row is a block, an SM, or (of ``block`` of one rank) a warp; of warps the last row is the block's own.
    ``numbers`` are the ids of the rows of a rank.
    """

    kind: str
    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    block: int | None = None

    @property
    def per_rank(self) -> int:
        """Rows of one rank."""
        return len(self.numbers)

    @property
    def count(self) -> int:
        """All rows."""
        return len(self.ranks) * self.per_rank

    def first_row(self, rank: int) -> int:
        """The number of a rank's first row."""
        return self.ranks.index(rank) * self.per_rank

    def ranks_inside(self, row_from: int, row_to: int) -> tuple[int, ...]:
        """The ranks that have some of the rows ``[row_from, row_to)``."""
        each = max(self.per_rank, 1)
        return self.ranks[max(row_from, 0) // each : -(-row_to // each)]


def block_rows(run: RunLike, ranks: Sequence[int]) -> Rows:
    """A row for each block."""
    return Rows(BLOCKS, tuple(ranks), tuple(range(run.blocks)))


def sm_rows(run: RunLike, ranks: Sequence[int]) -> Rows:
    """A row for each SM that has spans in the first step of a rank.

    Raises:
        AnalysisError: the run does not tell SMs apart.
    """
    seen: set[int] = set()
    for rank in ranks:
        for step in run.step_ids(rank)[:1]:
            batch = run.spans(rank, step)
            if "sm" in batch.schema.names:
                seen.update(np.unique(batch.column("sm").to_numpy()).tolist())
    if len(seen) < min(2, run.blocks):
        raise AnalysisError("this run does not say which SM a block ran on: show blocks instead")
    return Rows(SMS, tuple(ranks), tuple(range(max(seen, default=-1) + 1)))


def warp_rows(run: RunLike, rank: int, block: int) -> Rows:
    """A row for each warp of a block that stamps, and one for the jobs that the block owns if there are any.

    Raises:
        AnalysisError: the run has no such rank or block.
    """
    if rank not in run.ranks or not 0 <= block < run.blocks:
        raise AnalysisError(f"this run has no block {block} of rank {rank}")
    table = run.job_table
    pairs = zip(table.job_of_pair, table.warp_of_pair, strict=True)
    warps = {warp if warp >= 0 else OWNED_BY_BLOCK for job, warp in pairs if job >= 0}
    for step in run.step_ids(rank)[:1]:
        warps.update(np.unique(run.spans(rank, step).column("warp").to_numpy()).tolist())
    return Rows(WARPS, (rank,), tuple(sorted(warps)), block)
