"""A copy of a rank's exchange, word by word: slots that are empty, are sent once, and made empty again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.protocol.clocks import Agent, Event, ProtocolError
from tests.protocol.memory import Where

Regions = list[tuple[int, str]]  # first word and name, ascending


@dataclass
class _SlotWait:
    slots: Slots
    word: int
    missing: int

    def __str__(self) -> str:
        return f"{self.missing} slots of {self.slots.place(self.word)}"

    def block(self, task: Any) -> None:
        self.slots.block(self.word, task)


class Slots:
    """Words of 4 bytes. Messages carry what the sender knew, and of its resets only those behind a fence.

    ``first_reset`` is the clock component of the first sender's visible resets.
    """

    def __init__(
        self, name: str, regions: Regions, words: int, first_reset: int, wake: Callable[[list[Any]], None]
    ):
        self._name = name
        self._regions = regions
        self._first_reset = first_reset
        self._wake = wake
        self._index = np.arange(words)
        self._message = np.zeros(words, dtype=np.int32)
        self._reset_by = np.zeros(words, dtype=np.int32)
        self._reset_number = np.zeros(words, dtype=np.int32)
        self._awaited = np.zeros(words, dtype=np.bool_)
        self._waiters: dict[int, list[Any]] = {}
        self._events: dict[int, tuple[Event, str]] = {}
        self._reads: list[tuple[Agent, int, Where]] = []
        self._sent = 0

    def place(self, word: int) -> str:
        """The name of a word's region."""
        region = [name for begin, name in self._regions if begin <= word][-1]
        return f"{region} of {self._name}"

    def block(self, word: int, task: Any) -> None:
        """Has the task made ready when the word is sent."""
        self._awaited[word] = True
        self._waiters.setdefault(word, []).append(task)

    def forget_launch(self) -> None:
        """At a boundary behind which all agents that read this copy know of each other's reads."""
        self._reads.clear()
        if not self._message.any():
            self._events.clear()

    def send(self, agent: Agent, where: Where) -> None:
        """Fills empty slots."""
        full = self._message[where]
        if np.count_nonzero(full):
            word = self._word(where, full != 0)
            other = self._events[int(self._message[word])][1]
            raise ProtocolError(f"{self.place(word)}: {agent} sends to a slot that is full, sent by {other}")
        hidden = agent.clock[self._first_reset + self._reset_by[where]] < self._reset_number[where]
        if np.count_nonzero(hidden):
            word = self._word(where, hidden)
            raise ProtocolError(
                f"{self.place(word)}: {agent} may send before the reset by sender {self._reset_by[word]} "
                "is visible"
            )
        self._sent += 1
        self._events[self._sent] = (agent.event(), str(agent))
        self._message[where] = self._sent
        if np.count_nonzero(self._awaited[where]):
            self._wake_waiters(where)

    def receive(self, agent: Agent, where: Where) -> Generator[_SlotWait, None, None]:
        """Until all slots are full."""
        while not (messages := self._message[where]).all():
            yield _SlotWait(self, self._word(where, messages == 0), int((messages == 0).sum()))
        agent.learn(self._events[number][0] for number in np.unique(messages).tolist())
        self._reads.append((agent, agent.event().time, where))

    def reset(self, agent: Agent, where: Where, sender: int, number: int) -> None:
        """Makes slots empty: the sender's reset of that number."""
        for message in np.unique(self._message[where]).tolist():
            if message and not agent.knows(self._events[message][0].agent, self._events[message][0].time):
                word = self._word(where, self._message[where] == message)
                self._refuse_reset(agent, word, f"{self._events[message][1]} may still send to it")
        for reader, time, read in self._reads:
            if agent.knows(reader.index, time):
                continue
            both = np.intersect1d(self._words(read), self._words(where))
            if both.size:
                self._refuse_reset(agent, int(both[0]), f"{reader.name} may still read it")
        self._message[where] = 0
        self._reset_by[where] = sender
        self._reset_number[where] = number

    def _refuse_reset(self, agent: Agent, word: int, why: str) -> None:
        raise ProtocolError(f"{self.place(word)}: {agent} makes it empty while {why}")

    def _wake_waiters(self, where: Where) -> None:
        words = self._words(where)
        for word in words[self._awaited[where]].tolist():
            self._awaited[word] = False
            self._wake(self._waiters.pop(word))

    def _words(self, where: Where) -> Any:
        return self._index[where]

    def _word(self, where: Where, chosen: Any) -> int:
        return int(self._words(where)[chosen][0])
