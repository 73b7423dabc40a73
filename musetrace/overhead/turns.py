"""Runs the sides of a measurement in turns, and keeps what each took and made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from musetrace.overhead.outputs import OutputCheck
from musetrace.overhead.schedule import TURNS_OF_BLOCK, abba_blocks
from musetrace.step_output import Output

WARM_UP = "warm-up"


@dataclass(frozen=True)
class StepDone:
    """One step: ns by measure (``launches``, ``step``), its output, and its launches where they are known."""

    times_ns: Mapping[str, float]
    output: Output | None
    launches: int | None


class Side(Protocol):
    """A build, as the measurement sees it."""

    name: str

    def step(self, number: int) -> StepDone:
        """Run step ``number`` of a turn to its end; the same number is the same work on every side."""

    def rest(self) -> None:
        """After a turn, until nothing that it started goes on."""


@dataclass(frozen=True)
class Schedule:
    """How much is run.

    ``rounds`` of a block for each side, ``steps`` one after the other in each turn, ``warm_up`` turns of each
    side before.
    """

    rounds: int
    steps: int
    warm_up: int


@dataclass(frozen=True)
class Turn:
    """Means over the steps of a turn, ns by measure. ``beside`` is the side that the block is about."""

    round: int
    beside: str
    place: int
    side: str
    times_ns: dict[str, float]


@dataclass
class LaunchCheck:
    """Counts steps and launches, and says where a side first made another number of launches."""

    steps: dict[str, int] = field(default_factory=dict)
    launches: dict[str, int] = field(default_factory=dict)
    first_differences: dict[str, str] = field(default_factory=dict)
    _references: dict[int, tuple[str, int | None]] = field(default_factory=dict)

    def see(self, side: str, round_: str, step: int, launches: int | None) -> None:
        """Take a step of ``side``; ``round_`` says when it was made."""
        self.steps[side] = self.steps.get(side, 0) + 1
        if launches is not None:
            self.launches[side] = self.launches.get(side, 0) + launches
        of, expected = self._references.setdefault(step, (side, launches))
        if launches != expected and side not in self.first_differences:
            self.first_differences[side] = (
                f"{round_}, step {step}: {_many(launches)}, where {of} made {_many(expected)}"
            )

    def per_step(self, side: str) -> float | None:
        """Launches of a step of ``side``, the mean; None where they are not known."""
        made = self.launches.get(side)
        return None if made is None else made / self.steps[side]

    @property
    def equal(self) -> bool:
        """Whether all sides made the same launches."""
        return not self.first_differences

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "equal": self.equal,
            "steps": dict(self.steps),
            "launches": dict(self.launches),
            "first_differences": dict(self.first_differences),
        }


def _many(launches: int | None) -> str:
    return "an unknown number of launches" if launches is None else f"{launches:,} launches"


@dataclass
class Turns:
    """All measured turns of some sides beside a baseline, and the two checks, which count the warm-up too."""

    baseline: str
    sides: tuple[str, ...]
    turns: list[Turn] = field(default_factory=list)
    outputs: OutputCheck = field(default_factory=OutputCheck)
    counts: LaunchCheck = field(default_factory=LaunchCheck)

    def of_side(self, side: str, measure: str) -> npt.NDArray[np.float64]:
        """All times of a side, ns [turns]; the baseline has some beside each other side."""
        return np.array([turn.times_ns[measure] for turn in self.turns if turn.side == side])

    def beside(self, side: str, measure: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Times of a side and of its baseline, ns [blocks, 2] each, neighbours at the same place."""
        pairs = [
            np.array(
                [turn.times_ns[measure] for turn in self.turns if turn.beside == side and turn.side == name]
            ).reshape(-1, TURNS_OF_BLOCK // 2)
            for name in (side, self.baseline)
        ]
        return pairs[0], pairs[1]


def run_turns(
    sides: Sequence[Side],
    schedule: Schedule,
    when_warm: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Turns:
    """Run the schedule; the first of the sides is the baseline of all others.

    Args:
        sides: at least two, names all different.
        when_warm: called between the warm-up and the first round.
        progress: called with (rounds done, rounds in all).
    """
    by_name = {side.name: side for side in sides}
    found = Turns(sides[0].name, tuple(side.name for side in sides[1:]))
    for number in range(schedule.warm_up):
        for side in sides:
            _run_turn(side, f"{WARM_UP} {number}", schedule.steps, found)
    when_warm()
    progress(0, schedule.rounds)
    done = 0
    for block in abba_blocks(found.baseline, found.sides, schedule.rounds):
        if block.round != done:
            done = block.round
            progress(done, schedule.rounds)
        for place, name in enumerate(block.order):
            times_ns = _run_turn(by_name[name], f"round {block.round}", schedule.steps, found)
            found.turns.append(Turn(block.round, block.side, place, name, times_ns))
    progress(schedule.rounds, schedule.rounds)
    return found


def _run_turn(side: Side, when: str, steps: int, found: Turns) -> dict[str, float]:
    """The steps of a turn back to back; their outputs are looked at behind it."""
    done = [side.step(number) for number in range(steps)]
    side.rest()
    for number, step in enumerate(done):
        found.outputs.see(side.name, when, number, step.output)
        found.counts.see(side.name, when, number, step.launches)
    return {name: sum(step.times_ns[name] for step in done) / steps for name in done[0].times_ns}
