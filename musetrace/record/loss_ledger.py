"""Counts launches that are not recorded, until the drain thread writes them down."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from musetrace.record.source import LaunchInfo

BUFFERS_BUSY = "buffers_busy"
RECORDING_FAILED = "recording_failed"
NEVER_SUBMITTED = "never_submitted"
OUT_OF_ORDER = "submitted_after_a_later_step"
NUMBER_USED = "step_and_launch_do_not_grow"
NO_MEMORY = "no_memory_for_a_captured_launch"
TOO_MANY_LAUNCHES = "too_many_launches_in_one_step"
MISMATCH = "kernel_and_job_table_do_not_match"

# Beyond this many entries the last one goes on counting, so that memory stays bounded when nothing drains.
_MAX_ENTRIES = 1024


@dataclass
class LostLaunches:
    """``launches`` launches in a row, the first of them ``launch`` of ``step``, were lost for one reason."""

    step: int
    launch: int
    launches: int
    reason: str


class LossLedger:
    """Losses that are not written yet. Safe to use from any thread; nobody ever waits long for it."""

    def __init__(self) -> None:
        """Nothing is lost."""
        self._lock = threading.Lock()
        self._entries: list[LostLaunches] = []

    def note(self, info: LaunchInfo, reason: str) -> None:
        """Count one launch as lost."""
        with self._lock:
            last = self._entries[-1] if self._entries else None
            if last and (
                len(self._entries) == _MAX_ENTRIES or (last.step, last.reason) == (info.step, reason)
            ):
                last.launches += 1
            else:
                self._entries.append(LostLaunches(info.step, info.launch, 1, reason))

    def take(self) -> list[LostLaunches]:
        """The losses since the last call."""
        with self._lock:
            entries, self._entries = self._entries, []
        return entries
