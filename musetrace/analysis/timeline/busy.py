"""How much of its time each block works, loads, waits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import sum_uncertainty_ns
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.rows import BUSY_KINDS, LOADING_KINDS, WAITING_KINDS, jobs_of_kinds
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, counted_blocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FIELDS = [
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("launches", pa.uint64()),
    ("wall_ns", pa.int64()),
    ("wall_uncertainty_ns", pa.int64()),
    ("busy_ns", pa.int64()),
    ("busy_uncertainty_ns", pa.int64()),
    ("loading_ns", pa.int64()),
    ("loading_uncertainty_ns", pa.int64()),
    ("waiting_ns", pa.int64()),
    ("waiting_uncertainty_ns", pa.int64()),
    ("rest_ns", pa.int64()),
    ("rest_uncertainty_ns", pa.int64()),
    ("idle_ns", pa.int64()),
    ("idle_uncertainty_ns", pa.int64()),
    ("observed", pa.float64()),
]


def block_busy(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (rank, block): how its time divides, summed over the launches in scope.

    ``wall_ns`` is the sum of the launches' lengths on that rank (first to last time that was stamped).
    ``busy_ns`` is the time in which at least one warp of the block is in a compute, send, receive or sync
    job; jobs that the table does not know count as busy. ``idle_ns = wall_ns - busy_ns`` exactly. Of the
    idle time, ``loading_ns`` is covered by a load or prefetch, ``waiting_ns`` by waits only, and ``rest_ns``
    by no job at all. A block of a launch counts when it left a sound span, or when every block
    of the launch reported. Each ``*_uncertainty_ns`` is that of the sum over the launches, and grows with the
    number of pieces that it is made of. ``observed`` is the share of what the rank did that was recorded, at
    least.

    Meaning: how far the block is from being always at work. It lies where a job's stamps do not enclose its
    work (a load is stamped at issue; its bytes arrive later), and where launches overlap (PDL): their
    lengths are added, so wall can exceed the time of day. Busy says that one warp works, not that the
    tensor cores do. What a span covers outside its launch is cut off. Spans with a flag are left out
    (metadata ``ignored``), so their time shows as idle.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, BLOCK_BUSY, Selection(layer_kind, rank, step))


# Sums of each block. Loading and waiting include the classes before them.
_LAUNCHES, _WALL, _BUSY, _LOADING, _WAITING = range(5)
# Sums of squares of each block; the wall's are the launches.
_SQUARED = ("busy", "loading", "waiting", "rest", "idle")


def _first_class(run: RunLike) -> npt.NDArray[np.uint8]:
    """u8[65536] by job id: 0 busy, 1 loading, 2 waiting, 3 none of these."""
    first = np.full(1 << 16, 3, dtype=np.uint8)
    for number, kinds in enumerate((BUSY_KINDS, LOADING_KINDS, WAITING_KINDS)):
        first[jobs_of_kinds(run.job_table, kinds)] = number
    return first


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    first_class = _first_class(run)
    return [_state(one, run.blocks, first_class) for one in spans]


def _state(spans: StepSpans, blocks: int, first_class: npt.NDArray[np.uint8]) -> State:
    """One (rank, step): ``sums`` by (rank, block, what), ``squares`` by (rank, block, class).

    Squares are of the number of differences of stamps that each launch adds to the block's time.
    """
    state = State()
    walls = spans.launch_end - spans.launch_begin
    counted = counted_blocks(spans, blocks)
    covered, pieces, has_own = spans.by_instance(blocks).busy_unions(first_class)
    times = [counted.sum(axis=0), walls @ counted, *covered.reshape(3, blocks, -1).sum(axis=2)]
    squares = _squares(pieces, has_own, counted)
    for name, values in (("sums", np.stack(times)), ("squares", squares)):
        what, block = np.indices(values.shape)
        state.add(name, spans.rank, block.ravel(), what.ravel(), sums=values.ravel())
    return state


def _squares(pieces: Ints, has_own: npt.NDArray[np.uint8], counted: Bools) -> Ints:
    """int64[len(_SQUARED), blocks], from the pieces of each class's union in each (block, launch)."""
    busy, with_loads, with_waits = pieces
    differences = (
        busy,
        np.where(has_own[1], busy + with_loads, 0),
        np.where(has_own[2], with_loads + with_waits, 0),
        with_waits + 1,
        busy + 1,
    )
    launches, blocks = counted.shape
    return np.stack(
        [(number.reshape(blocks, launches) ** 2 * counted.T).sum(axis=1) for number in differences]
    )


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    tick = tick_ns(run)
    squares = state.sum_of("squares", 3).as_dict()
    sums = state.sum_of("sums", 3).as_dict()
    # A block that counts in no launch has no row.
    places = [(rank, block) for rank, block, what in sums if what == _LAUNCHES]
    rows = []
    for place in places:
        of_block = [sums.get((*place, what), 0) for what in range(5)]
        of_squares = [squares.get((*place, what), 0) for what in range(len(_SQUARED))]
        times = _times(*of_block[1:])
        rows.append(
            {
                "rank": place[0],
                "block": place[1],
                "launches": of_block[_LAUNCHES],
                **times,
                **_uncertainties([of_block[_LAUNCHES], *of_squares], tick),
                "observed": counted.seen[place[0]].share,
            }
        )
    return answer(run, _FIELDS, rows, counted)


def _times(wall: int, busy: int, loading: int, waiting: int) -> dict[str, int]:
    return {
        "wall_ns": wall,
        "busy_ns": busy,
        "loading_ns": loading - busy,
        "waiting_ns": waiting - loading,
        "rest_ns": wall - waiting,
        "idle_ns": wall - busy,
    }


def _uncertainties(squares: list[int], tick: int | None) -> dict[str, int | None]:
    names = ("wall", *_SQUARED)
    return {
        f"{name}_uncertainty_ns": sum_uncertainty_ns(tick, of)
        for name, of in zip(names, squares, strict=True)
    }


BLOCK_BUSY = Question("block_busy", 1, _accumulate, _finish)
