"""Which blocks are idle for what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import sum_uncertainty_ns
from musetrace.analysis.gaps.idle import cause_names
from musetrace.analysis.gaps.idle_pieces import IdlePieces, KindClasses, idle_pieces
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans

_FIELDS = [
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("cause", pa.string()),
    ("op", pa.string()),
    ("wait", pa.string()),
    ("awaits", pa.string()),
    ("launches", pa.uint64()),
    ("wall_ns", pa.int64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("share_of_time", pa.float64()),
]


def idle_blocks(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (rank, block, cause) with idle time, causes in the order of ``idle``.

    ``total_ns`` is how long the block is idle for the cause, summed over the ``launches`` of the scope in
    which it counts, whose lengths are ``wall_ns``; ``share_of_time`` is the one by the other. Over all blocks
    they add up to the ``total_ns`` of ``idle``, over all causes to the ``idle_ns`` of ``block_busy``. Causes
    and uncertainties are made as there.

    Meaning: whether all blocks wait for a thing or a few do. It lies as ``idle`` does.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, IDLE_BLOCKS, Selection(layer_kind, rank, step))


# Sums of each block.
_LAUNCHES, _WALL = range(2)


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    classes = KindClasses.of(run)
    return [_state(one, idle_pieces(one, run.blocks, classes)) for one in spans]


def _state(spans: StepSpans, pieces: IdlePieces) -> State:
    """One (rank, step): a block of a launch is one instance, so that squares are sums like any other."""
    state, launches = State(), len(spans.launch_id)
    block = pieces.instances // launches
    for what, sums in ((_LAUNCHES, np.ones_like(block)), (_WALL, pieces.wall_ns)):
        state.add("blocks", spans.rank, block, what, sums=sums)
    number = KeySums.of(pieces.cause, pieces.instance)
    tallies = {
        "idle_ns": KeySums.of(pieces.instance // launches, pieces.cause, sums=pieces.length_ns),
        "squares": KeySums.of(number.keys[1] // launches, number.keys[0], sums=number.sums**2),
    }
    for name, tally in tallies.items():
        state.add(name, spans.rank, *tally.keys, sums=tally.sums)
    return state


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    tick = tick_ns(run)
    blocks, squares = state.sum_of("blocks", 3).as_dict(), state.sum_of("squares", 3).as_dict()
    idle_ns = state.sum_of("idle_ns", 3)
    names = {cause: cause_names(run.job_table, cause) for cause in np.unique(idle_ns.keys[2]).tolist()}
    rows = []
    for (rank, block, cause), total in idle_ns.as_dict().items():
        launches, wall = (blocks.get((rank, block, what), 0) for what in (_LAUNCHES, _WALL))
        rows.append(
            {
                "rank": rank,
                "block": block,
                **names[cause],
                "launches": launches,
                "wall_ns": wall,
                "total_ns": total,
                "total_uncertainty_ns": sum_uncertainty_ns(tick, squares[rank, block, cause]),
                "share_of_time": total / wall,
            }
        )
    return answer(run, _FIELDS, rows, counted)


IDLE_BLOCKS = Question("idle_blocks", 1, _accumulate, _finish)
