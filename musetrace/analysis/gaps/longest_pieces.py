"""The longest pieces of idle time of each cause: kept of every step, so that a run's are found at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.gaps.idle_pieces import IdlePieces, KindClasses, idle_pieces
from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]

MOST_KEPT = 10  # of each cause in each step of a rank

# Keys that share a column: ids of launches have 16 bits.
_LAUNCH_BITS, _NUMBER_BITS = 16, 32


@dataclass(frozen=True)
class Piece:
    """A piece of idle time: the one with the number ``at`` of a block of a launch, in the order of time.

    ``launch`` is the launch's id; ``cause`` as ``IdlePieces`` numbers it.
    """

    cause: int
    rank: int
    step: int
    launch: int
    block: int
    at: int
    length_ns: int


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    classes = KindClasses.of(run)
    return [_state(one, idle_pieces(one, run.blocks, classes)) for one in spans]


def _state(spans: StepSpans, pieces: IdlePieces) -> State:
    """One (rank, step): lengths by cause, step, rank and launch, block and the piece's number."""
    state, launches = State(), len(spans.launch_id)
    launch, block = spans.launch_id[pieces.instance % launches], pieces.instance // launches
    at = numbers_within(pieces.instance)
    chosen = longest_of_each(pieces.cause, pieces.length_ns, (launch, block, at), MOST_KEPT)
    state.add(
        "longest",
        *(pieces.cause[chosen], spans.step),
        (spans.rank << _LAUNCH_BITS) + launch[chosen],
        (block[chosen] << _NUMBER_BITS) + at[chosen],
        sums=pieces.length_ns[chosen],
    )
    return state


def numbers_within(group: Ints) -> Ints:
    """0, 1, 2... within each stretch of equal entries."""
    every = np.arange(len(group))
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    numbers: Ints = every - np.repeat(starts, np.diff(starts, append=len(group)))
    return numbers


def longest_of_each(cause: Ints, length_ns: Ints, order: tuple[Ints, ...], most: int) -> Ints:
    """The places of the longest entries of each cause, at most ``most``; of equals the first in ``order``."""
    by_cause = np.argsort(cause, kind="stable")
    starts = np.flatnonzero(np.diff(cause[by_cause], prepend=-1))
    found = [np.zeros(0, dtype=np.int64)]
    for mine in np.split(by_cause, starts)[1:]:
        if len(mine) > most:
            least = np.partition(length_ns[mine], -most)[-most]
            mine = mine[length_ns[mine] >= least]
        keys = [column[mine] for column in reversed(order)]
        found.append(mine[np.lexsort((*keys, -length_ns[mine]))][:most])
    return np.concatenate(found)


def longest(state: State, causes: Sequence[int], most: int) -> list[Piece]:
    """The longest pieces of some causes together; of equals the first by step, rank, launch, block, time."""
    tally = state.sum_of("longest", 4)
    tally = tally.where(np.isin(tally.keys[0], list(causes)))
    cause, step, launch, at = tally.keys
    # Wait jobs of one name are one cause.
    every = np.zeros(len(tally), dtype=np.int64)
    chosen = longest_of_each(every, tally.sums, (step, launch, at), most)
    rank, launch = launch >> _LAUNCH_BITS, launch & ((1 << _LAUNCH_BITS) - 1)
    block, at = at >> _NUMBER_BITS, at & ((1 << _NUMBER_BITS) - 1)
    columns = [column[chosen].tolist() for column in (cause, rank, step, launch, block, at, tally.sums)]
    return [Piece(*row) for row in zip(*columns, strict=True)]


LONGEST = Sums("idle_longest", 1, _accumulate)
