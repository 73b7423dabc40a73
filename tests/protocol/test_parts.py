"""Parts of the logits between GPUs: no deadlock, no error of reuse in any order; planted ones are named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.clocks import ProtocolError
from tests.protocol.parts import ACCEPT, CHAIN, TREE, PartsWorld, Search, Warp

STEPS = [TREE, ACCEPT] * 4
GPUS: list[list[list[int]]] = [
    *([[0]], [[0, 1]], [[0], [1]]),
    *([[0, 1], [2, 3]], [[0], [1], [2], [3]], [[0, 1, 2], [3]]),
]
KINDS = st.sampled_from([TREE, CHAIN, ACCEPT])


@pytest.mark.parametrize("gpus", GPUS)
def test_steps_on_any_gpus(gpus: list[list[int]]) -> None:
    PartsWorld(gpus).run(STEPS)


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, max_size=8), st.sampled_from(GPUS), st.integers(0, 1 << 30))
def test_launches_in_any_order_of_any_warps(launches: list[Search], gpus: list[list[int]], seed: int) -> None:
    PartsWorld(gpus, seed=seed).run(launches)


def fails(what: str, warp: type[Warp], gpus: Sequence[Sequence[int]] = ((0,), (1,))) -> None:
    """In whatever order the warps run."""
    for seed in range(8):
        with pytest.raises(ProtocolError, match=what):
            PartsWorld(gpus, warp, seed).run(STEPS)


def test_no_fence_between_gpus() -> None:
    class Unfenced(Warp):
        def fence(self) -> None:
            pass

    PartsWorld([[0, 1]], Unfenced).run(STEPS)
    fails("before the reset by sender .* is visible", Unfenced)


def test_a_part_that_is_sent_before_the_reset() -> None:
    class Early(Warp):
        def serve(self, row: int, part: int) -> None:
            self.send(row, part)
            for idle in range(0 if row == self.launch.first_row else row, row + 1):
                self.empty(idle, part)
            self.fence()

    PartsWorld([[0, 1]], Early).run(STEPS)
    fails("before the reset by sender .* is visible|sends to a slot that is full", Early)


def test_the_row_that_trees_have_not_is_never_made_empty() -> None:
    class Lazy(Warp):
        def empty(self, row: int, part: int) -> None:
            if row >= self.launch.first_row:
                super().empty(row, part)

    fails("sends to a slot that is full", Lazy, [[0]])


def test_parts_of_peers_are_never_made_empty() -> None:
    class Selfish(Warp):
        def empty(self, row: int, part: int) -> None:
            where = self.world.words(row, range(4), [self.rank * 3 + part])
            self.empty_words(where)

    PartsWorld([[0, 1]], Selfish).run(STEPS)
    fails("sends to a slot that is full", Selfish)


@pytest.mark.parametrize("gpus", [[[0, 1]], [[0], [1]]])
def test_one_copy_alone(gpus: list[list[int]]) -> None:
    class One(Warp):
        def __init__(self, *what: object) -> None:
            super().__init__(*what)  # type: ignore[arg-type]
            self.copy = 0
            self.gpu.copies[1] = self.gpu.copies[0]

    fails("makes it empty while|sends to a slot that is full|before the reset|deadlock", One, gpus)


def test_a_word_that_is_sent_and_not_received() -> None:
    """It may come when the copy is empty again."""

    class Hasty(Warp):
        def run(self):  # type: ignore[no-untyped-def]
            self.launch = Search(self.launch.first_row, 1, False)
            yield from super().run()

        def send(self, row: int, part: int) -> None:
            self.launch, received = TREE, self.launch
            super().send(row, part)
            self.launch = received

    fails("may still send to it|sends to a slot that is full", Hasty)


def test_a_part_that_is_lost_is_a_deadlock() -> None:
    class Lost(Warp):
        def send(self, row: int, part: int) -> None:
            if (self.rank, row, part) != (1, 2, 1):
                super().send(row, part)

    fails("deadlock: rank . block 0 warp . in merge waits for .* slots of parts of GPU", Lost)
