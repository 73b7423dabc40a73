"""Runs warps in turn: those of a device launch by launch, devices beside each other."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.protocol.barriers import Blocker, Waiting
from tests.protocol.clocks import Agent


@dataclass
class Device:
    """Ranks whose launches begin and end together."""

    ranks: Sequence[int]
    next_launch: int = 0
    running: int = 0
    tasks: list[Task] = field(default_factory=list)

    def end(self) -> None:
        """All tasks of a launch have ended."""


@dataclass
class Task:
    """A warp in its launch; ``blocker`` is what it waits for."""

    agent: Agent
    steps: Waiting
    device: Device
    blocker: Blocker | None = None


D = TypeVar("D", bound=Device)


class Schedule(Generic[D]):
    """Who runs when.

    ``begin`` makes the tasks of a device's next launch. ``seed`` shuffles who runs first.
    """

    def __init__(
        self, devices: Sequence[D], begin: Callable[[D], list[Task]], seed: int | None = None
    ) -> None:
        self._devices, self._begin = devices, begin
        self._random = None if seed is None else random.Random(seed)
        self._ready: deque[Task] = deque()

    def make_ready(self, tasks: Sequence[Task]) -> None:
        """They can go on."""
        self._ready.extend(tasks)

    def run(self, launches: int) -> list[Task]:
        """So many launches on every device. Returns the tasks that wait for what never comes."""
        for device in self._devices:
            device.next_launch = 0
        self._begin_launches(launches)
        while self._ready:
            if self._random is not None:
                self._ready.rotate(self._random.randrange(len(self._ready)))
            self._step(self._ready.popleft())
            self._begin_launches(launches)
        return [task for device in self._devices for task in device.tasks if task.blocker is not None]

    def _step(self, task: Task) -> None:
        try:
            task.blocker = next(task.steps)
            task.blocker.block(task)
        except StopIteration:
            task.blocker = None
            task.device.running -= 1
            if task.device.running == 0:
                task.device.end()

    def _begin_launches(self, launches: int) -> None:
        for device in self._devices:
            if device.running == 0 and device.next_launch < launches:
                device.tasks = self._begin(device)
                device.next_launch += 1
                device.running = len(device.tasks)
                self.make_ready(device.tasks)
