"""Compares the device clock of a process with rank 0's, over peer memory: one process after the other.

Rank 0 gives each of the others its turn, at the start of a recording and again at its end. A process that
cannot be compared, or is late, goes without: then the anchors of the host clock relate the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from musetrace.errors import DeviceError
from musetrace.record.host_clock import boot_id
from musetrace.record.meeting import Meeting, MeetingLostError, pauses
from musetrace.record.peer_clock import PeerClock, offset_of
from musetrace.store.limits import MAX_NAME_CHARS
from musetrace.store.payloads import Clock, PeerOffset

_FIRST, _LAST = "clocks-at-start", "clocks-at-end"
# How long rank 0 waits for the others to be ready; they come from a barrier, as a rule.
_READY_S = {_FIRST: 10.0, _LAST: 5.0}
# Of an exchange on the GPU, which takes some ms once both ends run.
BUDGET_NS = 2_000_000_000


@dataclass(frozen=True)
class Compared:
    """What came out of it: the offset, or why there is none; neither where nobody can compare."""

    peer: PeerOffset | None = None
    failure: str = ""

    def onto(self, anchor: Clock) -> Clock:
        """The anchor that says so too."""
        line = " ".join(self.failure.split())[:MAX_NAME_CHARS]
        return replace(anchor, peer=self.peer, peer_failure=line or None)


class ClockComparison:
    """One process's part in it.

    Args:
        meeting: of all processes.
        open_peer: gives the own end of an exchange; None when the device has none.
        tick_ns: of the device clock.
    """

    def __init__(self, meeting: Meeting, open_peer: Callable[[], PeerClock] | None, tick_ns: int) -> None:
        self._meeting = meeting
        self._process = meeting.place.process
        self._tick_ns = tick_ns
        self._over: set[str] = set()
        self._peer: PeerClock | None = None
        self._handle = b""
        self._failure = ""
        if open_peer is not None:
            try:
                self._peer = open_peer()
                self._handle = self._peer.handle
            except Exception as error:
                self._peer, self._failure = None, str(error) or type(error).__name__

    def _word(self) -> dict[str, Any]:
        """What the others must know of rank 0's end."""
        handle = {"handle": self._handle.hex(), "failure": self._failure}
        return {**handle, "tick_ns": self._tick_ns, "boot_id": boot_id()}

    def first(self) -> Compared:
        """At the start: rank 0 serves, another process asks."""
        if self._process != 0:
            return self._compare(_FIRST)
        with suppress(MeetingLostError):
            self._meeting.tell("root", **self._word())
            self._serve(_FIRST)
        return Compared()

    def last(self) -> Compared:
        """At the end, for all but rank 0."""
        return Compared() if self._process == 0 else self._compare(_LAST)

    def serve_last(self) -> None:
        """At the end, for rank 0. Raises MeetingLostError."""
        self._serve(_LAST)

    def close(self) -> None:
        """Rank 0 serves no more. Raises MeetingLostError."""
        for stage in (_FIRST, _LAST):
            if stage not in self._over:
                self._tell_over(stage)

    def _serve(self, stage: str) -> None:
        """Give each process its turn, until all had it or the time is over. Raises MeetingLostError."""
        if self._peer is not None:
            waiting = set(range(1, self._meeting.place.processes))
            deadline = time.monotonic() + _READY_S[stage]
            for pause_s in pauses():
                for process in sorted(waiting):
                    if self._served(stage, process, self._peer):
                        waiting.discard(process)
                if not waiting or time.monotonic() >= deadline:
                    break
                time.sleep(pause_s)
        self._tell_over(stage)

    def _tell_over(self, stage: str) -> None:
        self._over.add(stage)
        self._meeting.tell(f"{stage}/over", refused="rank 0 had no turn to give")

    def _served(self, stage: str, process: int, peer: PeerClock) -> bool:
        """Whether a process needs no turn any more, after its turn if it was ready for one."""
        if self._meeting.heard(f"gone/{process}") is not None:
            return True
        ready = self._meeting.heard(f"{stage}/ready/{process}")
        if ready is None:
            return False
        if not ready["handle"]:
            return True
        handle = bytes.fromhex(ready["handle"])
        try:
            peer.reach(handle)
            peer.clear()
        except (RuntimeError, ValueError) as error:
            self._meeting.tell(f"{stage}/turn/{process}", refused=str(error))
            return True
        self._meeting.tell(f"{stage}/turn/{process}")
        # Without an answer the other end says so in its journal.
        with suppress(RuntimeError):
            peer.answer(handle, BUDGET_NS)
        return True

    def _compare(self, stage: str) -> Compared:
        """Take the own turn. Never raises: a clock that is not compared is no reason not to record."""
        try:
            if self._peer is None:
                self._tell_unready(stage)
                return Compared(failure=self._failure)
            root = self._meeting.wait_for(["root"], _READY_S[stage])
            if root is None or not root["handle"]:
                self._tell_unready(stage)
                return Compared(failure=root["failure"] if root else "rank 0 did not come in time")
            return self._ask(stage, self._peer, root)
        except Exception as error:
            return Compared(failure=str(error) or type(error).__name__)

    def _tell_unready(self, stage: str) -> None:
        self._meeting.tell(f"{stage}/ready/{self._process}", handle="")

    def _ask(self, stage: str, peer: PeerClock, root: dict[str, Any]) -> Compared:
        handle = bytes.fromhex(root["handle"])
        try:
            if root["boot_id"] is None or root["boot_id"] != boot_id():
                raise DeviceError("rank 0 is on another host")
            peer.reach(handle)
        except (DeviceError, RuntimeError, ValueError):
            self._tell_unready(stage)
            raise
        self._meeting.tell(f"{stage}/ready/{self._process}", handle=self._handle.hex())
        keys = [f"{stage}/turn/{self._process}", f"{stage}/over"]
        turn = self._meeting.wait_for(keys, _READY_S[stage] + BUDGET_NS / 1e9)
        if turn is None or "refused" in turn:
            raise DeviceError(turn["refused"] if turn else "rank 0 did not come to compare clocks")
        rounds = peer.ask(handle, BUDGET_NS)
        return Compared(offset_of(rounds, max(self._tick_ns, int(root["tick_ns"]))))
