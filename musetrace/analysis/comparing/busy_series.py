"""How long a block is busy with an op in a launch: a number for each step of a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.comparing.step_series import RankSeries, Series
from musetrace.analysis.kept_sums.cubes import states_by_kind
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.step_sums import STEP_SUMS, blocks_of, busy_ops, launches_of
from musetrace.analysis.spans.run_like import RunLike


def busy_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> RankSeries:
    """Busy time of every op, by (kind of launch, op).

    A step's number is the mean, over ranks x launches of the kind x blocks that count (as in ``idle``), of
    the length of the union of the op's compute, send, receive and sync spans on the block; a block that did
    nothing of it counts with 0, and what a span covers outside its launch is cut off. So these numbers add up
    to the busy time of the block, except where spans of two ops overlap on it. ``uncertainty_ns`` is a tick
    for each piece of those unions, by the same blocks, in the step where that is most.
    """
    rows, tick = busy_ops(run), tick_ns(run)
    found = RankSeries()
    for kind, states in states_by_kind(run, STEP_SUMS, ranks, layer_kind).states.items():
        launches = launches_of(states)
        times = {rank: _Times.of(state) for rank, state in states.items()}
        _, row_ids = states[None].sum_of("busy_pieces", 2).keys
        for row in np.unique(row_ids).tolist():
            name = (kind, rows.name_of(row))
            for rank, of in times.items():
                if rank is None:
                    found.names[name] = of.series(row, launches, tick)
                elif of.blocks:
                    found.by_rank[rank, name] = of.series(row, launches, tick)
    return found


@dataclass(frozen=True)
class _Times:
    """By step, of the steps that have launches of the kind; by (step, op)."""

    blocks: dict[int, int]
    covered_ns: dict[tuple[int, ...], int]
    pieces: dict[tuple[int, ...], int]

    @classmethod
    def of(cls, state: State) -> _Times:
        return cls(
            blocks_of(state), state.sum_of("busy", 2).as_dict(), state.sum_of("busy_pieces", 2).as_dict()
        )

    def series(self, row: int, launches: int, tick: int | None) -> Series:
        """Of an op; every step counts, with 0 where the op did nothing in it."""
        means, offs, count = [], [0], 0
        for step, blocks in self.blocks.items():
            covered, pieces = (of.get((step, row), 0) for of in (self.covered_ns, self.pieces))
            means.append((2 * covered + blocks) // (2 * blocks))
            offs.append(-(-pieces * (tick or 0) // blocks))
            count += pieces
        return Series(np.array(means, np.int64), None if tick is None else max(offs), launches, count)
