"""Where a recorder writes: a folder, a recording id, and which ranks of the run are its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from musetrace.record.clock_comparison import Compared
from musetrace.record.output import OutputFolder
from musetrace.record.peer_clock import PeerClock
from musetrace.store.frame import RECORDING_ID_BYTES
from musetrace.store.payloads import Clock


@dataclass(frozen=True)
class OwnRanks:
    """The ranks of a run that one process records: from ``first_rank`` on, as many as it holds."""

    recording_id: bytes
    first_rank: int
    world: int


@dataclass(frozen=True)
class Ending:
    """``closed`` when no other process writes any more; ``lines`` say who is missing, and why."""

    closed: bool = True
    lines: tuple[str, ...] = field(default_factory=tuple)


class RunOutput(Protocol):
    """A run that is being recorded, as one of its processes sees it.

    ``indexes`` says whether this process makes the index, once all have closed.
    """

    path: Path
    indexes: bool

    def reserve(self) -> None:
        """See that the output can be used, before the first launch. Raises RecordError."""

    def begin(self, held: int) -> OwnRanks:
        """Make the folder ready for the journals of ``held`` ranks. Raises RecordError."""

    def compare_clocks(self, open_peer: Callable[[], PeerClock] | None, tick_ns: int) -> None:
        """Compare the device's clock with other processes', who all do so now; they wait for each other."""

    def clocks_between(self, *, when_due: bool) -> Compared | None:
        """Compare them again between two steps, in all processes alike: now, or when some seconds are over.

        None where nothing was compared.
        """

    def begun(self, anchor: Clock) -> Clock:
        """The journals are open. Returns the first anchor, with what came out of the comparison."""

    def last_clock(self, anchor: Clock) -> Clock:
        """As :meth:`begun`, behind the last launch; called by the drain thread."""

    def withdraw(self, reason: str) -> None:
        """Nothing is recorded by this process, for a reason of one line."""

    def hurry(self) -> None:
        """The program ends: nothing waits for other processes from now on."""

    def end(self, *, recorded: bool) -> Ending:
        """The journals, if there are any, are closed. Waits a bounded time for the other processes'."""


class SoloRun:
    """A run of this process alone."""

    indexes = True

    def __init__(self, output: OutputFolder) -> None:
        self.path = output.path
        self._output = output

    def reserve(self) -> None:
        """See :class:`RunOutput`."""
        self._output.reserve()

    def begin(self, held: int) -> OwnRanks:
        """See :class:`RunOutput`."""
        self._output.create()
        return OwnRanks(os.urandom(RECORDING_ID_BYTES), 0, held)

    def compare_clocks(self, open_peer: Callable[[], PeerClock] | None, tick_ns: int) -> None:
        """There are no others."""

    def clocks_between(self, *, when_due: bool) -> Compared | None:
        """There are no others."""
        return None

    def begun(self, anchor: Clock) -> Clock:
        """The anchor as it is: there is one clock."""
        return anchor

    def last_clock(self, anchor: Clock) -> Clock:
        """The anchor as it is."""
        return anchor

    def withdraw(self, reason: str) -> None:
        """Nobody else needs to know."""

    def hurry(self) -> None:
        """There are no others."""

    def end(self, *, recorded: bool) -> Ending:
        """There are no others; the folder goes when it was made for nothing."""
        if not recorded:
            self._output.discard()
        return Ending()
