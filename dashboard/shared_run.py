"""A run as all views share it: its sums are kept before they are asked for, a chosen step is read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, cast

from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.analysis.spans.byte_memory import ByteMemory
from musetrace.analysis.spans.selection import StepSpans
from musetrace.dashboard.conditions import RecordedRun
from musetrace.errors import MusetraceError

# Of a chosen step and what is made of its spans: one of 5 M spans takes 560 MB.
MOST_STEP_BYTES = 600_000_000
_THREADS = 2

Steps = ByteMemory[StepSpans]


def step_memory() -> Steps:
    """For the steps of all runs of a page."""
    return Steps(MOST_STEP_BYTES, _THREADS)


class SharedRun:
    """Answers for a run, ``recorded``, in all ways; ``key`` is like no other run's of the same memory."""

    def __init__(self, recorded: RecordedRun, key: Hashable, memory: Steps) -> None:
        """Nothing is read yet."""
        self.recorded = recorded
        self.step_memory = _OfRun(key, memory)
        self._keeping = threading.Lock()
        self._has_kept = False
        self.is_keeping = False

    def __getattr__(self, name: str) -> Any:
        """Everything else is the run's."""
        return getattr(self.recorded, name)

    @property
    def cubes(self) -> Any:
        """The sums that the index keeps: made first where they lack, once however many ask.

        Not of a run that is being recorded: it is another one in a moment.
        """
        self.keep()
        return getattr(self.recorded, "cubes", None)

    def keep(self) -> None:
        """Make the sums that lack; without them, and where they cannot be made, spans answer everything."""
        if getattr(self.recorded, "is_being_recorded", False):
            return
        with self._keeping:
            if not self._has_kept:
                self._has_kept = self.is_keeping = True
                try:
                    keep_cubes(self.recorded)
                except MusetraceError:
                    pass  # a damaged step: who asks for it is told
                finally:
                    self.is_keeping = False


class _OfRun:
    """The memory of all runs, as one of them sees it."""

    def __init__(self, key: Hashable, memory: Steps) -> None:
        self._key, self._memory = key, memory

    def all_of(self, wanted: list[tuple[Hashable, Callable[[], StepSpans]]]) -> list[StepSpans]:
        return self._memory.all_of([((self._key, key), make) for key, make in wanted])


def shared(recorded: RecordedRun, key: Hashable, memory: Steps) -> RecordedRun:
    """A run as all views share it."""
    return cast(RecordedRun, SharedRun(recorded, key, memory))


def recorded_run(run: RecordedRun) -> RecordedRun:
    """The run itself, which neither makes sums when it is asked for them nor keeps its steps."""
    return run.recorded if isinstance(run, SharedRun) else run


def keep_sums(run: RecordedRun) -> None:
    """Make the sums that a run lacks, once however many ask."""
    if isinstance(run, SharedRun):
        run.keep()
    else:
        keep_cubes(run)
