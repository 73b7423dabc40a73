"""The hardware's barriers, as csrc/sync/gpu_arch.cuh uses them.

mbarriers, whose waits know only a parity, and the group's own, at which warps meet.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

import numpy as np

from tests.protocol.clocks import Agent, Clock, Event, ProtocolError


class Blocker(Protocol):
    """What an agent waits for; str() of it says what."""

    def block(self, task: Any) -> None:
        """Has the task made ready when there is something new."""


Waiting = Generator[Blocker, None, None]


def _merged(events: list[Event]) -> Clock:
    clock = np.zeros_like(events[0].clock)
    for event in events:
        event.merge_into(clock)
    return clock


class Barrier:
    """A barrier of ``arrivals`` arrivals.

    A wait knows its phase only by parity: it passes when the phase under way has the other one. So each wait
    is told the phase that it means, and is an error when a schedule exists in which it passes on another one,
    or never: when its agent does not know the phase before to have ended, or the phase behind can end before
    it has looked. An arrival counts for the phase under way; it is an error too when that can be another one
    than it means.
    """

    def __init__(self, name: str, arrivals: int, wake: Any) -> None:
        self.name = name
        self._arrivals = arrivals
        self._wake = wake
        self._phase = 0
        self._pending: list[Event] = []
        self._ended: list[list[Event]] = []
        self._clocks: list[Clock] = []
        self._waits: dict[int, list[tuple[Agent, int]]] = {}
        self._waiters: list[Any] = []

    def __str__(self) -> str:
        return f"{self.name} (phase {self._phase}, {len(self._pending)} of {self._arrivals} arrived)"

    def block(self, task: Any) -> None:
        """Has the task made ready at the end of a phase."""
        self._waiters.append(task)

    @property
    def phase(self) -> int:
        """Phases that have ended."""
        return self._phase

    @property
    def begun(self) -> bool:
        """Whether somebody has arrived in the phase under way."""
        return bool(self._pending)

    def arrive(self, agent: Agent, phase: int) -> None:
        """One arrival in a phase; what the agent did before is known to whoever sees that end."""
        if phase != self._phase:
            raise ProtocolError(f"{self.name}: {agent} arrives for phase {phase} in phase {self._phase}")
        self._check_ended(agent, phase - 1, f"arrives for phase {phase}")
        self._pending.append(agent.event())
        if len(self._pending) < self._arrivals:
            return
        clock = _merged(self._pending)
        for waiter, time in self._waits.pop(self._phase - 1, ()):
            if clock[waiter.index] < time:
                raise ProtocolError(
                    f"{self.name}: phase {self._phase} may end, by {agent}, before {waiter.name} has seen "
                    f"the end of phase {self._phase - 1}"
                )
        self._ended.append(self._pending)
        self._clocks.append(clock)
        self._pending = []
        self._phase += 1
        self._wake(self._waiters)
        self._waiters = []

    def wait(self, agent: Agent, parity: int, phase: int) -> Waiting:
        """Until the phase under way has the other parity; ``phase`` (from 0, -1: none) is the one meant."""
        self._check_ended(agent, phase - 1, f"waits for phase {phase}")
        while self._phase % 2 == parity:
            yield self
        if self._phase - 1 != phase:
            raise ProtocolError(
                f"{self.name}: {agent} means phase {phase}, and by its parity passes on {self._phase - 1}"
            )
        if phase >= 0:
            agent.take(self._clocks[phase])
            self._waits.setdefault(phase, []).append((agent, agent.event().time))

    def _check_ended(self, agent: Agent, phase: int, does: str) -> None:
        if phase < 0:
            return
        known = phase < self._phase
        if known:
            clock = agent.clock
            for event in self._ended[phase]:
                known = known and clock[event.agent] >= event.time
        if not known:
            raise ProtocolError(f"{self.name}: {agent} {does} without knowing that phase {phase} has ended")


class Meeting:
    """The hardware barrier of a group: nobody leaves a round of it before all ``members`` are there."""

    def __init__(self, name: str, members: int, wake: Any) -> None:
        self.name = name
        self._members = members
        self._wake = wake
        self._here: list[Event] = []
        self._clocks: list[Clock] = []
        self._waiters: list[Any] = []

    def __str__(self) -> str:
        return f"{self.name} (round {len(self._clocks)}, {len(self._here)} of {self._members} are there)"

    def block(self, task: Any) -> None:
        """Has the task made ready at the end of a round."""
        self._waiters.append(task)

    @property
    def begun(self) -> bool:
        """Whether somebody waits for the others."""
        return bool(self._here)

    def meet(self, agent: Agent) -> Waiting:
        """One member; behind it all know what all did before."""
        number = len(self._clocks)
        self._here.append(agent.event())
        if len(self._here) == self._members:
            self._clocks.append(_merged(self._here))
            self._here = []
            self._wake(self._waiters)
            self._waiters = []
        while len(self._clocks) == number:
            yield self
        agent.take(self._clocks[number])
