"""Runs tree and accept launches: warps of all ranks send parts of logits to all GPUs (``step/parts.h``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.protocol.barriers import Waiting
from tests.protocol.clocks import NOW, Agent, ProtocolError
from tests.protocol.schedule import Device, Schedule, Task
from tests.protocol.slots import Slots

ROWS, BLOCKS, WARPS = 4, 2, 2
# Of a part: a word for each of three candidates, and a sum.
PLACES, WORDS = 3, 4
PARTS_OF_RANK = 3

Numbers = Sequence[int] | range
Place = tuple[int, int, int]  # rank, block, warp


@dataclass(frozen=True)
class Search:
    """A launch: ``count`` candidates for each row from ``first_row`` on, and a sum beside them or not."""

    first_row: int
    count: int
    has_sum: bool

    @property
    def words(self) -> list[int]:
        """Those of a part that are sent."""
        return [*range(self.count), *([PLACES] if self.has_sum else [])]


TREE, CHAIN, ACCEPT = Search(1, PLACES, True), Search(1, 1, True), Search(0, 1, False)


@dataclass
class Gpu(Device):
    """With both copies of its parts."""

    copies: list[Slots] = field(default_factory=list)


class Warp:
    """One warp in one launch; tests plant errors in what it does."""

    def __init__(
        self, world: PartsWorld, agent: Agent, gpu: Gpu, place: tuple[int, int, int], launch: Search
    ):
        self.world, self.agent, self.gpu, self.launch = world, agent, gpu, launch
        self.rank, self.block, self.warp = place
        self.copy = gpu.next_launch % 2

    def run(self) -> Waiting:
        """``search`` of step/best.cuh."""
        rows = range(self.launch.first_row, ROWS)
        items = [(row, part) for row in rows for part in range(PARTS_OF_RANK)]
        for row, part in items[self.warp * BLOCKS + self.block :: BLOCKS * WARPS]:
            self.serve(row, part)
        if self.rank != self.gpu.ranks[0] or self.block != 0:
            return
        self.agent.site = "merge"
        for row in range(self.launch.first_row + self.warp, ROWS, WARPS):
            parts = range(self.world.ranks * PARTS_OF_RANK)
            where = self.world.words(row, self.launch.words, parts)
            yield from self.gpu.copies[self.copy].receive(self.agent, where)

    def serve(self, row: int, part: int) -> None:
        """An item: the warp's share of the idle copy made empty, then its part sent."""
        for idle in range(0 if row == self.launch.first_row else row, row + 1):
            self.empty(idle, part)
        self.fence()
        self.send(row, part)

    def empty(self, row: int, part: int) -> None:
        """What ``empty_parts`` does."""
        self.agent.site = "empty"
        here, among = len(self.gpu.ranks), self.gpu.ranks.index(self.rank)
        parts = range(among * PARTS_OF_RANK + part, self.world.ranks * PARTS_OF_RANK, here * PARTS_OF_RANK)
        where = self.world.words(row, range(WORDS), parts)
        self.empty_words(where)

    def empty_words(self, where: NDArray[np.int64]) -> None:
        """Words of the idle copy."""
        self.world.resets[self.agent.index] += 1
        number = self.world.resets[self.agent.index]
        self.gpu.copies[1 - self.copy].reset(self.agent, where, self.agent.index, number)

    def fence(self) -> None:
        """Where there are peers: what the warp made empty is visible before what it sends."""
        if len(self.world.gpus) > 1:
            number = self.world.resets[self.agent.index]
            self.agent.know_component(len(self.world.agents) + self.agent.index, number)

    def send(self, row: int, part: int) -> None:
        """What ``send_part`` does."""
        self.agent.site = "send"
        for gpu in self.world.gpus:
            for word in self.launch.words:  # of a lane each
                where = self.world.words(row, [word], [self.rank * PARTS_OF_RANK + part])
                gpu.copies[self.copy].send(self.agent, where)


class PartsWorld:
    """All ranks of a model, by GPU. ``seed`` shuffles who runs first."""

    def __init__(
        self, gpus: Sequence[Sequence[int]], warp: type[Warp] = Warp, seed: int | None = None
    ) -> None:
        self.ranks = sum(map(len, gpus))
        self.places: list[Place] = [
            (rank, block, number)
            for rank in range(self.ranks)
            for block in range(BLOCKS)
            for number in range(WARPS)
        ]
        count = len(self.places)
        self.agents = [
            Agent(index, f"rank {rank} block {block} warp {number}", 2 * count)
            for index, (rank, block, number) in enumerate(self.places)
        ]
        self.resets = [0] * count  # by each, so far
        self._warp = warp
        self._launches: Sequence[Search] = ()
        self.gpus = [Gpu(ranks) for ranks in gpus]
        self._schedule = Schedule(self.gpus, self._begin, seed)
        for number, gpu in enumerate(self.gpus):
            gpu.copies = [self._copy(number, copy) for copy in (0, 1)]

    def _copy(self, gpu: int, copy: int) -> Slots:
        words = ROWS * WORDS * self.ranks * PARTS_OF_RANK
        name = f"GPU {gpu} copy {copy}"
        return Slots(name, [(0, "parts")], words, len(self.agents), self._schedule.make_ready)

    def words(self, row: int, words: Numbers, parts: Numbers) -> NDArray[np.int64]:
        """Where they stand in a copy: [row][word][part]."""
        all_parts = self.ranks * PARTS_OF_RANK
        return np.array([(row * WORDS + word) * all_parts + part for word in words for part in parts])

    def run(self, launches: Sequence[Search]) -> None:
        """One launch after the other on every GPU; between GPUs nothing is in order but by slots.

        Raises:
            ProtocolError: a deadlock, or accesses that nothing puts in order.
        """
        self._launches = launches
        blocked = self._schedule.run(len(launches))
        if blocked:
            raise ProtocolError(f"deadlock: {blocked[0].agent} waits for {blocked[0].blocker}")

    def _begin(self, gpu: Gpu) -> list[Task]:
        """All before a launch of a GPU is done, and visible to all of it."""
        mine = [agent for agent in self.agents if self.places[agent.index][0] in gpu.ranks]
        clock = np.zeros_like(mine[0].clock)
        for agent in mine:
            agent.event().merge_into(clock)
            clock[len(self.agents) + agent.index] = self.resets[agent.index]
        for copy in gpu.copies:
            copy.forget_launch()
        tasks = []
        for agent in mine:
            agent.clock = clock.copy()
            agent.clock[agent.index] = NOW
            launch = self._launches[gpu.next_launch]
            warp = self._warp(self, agent, gpu, self.places[agent.index], launch)
            tasks.append(Task(agent, warp.run(), gpu))
        return tasks
