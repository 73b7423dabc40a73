"""Vector clocks: who knows of what. One component counts an agent's events, one a sender's visible resets.

An agent's own component is NOW, so that it knows all of its own past; whoever takes a clock over puts the
time of the event in its place. Clocks are shared between messages and never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Clock = NDArray[np.int32]
NOW = np.iinfo(np.int32).max


class ProtocolError(AssertionError):
    """A deadlock, or two accesses to one piece of memory that nothing puts in order."""


class Event(NamedTuple):
    """What an agent knew at an event, and when it was in its own time."""

    clock: Clock
    agent: int
    time: int

    def merge_into(self, clock: Clock) -> None:
        """Adds what whoever hears of the event gets to know."""
        own = max(int(clock[self.agent]), self.time)
        np.maximum(clock, self.clock, out=clock)
        clock[self.agent] = own


class Agent:
    """A warp through all launches. ``site`` names the op that it is in, for messages."""

    def __init__(self, index: int, name: str, components: int) -> None:
        self.index = index
        self.name = name
        self.site = "begin"
        self.time = 0
        self.clock: Clock = np.zeros(components, dtype=np.int32)
        self.clock[index] = NOW

    def __str__(self) -> str:
        return f"{self.name} in {self.site}"

    def event(self) -> Event:
        """The agent's next event."""
        self.time += 1
        return Event(self.clock, self.index, self.time)

    def knows(self, agent: int, time: int) -> bool:
        """Whether that event is before whatever this agent does next."""
        return bool(self.clock[agent] >= time)

    def learn(self, events: Iterable[Event]) -> None:
        """Takes over what others knew."""
        clock = self.clock.copy()
        for event in events:
            event.merge_into(clock)
        clock[self.index] = NOW
        self.clock = clock

    def take(self, clock: Clock) -> None:
        """Takes over a clock whose components are all times."""
        self.clock = np.maximum(self.clock, clock)
        self.clock[self.index] = NOW

    def know_component(self, component: int, value: int) -> None:
        """Sets one component, of those behind the agents'."""
        self.clock = self.clock.copy()
        self.clock[component] = value
