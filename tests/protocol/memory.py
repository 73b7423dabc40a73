"""A block's shared memory, cell by cell: every access is checked against all that came before."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.protocol.clocks import Agent, ProtocolError

Where = slice | NDArray[np.int64]

_contents: dict[Hashable, int] = {}
_names: list[Hashable] = []


def _content(what: Hashable) -> int:
    number = _contents.get(what)
    if number is None:
        _names.append(what)
        number = _contents[what] = len(_names)
    return number


class Memory:
    """Cells of one block. A write needs all earlier accesses to be before it, a read the write.

    ``what`` says what is written and what is meant to be read: a read of other contents is an error too.
    Atomic updates need no order between each other.
    """

    def __init__(
        self, name: str, cells: int, first_agent: int, warps: int, name_of: Callable[[int], str]
    ) -> None:
        self._name = name
        self._agents = slice(first_agent, first_agent + warps)
        self._first_agent = first_agent
        self._name_of = name_of
        self._writer = np.zeros(cells, dtype=np.int8)
        self._written = np.zeros(cells, dtype=np.int32)
        self._read = np.zeros((warps, cells), dtype=np.int32)
        self._what = np.zeros(cells, dtype=np.int32)
        # Atomically: by warp, since the last write; and whether by anybody.
        self._updated = np.zeros((warps, cells), dtype=np.int32)
        self._has_updates = np.zeros(cells, dtype=np.bool_)

    def write(self, agent: Agent, where: Where, what: Hashable) -> None:
        """Overwrites the cells."""
        self._check_change(agent, where, f"writes {what}")
        self._check_updates(agent, where, f"writes {what}")
        self._writer[where] = agent.index - self._first_agent
        self._written[where] = agent.event().time
        self._what[where] = _content(what)
        if np.count_nonzero(self._has_updates[where]):
            self._updated[:, where] = 0
            self._has_updates[where] = False

    def update(self, agent: Agent, where: Where, before: Hashable, what: Hashable) -> None:
        """Changes the cells atomically from one of these contents into the other; others may do so too."""
        self._check_change(agent, where, f"updates {what}")
        wrong = ~np.isin(self._what[where], [_content(before), _content(what)])
        if np.count_nonzero(wrong):
            raise ProtocolError(f"{self._name}: {agent} updates {what} where {self._old(where, wrong)} is")
        self._has_updates[where] = True
        self._updated[agent.index - self._first_agent, where] = agent.event().time
        self._what[where] = _content(what)

    def _check_change(self, agent: Agent, where: Where, does: str) -> None:
        known = agent.clock[self._agents]
        unread = self._read[:, where] > known[:, None]
        if np.count_nonzero(unread):
            reader = self._name_of(self._first_agent + int(unread.any(axis=1).argmax()))
            old = self._old(where, unread.any(axis=0))
            raise ProtocolError(f"{self._name}: {agent} {does} while {reader} may still read {old}")
        self._check_writes(agent, where, known, does)

    def read(self, agent: Agent, where: Where, what: Hashable) -> None:
        """Reads the cells, which must hold that."""
        self._check_writes(agent, where, agent.clock[self._agents], f"reads {what}")
        self._check_updates(agent, where, f"reads {what}")
        wrong = self._what[where] != _content(what)
        if np.count_nonzero(wrong):
            raise ProtocolError(f"{self._name}: {agent} reads {what} where {self._old(where, wrong)} is")
        self._read[agent.index - self._first_agent, where] = agent.event().time

    def _check_writes(self, agent: Agent, where: Where, known: NDArray[np.int32], does: str) -> None:
        unordered = self._written[where] > known[self._writer[where]]
        if np.count_nonzero(unordered):
            writer = self._name_of(self._first_agent + int(self._writer[where][unordered][0]))
            old = self._old(where, unordered)
            raise ProtocolError(
                f"{self._name}: {agent} {does}, not in order with {writer}, which wrote {old}"
            )

    def _check_updates(self, agent: Agent, where: Where, does: str) -> None:
        if not np.count_nonzero(self._has_updates[where]):
            return
        unordered = self._updated[:, where] > agent.clock[self._agents][:, None]
        if np.count_nonzero(unordered):
            other = self._name_of(self._first_agent + int(unordered.any(axis=1).argmax()))
            raise ProtocolError(f"{self._name}: {agent} {does}, not in order with an update by {other}")

    def _old(self, where: Where, chosen: Any) -> Hashable:
        number = int(self._what[where][chosen][0])
        return _names[number - 1] if number else "nothing"
