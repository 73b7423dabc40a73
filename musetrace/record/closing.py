"""How rank 0 ends a run that several processes record: it waits for the others, and names who is missing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from musetrace.errors import TraceFileError
from musetrace.record.host_clock import boot_id
from musetrace.record.meeting import Meeting, pauses
from musetrace.record.run_output import Ending
from musetrace.store.byte_source import FileSource
from musetrace.store.journal_files import journal_name

# When to look for processes that ended without a word: first after this, and then ever more seldom.
_FIRST_LOOK_S = 0.5
_NAMED = 8


class Closing:
    """Waits until all processes have closed their journals, have died, or the time is over.

    Args:
        meeting: of all processes.
        folder: of the run.
        timeout_s: for all together.
    """

    def __init__(self, meeting: Meeting, folder: Path, timeout_s: float) -> None:
        self._meeting = meeting
        self._folder = folder
        self._timeout_s = timeout_s
        self._others = range(1, meeting.place.processes)
        self._held = 1

    def wait(self) -> Ending:
        """What became of the others. Raises MeetingLostError."""
        self._held = int((self._meeting.heard("held") or {"held": 1})["held"])
        deadline = time.monotonic() + self._timeout_s
        look_at, look_pause_s = time.monotonic() + _FIRST_LOOK_S, _FIRST_LOOK_S
        died: set[int] = set()
        for pause_s in pauses():
            if self._meeting.count("gone") >= len(self._others):
                break
            now = time.monotonic()
            if now >= min(look_at, deadline):
                open_yet = self._open_yet()
                # Twice, because a process lets go of its journal just before it says so.
                died, before = {process for process in open_yet if self._has_died(process)}, died
                if open_yet <= died & before or now >= deadline:
                    break
                look_at, look_pause_s = now + look_pause_s, 2 * look_pause_s
            time.sleep(max(0.0, min(pause_s, look_at - now, deadline - now)))
        return self._ending(died)

    def _open_yet(self) -> set[int]:
        return {process for process in self._others if self._meeting.heard(f"gone/{process}") is None}

    def _has_died(self, process: int) -> bool:
        """Whether a process of this host holds its journals open no more."""
        came = self._meeting.heard(f"came/{process}")
        if came is None or came["boot_id"] is None or came["boot_id"] != boot_id():
            return False
        try:
            with FileSource(self._folder / journal_name(process * self._held)) as source:
                return not source.is_being_written()
        except TraceFileError:
            return True

    def _ending(self, died: set[int]) -> Ending:
        all_gone = self._meeting.count("gone") >= len(self._others)
        if all_gone and not self._meeting.count("recorded-nothing"):
            return Ending()
        open_yet = set() if all_gone else self._open_yet()
        never = {process for process in open_yet if self._meeting.heard(f"came/{process}") is None}
        died = died & open_yet
        writing = open_yet - died - never
        within = f"within {self._timeout_s:g} s"
        lines = [
            (never, f"not come to the recording {within}; record in every process, or alone=True in one"),
            (died, "ended without closing the recording; what was drained before is kept"),
            (writing, f"not closed the recording {within}; the run is indexed when it is first opened"),
        ]
        named = [f"{self._named(who)} {what}" for who, what in lines if who]
        return Ending(not writing, (*named, *self._refusals()))

    def _refusals(self) -> list[str]:
        """A line for each reason why processes recorded nothing."""
        by_reason: dict[str, list[int]] = {}
        for process in self._others:
            gone = self._meeting.heard(f"gone/{process}")
            if gone is not None and gone["recorded_nothing"]:
                by_reason.setdefault(gone["recorded_nothing"], []).append(process)
        return [f"{self._named(who)} recorded nothing: {reason}" for reason, who in by_reason.items()]

    def _named(self, processes: Iterable[int]) -> str:
        """``rank 1 of 2 has`` for processes, by the ranks that they hold."""
        ranks = [p * self._held + held for p in sorted(processes) for held in range(self._held)]
        shown = ", ".join(map(str, ranks[:_NAMED])) + (", ..." if len(ranks) > _NAMED else "")
        have = "has" if len(ranks) == 1 else "have"
        return f"rank{'s' * (len(ranks) > 1)} {shown} of {self._held * (len(self._others) + 1)} {have}"
