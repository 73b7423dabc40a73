"""In which order the sides of a measurement take their turns.

Beside each side stands a baseline: a block of four turns is ABBA, baseline, side, side, baseline, and the
next round's is BAAB. So clocks and temperatures that drift meet both alike, and neither is always the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TURNS_OF_BLOCK = 4


@dataclass(frozen=True)
class Block:
    """Four turns, ``baseline`` and ``side`` twice each; turn 0 is paired with 1, turn 2 with 3."""

    round: int
    side: str
    order: tuple[str, str, str, str]


def abba_blocks(baseline: str, sides: Sequence[str], rounds: int) -> Iterator[Block]:
    """A block for each side in each round; in each round another side comes first.

    Args:
        baseline: what each side is compared with.
        sides: at least one, none of them the baseline.
        rounds: how often.
    """
    for number in range(rounds):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            a, b = (baseline, side) if number % 2 == 0 else (side, baseline)
            yield Block(number, side, (a, b, b, a))
