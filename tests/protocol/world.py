"""Runs launches of the layer kernel: every warp of every block of every rank is an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.protocol.barriers import Waiting
from tests.protocol.clocks import NOW, Agent, ProtocolError
from tests.protocol.geometry import BLOCK_WARPS, FIRST_GROUP_WARP, SENDER, Geometry, Launch
from tests.protocol.schedule import Device, Schedule, Task
from tests.protocol.slots import Slots
from tests.protocol.warp import Block, Warp

Program = Callable[[Warp], Waiting]


@dataclass
class _Device(Device):
    """With the blocks of its launch."""

    blocks: list[Block] = field(default_factory=list)

    def end(self) -> None:
        """See :class:`Device`."""
        for block in self.blocks:
            block.check_end()


class World:
    """All ranks of a model.

    ``program``: what a warp does in its launch. ``devices``: the ranks of each device; by default all are on
    one. Ranks of one device have each launch together. Between devices nothing is in order but by slots, once
    the hosts have met before the first launch. ``seed`` shuffles who runs first.
    """

    def __init__(
        self,
        geometry: Geometry,
        program: Program,
        *,
        warp: type[Warp] = Warp,
        devices: Sequence[Sequence[int]] | None = None,
        seed: int | None = None,
    ) -> None:
        self.g = geometry
        self._program = program
        self._warp = warp
        self._devices = [_Device(ranks) for ranks in devices or [range(geometry.ranks)]]
        self._schedule = Schedule(self._devices, self._begin, seed)
        self._agents_of_rank = geometry.blocks * BLOCK_WARPS
        self._agent_count = geometry.ranks * self._agents_of_rank
        components = self._agent_count + geometry.ranks * geometry.blocks
        self.agents = [Agent(i, self._name(i), components) for i in range(self._agent_count)]
        self._exchange = [
            [
                Slots(
                    f"rank {rank} copy {copy}",
                    geometry.regions,
                    geometry.words,
                    self._agent_count,
                    self._schedule.make_ready,
                )
                for rank in range(geometry.ranks)
            ]
            for copy in range(2)
        ]
        self._launches: Sequence[Launch] = ()

    def run(self, launches: Sequence[Launch]) -> None:
        """One launch after the other.

        Raises:
            ProtocolError: a deadlock, or accesses that nothing puts in order.
        """
        self._launches = launches
        blocked = self._schedule.run(len(launches))
        if blocked:
            raise ProtocolError(self._deadlock(blocked))

    def copies_of(self, launch: int) -> tuple[list[Slots], list[Slots]]:
        """All ranks' exchange of a launch, and the copy that is idle in it."""
        return self._exchange[launch % 2], self._exchange[(launch + 1) % 2]

    def _begin(self, device: _Device) -> list[Task]:
        number = device.next_launch
        self._join(device.ranks)
        device.blocks = []
        tasks: list[Task] = []
        active, idle = self.copies_of(number)
        for rank in device.ranks:
            active[rank].forget_launch()
            idle[rank].forget_launch()
            for block in range(self.g.blocks):
                tasks += self._block_tasks(device, (rank, block), (active, idle[rank]))
        return tasks

    def _block_tasks(
        self, device: _Device, place: tuple[int, int], exchange: tuple[list[Slots], Slots]
    ) -> list[Task]:
        rank, block = place
        launch = self._launches[device.next_launch]
        first = rank * self._agents_of_rank + block * BLOCK_WARPS
        shared = Block(f"rank {rank} block {block}", first, self._schedule.make_ready, self._name)
        device.blocks.append(shared)
        resets = (self._agent_count + rank * self.g.blocks + block, device.next_launch + 1)
        tasks = []
        for number in range(BLOCK_WARPS):
            agent = self.agents[first + number]
            warp = self._warp(agent, self.g, launch, shared, (rank, block, number), exchange, resets)
            tasks.append(Task(agent, self._program(warp), device))
        return tasks

    def _join(self, ranks: Sequence[int]) -> None:
        """A launch boundary of these ranks: all before it is done, and visible to all behind it."""
        count = self._agents_of_rank
        agents = [agent for rank in ranks for agent in self.agents[rank * count : (rank + 1) * count]]
        clock = np.zeros_like(self.agents[0].clock)
        for agent in agents:
            agent.event().merge_into(clock)
        for rank in ranks:
            number = max(device.next_launch for device in self._devices if rank in device.ranks)
            first = self._agent_count + rank * self.g.blocks
            clock[first : first + self.g.blocks] = number
        for agent in agents:
            agent.clock = clock.copy()
            agent.clock[agent.index] = NOW

    def _name(self, agent: int) -> str:
        rank, rest = divmod(agent, self._agents_of_rank)
        block, warp = divmod(rest, BLOCK_WARPS)
        group = f"group warp {warp - FIRST_GROUP_WARP}"
        role = group if warp > SENDER else ("loader", "input 1", "input 2", "sender")[warp]
        return f"rank {rank} block {block} {role}"

    @staticmethod
    def _deadlock(blocked: list[Task]) -> str:
        """Who waits for what: one line for all warps that wait in one op for one kind of thing."""
        lines: dict[tuple[str, str], list[Task]] = {}
        for task in blocked:
            lines.setdefault((task.agent.site, str(task.blocker).partition(" of ")[2]), []).append(task)
        return f"deadlock: {len(blocked)} warps wait\n" + "\n".join(
            f"  {len(tasks)} in {site}, such as {tasks[0].agent.name}, for {tasks[0].blocker}"
            for (site, _), tasks in lines.items()
        )
