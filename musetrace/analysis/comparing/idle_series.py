"""Idle time of a block by cause, and its busy time: a number of each for every step of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.clock_quality import sum_uncertainty_ns
from musetrace.analysis.comparing.step_series import Name, Series
from musetrace.analysis.gaps.idle import cause_names
from musetrace.analysis.kept_sums.cubes import states_by_kind
from musetrace.analysis.kept_sums.key_sums import nothing_summed
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.step_sums import STEP_SUMS, WALL, blocks_of, launches_of
from musetrace.analysis.spans.run_like import RunLike

BUSY, IDLE = "busy", "idle"


@dataclass(frozen=True)
class IdleSeries:
    """For every step that has launches of a kind, ns per block and launch.

    ``causes`` by (kind of launch, cause, op, wait, awaited job), as ``idle`` names them and "" where it does
    not; ``by_rank`` the same of each rank. ``times`` by ("busy" or "idle", kind of launch). ``nothing``, by
    kind of launch: zeros, for a cause that the run does not have.
    """

    causes: dict[Name, Series] = field(default_factory=dict)
    by_rank: dict[tuple[int, Name], Series] = field(default_factory=dict)
    times: dict[Name, Series] = field(default_factory=dict)
    nothing: dict[str, Series] = field(default_factory=dict)

    def cause(self, name: Name, rank: int | None = None) -> Series:
        """The series of a cause, on all ranks or on one."""
        found = self.causes.get(name) if rank is None else self.by_rank.get((rank, name))
        return found or self.nothing[name[0]]


def idle_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> IdleSeries:
    """The idle and busy time of a block in a launch.

    A step's number is the mean over ranks x launches of the kind x blocks that count (``idle`` says which,
    and what a cause is). Idle and busy time of a kind add up to the mean length of its launches. What the
    clock leaves open is that of a sum of differences (``clock_quality``), one for each piece, by the number
    of blocks, in the step where that is most.
    """
    found = IdleSeries()
    for kind, states in states_by_kind(run, STEP_SUMS, ranks, layer_kind).states.items():
        launches = launches_of(states)
        of_ranks = {rank: _Times(state, launches, tick_ns(run)) for rank, state in states.items()}
        if of_ranks[None].blocks:
            _enter(found, run, kind, of_ranks)
    return found


def _enter(found: IdleSeries, run: RunLike, kind: str, of_ranks: Mapping[int | None, _Times]) -> None:
    every = of_ranks[None]
    idle = every.idle()
    found.times[BUSY, kind], found.times[IDLE, kind] = every.busy(), idle
    # What is shorter than a tick may have been read as nothing.
    found.nothing[kind] = Series(np.zeros_like(idle.step_ns), every.tick, every.launches, 0)
    for cause in every.causes():
        named = cause_names(run.job_table, cause)
        name = (kind, *(named[of] or "" for of in ("cause", "op", "wait", "awaits")))
        for rank, times in of_ranks.items():
            if rank is None:
                found.causes[name] = times.cause(cause)
            elif times.blocks:
                found.by_rank[rank, name] = times.cause(cause)


class _Times:
    """The steps of one kind of launch, on one rank or on all."""

    def __init__(self, state: State, launches: int, tick: int | None) -> None:
        self.blocks = blocks_of(state)
        self.launches = launches
        self._state = state
        self.tick = tick
        self._idle = state.sum_of("idle", 2).as_dict()
        self._pieces = state.sum_of("idle_pieces", 2).as_dict()
        self._squares = _squares(state, "idle", 2)

    def causes(self) -> list[int]:
        """The numbers of all causes, growing."""
        return sorted({cause for _, cause in self._idle})

    def cause(self, cause: int) -> Series:
        """Idle time of a cause."""
        idle, pieces, squares = (
            {step: of.get((step, cause), 0) for step in self.blocks}
            for of in (self._idle, self._pieces, self._squares)
        )
        return self._series(idle, pieces, squares)

    def idle(self) -> Series:
        """Idle time of all causes."""
        squares = _squares(self._state, "all_idle", 1)
        return self._series(
            self._of_all(self._idle),
            self._of_all(self._pieces),
            {step: squares.get((step,), 0) for step in self.blocks},
        )

    def busy(self) -> Series:
        """Time that is not idle: no more is left open in it than in both that it is the difference of."""
        whole = self._state.sum_of("blocks", 2).as_dict()
        idle, pieces = self._of_all(self._idle), self._of_all(self._pieces)
        squares = _squares(self._state, "wall_and_idle", 1)
        return self._series(
            {step: whole.get((step, WALL), 0) - idle[step] for step in self.blocks},
            {step: pieces[step] + blocks for step, blocks in self.blocks.items()},
            {step: squares.get((step,), 0) for step in self.blocks},
        )

    def _of_all(self, sums: Mapping[tuple[int, ...], int]) -> dict[int, int]:
        """By step, of all causes."""
        found = dict.fromkeys(self.blocks, 0)
        for (step, _), number in sums.items():
            found[step] += number
        return found

    def _series(
        self, total_ns: Mapping[int, int], pieces: Mapping[int, int], squares: Mapping[int, int]
    ) -> Series:
        """The mean over blocks, in each step that has some."""
        means = [_mean(total_ns[step], blocks) for step, blocks in self.blocks.items()]
        offs = [
            -(-(sum_uncertainty_ns(self.tick, squares[step]) or 0) // blocks)
            for step, blocks in self.blocks.items()
        ]
        off = None if self.tick is None else max(offs)
        return Series(np.array(means, np.int64), off, self.launches, sum(pieces.values()))


def _squares(state: State, name: str, width: int) -> dict[tuple[int, ...], int]:
    return state.squares.get(name, nothing_summed(width)).as_dict()


def _mean(total_ns: int, blocks: int) -> int:
    """To the nearest ns; a half is rounded up."""
    return (2 * total_ns + blocks) // (2 * blocks)
