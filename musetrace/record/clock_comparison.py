"""Compares the device clock of a process with rank 0's, over peer memory: one process after the other.

Rank 0 gives each of the others its turn: at the start of a recording, between steps, and at the end. A
process that cannot be compared, or is late, goes without: then the anchors of the host clock relate the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from musetrace.errors import DeviceError
from musetrace.record.clock_moments import ClockMoments
from musetrace.record.host_clock import boot_id
from musetrace.record.meeting import Meeting, MeetingLostError, pauses
from musetrace.record.peer_clock import PeerClock, offset_of
from musetrace.store.limits import MAX_NAME_CHARS
from musetrace.store.payloads import Clock, PeerOffset


@dataclass(frozen=True)
class Stage:
    """One comparison of all clocks.

    ``ready_s`` is how long rank 0 waits for the others, who come from a barrier or a common step as a rule;
    ``budget_ns`` that of an exchange on the GPU, which takes some ms once both ends run; who waits sleeps
    from ``first_pause_s`` to ``longest_pause_s`` between looks.
    """

    name: str
    ready_s: float
    budget_ns: int
    first_pause_s: float
    longest_pause_s: float

    @property
    def patience_ns(self) -> int:
        """For a GPU that has other work."""
        return min(4 * self.budget_ns, 2_000_000_000)


_FIRST = Stage("clocks-at-start", 10.0, 2_000_000_000, 0.005, 0.25)
_LAST = Stage("clocks-at-end", 5.0, 2_000_000_000, 0.005, 0.25)
# Between steps the program waits for it.
_BETWEEN = Stage("clocks", 0.5, 50_000_000, 0.0005, 0.005)
# All go on at one time, so that a comparison makes no process late in the step behind it: by then all have
# heard of it.
RESUME_NS = 8_000_000
_SPIN_NS = 300_000
# After so many failures in a row nothing is compared before the end.
MOST_FAILURES = 3


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
    """One process's part in it, one stage after the other; from any thread.

    ``moments`` says when to compare between steps, the same in all processes.

    Args:
        meeting: of all processes.
        open_peer: gives the own end of an exchange; None when the device has none.
        tick_ns: of the device clock.
    """

    def __init__(self, meeting: Meeting, open_peer: Callable[[], PeerClock] | None, tick_ns: int) -> None:
        self.moments = ClockMoments()
        self._meeting = meeting
        self._process = meeting.place.process
        self._tick_ns = tick_ns
        self._lock = threading.Lock()
        self._over: set[str] = set()
        self._stages = self._failures = self._answered = 0
        # Why comparisons between steps failed.
        self._missed: list[str] = []
        # Whether clocks are compared between steps; None before the first time.
        self._goes_on: bool | None = None
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
        with self._lock:
            if self._process != 0:
                return self._compare(_FIRST)
            with suppress(MeetingLostError):
                self._meeting.tell("root", **self._word())
                self._serve(_FIRST)
            return Compared()

    def between(self) -> Compared | None:
        """Between two steps, in all processes; None where nothing is compared.

        Bounded: a process that is late, or whose GPU is busy, goes without. After three failures in a row it
        asks no more, and where all have failed nobody waits any more.
        """
        with self._lock:
            with suppress(MeetingLostError):
                if self._goes_on is None:
                    self._goes_on = self._rank_0_compares()
                if not self._goes_on:
                    return None
                self._stages += 1
                stage = replace(_BETWEEN, name=f"{_BETWEEN.name}-{self._stages}")
                return self._serve_between(stage) if self._process == 0 else self._compare_between(stage)
            self._goes_on = False
            return None

    def last(self) -> Compared:
        """At the end, for all but rank 0."""
        with self._lock:
            if self._process == 0:
                return Compared()
            compared = self._compare(_LAST)
            if compared.failure or not self._missed:
                return compared
            of = f"{len(self._missed)} of {self._stages} comparisons between steps failed"
            return replace(compared, failure=f"{of}: {self._missed[0]}")

    def serve_last(self) -> None:
        """At the end, for rank 0. Raises MeetingLostError."""
        with self._lock:
            self._serve(_LAST)

    def close(self) -> None:
        """Rank 0 serves no more. Raises MeetingLostError."""
        for stage in (_FIRST, _LAST):
            if stage.name not in self._over:
                self._tell_over(stage)

    def _rank_0_compares(self) -> bool:
        if self._process == 0:
            return self._peer is not None
        root = self._meeting.heard("root")
        return root is not None and bool(root["handle"])

    def _serve_between(self, stage: Stage) -> Compared:
        before = self._answered
        self._give_turns(stage)
        self._failures = 0 if self._answered > before else self._failures + 1
        self._goes_on = self._failures < MOST_FAILURES
        following = self.moments.plan() if self._goes_on else 0
        resume_ns = time.monotonic_ns() + RESUME_NS
        self._tell_over(stage, following=following, resume_ns=resume_ns)
        wait_until(resume_ns)
        return Compared()

    def _compare_between(self, stage: Stage) -> Compared:
        compared = Compared()
        if self._failures < MOST_FAILURES:
            compared = self._compare(stage)
            self._failures = 0 if compared.peer is not None else self._failures + 1
            self._missed += [compared.failure] if compared.failure else []
        else:
            self._tell_unready(stage)
        longest_s = stage.ready_s + self._meeting.place.processes * stage.budget_ns / 1e9
        over = self._heard(stage, [f"{stage.name}/over"], longest_s) or {"following": 0, "resume_ns": 0}
        self._goes_on = over["following"] > 0
        self.moments.follow(over["following"])
        wait_until(over["resume_ns"])
        return compared

    def _heard(self, stage: Stage, keys: list[str], timeout_s: float) -> dict[str, Any] | None:
        between_looks = pauses(stage.first_pause_s, stage.longest_pause_s)
        return self._meeting.wait_for(keys, timeout_s, between_looks)

    def _serve(self, stage: Stage) -> None:
        """Raises MeetingLostError."""
        self._give_turns(stage)
        self._tell_over(stage)

    def _give_turns(self, stage: Stage) -> None:
        """To each process, until all had theirs or the time is over. Raises MeetingLostError."""
        if self._peer is None:
            return
        waiting = set(range(1, self._meeting.place.processes))
        deadline = time.monotonic() + stage.ready_s
        for pause_s in pauses(stage.first_pause_s, stage.longest_pause_s):
            for process in sorted(waiting):
                if self._served(stage, process, self._peer):
                    waiting.discard(process)
            if not waiting or time.monotonic() >= deadline:
                break
            time.sleep(pause_s)

    def _tell_over(self, stage: Stage, **plan: int) -> None:
        self._over.add(stage.name)
        self._meeting.tell(f"{stage.name}/over", refused="rank 0 had no turn to give", **plan)

    def _served(self, stage: Stage, process: int, peer: PeerClock) -> bool:
        """Whether a process needs no turn any more, after its turn if it was ready for one."""
        if self._meeting.heard(f"gone/{process}") is not None:
            return True
        ready = self._meeting.heard(f"{stage.name}/ready/{process}")
        if ready is None:
            return False
        if not ready["handle"]:
            return True
        handle = bytes.fromhex(ready["handle"])
        try:
            peer.reach(handle)
            peer.clear(stage.patience_ns)
        except (RuntimeError, ValueError) as error:
            self._meeting.tell(f"{stage.name}/turn/{process}", refused=str(error))
            return True
        self._meeting.tell(f"{stage.name}/turn/{process}")
        # Without an answer the other end says so in its journal.
        with suppress(RuntimeError):
            self._answered += peer.answer(handle, stage.budget_ns) > 0
        return True

    def _compare(self, stage: Stage) -> Compared:
        """Take the own turn. Never raises: a clock that is not compared is no reason not to record."""
        try:
            if self._peer is None:
                self._tell_unready(stage)
                return Compared(failure=self._failure)
            root = self._heard(stage, ["root"], stage.ready_s)
            if root is None or not root["handle"]:
                self._tell_unready(stage)
                return Compared(failure=root["failure"] if root else "rank 0 did not come in time")
            return self._ask(stage, self._peer, root)
        except Exception as error:
            return Compared(failure=str(error) or type(error).__name__)

    def _tell_unready(self, stage: Stage) -> None:
        self._meeting.tell(f"{stage.name}/ready/{self._process}", handle="")

    def _ask(self, stage: Stage, peer: PeerClock, root: dict[str, Any]) -> Compared:
        handle = bytes.fromhex(root["handle"])
        try:
            if root["boot_id"] is None or root["boot_id"] != boot_id():
                raise DeviceError("rank 0 is on another host")
            peer.reach(handle)
        except (DeviceError, RuntimeError, ValueError):
            self._tell_unready(stage)
            raise
        self._meeting.tell(f"{stage.name}/ready/{self._process}", handle=self._handle.hex())
        keys = [f"{stage.name}/turn/{self._process}", f"{stage.name}/over"]
        turn = self._heard(stage, keys, stage.ready_s + stage.budget_ns / 1e9)
        if turn is None or "refused" in turn:
            raise DeviceError(turn["refused"] if turn else "rank 0 did not come to compare clocks")
        rounds = peer.ask(handle, stage.budget_ns)
        return Compared(offset_of(rounds, max(self._tick_ns, int(root["tick_ns"]))))


def wait_until(time_ns: int) -> None:
    """Until the host's clock is there; not where it is another one, on another host."""
    left_ns = time_ns - time.monotonic_ns()
    if not 0 < left_ns <= RESUME_NS:
        return
    time.sleep(max(0, left_ns - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < time_ns:
        pass
