"""The runs that a dashboard shows. One that is being recorded, or is recorded anew, is opened again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.shared_run import Steps, recorded_run, shared, step_memory
from musetrace.store import open_run

Answer = TypeVar("Answer")
# Opening a run that grows reads all of it: it may take this share of the time at most.
_SHARE_OF_TIME = 0.2
_KEPT = 64
KEEPING = "Sums of all spans are being made, once for this run: what is empty now fills when they are there."


@dataclass(frozen=True)
class RunRef:
    """A run of the page: its place on the command line, and how often it was opened again."""

    index: int
    version: int = 0

    @staticmethod
    def of(data: object) -> RunRef:
        """From what the page keeps. Anything else means the first run."""
        if isinstance(data, Mapping) and all(type(data.get(name)) is int for name in ("index", "version")):
            return RunRef(data["index"], data["version"])
        return RunRef(0)

    def data(self) -> dict[str, int]:
        """As the page keeps it."""
        return {"index": self.index, "version": self.version}


@dataclass
class _Entry:
    run: RecordedRun
    name: str
    version: int
    files: Hashable
    not_before: float = 0.0
    trouble: str = ""


class OpenRuns:
    """Open runs by their place on the command line; no request names a path. Safe to use from threads."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        """``runs``: at least one, in the order in which they are shown."""
        paths = [getattr(run, "path", None) for run in runs]
        self._steps = step_memory()
        self._entries = [
            _Entry(shared(recorded_run(run), (index, 0), self._steps), name, 0, _files(path))
            for index, (run, name, path) in enumerate(zip(runs, _names(paths), paths, strict=True))
        ]
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What the runs are called on the page; no two alike."""
        return tuple(entry.name for entry in self._entries)

    @property
    def steps(self) -> Steps:
        """The steps that views have looked at one by one."""
        return self._steps

    def ref(self, index: int) -> RunRef:
        """The run at a place, as it was opened last; the first for a place that there is not."""
        index = index if 0 <= index < len(self._entries) else 0
        return RunRef(index, self._entries[index].version)

    def run(self, ref: RunRef) -> RecordedRun:
        """The run, as it was opened last and as all views share it (``shared_run``)."""
        return self._entries[self.ref(ref.index).index].run

    def trouble(self, index: int) -> str:
        """What keeps a run from being read as it is now, in one sentence; empty when nothing does."""
        return self._entries[self.ref(index).index].trouble

    def busy(self, index: int) -> str:
        """What views of a run wait for, in one sentence; empty when for nothing."""
        return KEEPING if getattr(self._entries[self.ref(index).index].run, "is_keeping", False) else ""

    def kept(self, ref: RunRef, key: Hashable, make: Callable[[RecordedRun], Answer]) -> Answer:
        """``make(run)``, made once for a run and ``key`` as long as few others are asked for.

        Whoever asks for the same while it is made waits for it.
        """
        ref = self.ref(ref.index)
        whole = (ref, key)
        with self._lock:
            if whole in self._kept:
                self._kept.move_to_end(whole)
                return self._kept[whole]  # type: ignore[no-any-return]
            making = self._making.setdefault(whole, threading.Lock())
        with making:
            return self._made(whole, make)  # type: ignore[no-any-return]

    def _made(self, whole: tuple[RunRef, Hashable], make: Callable[[RecordedRun], Any]) -> Any:
        """What was made while one waited, or ``make(run)``."""
        with self._lock:
            if whole in self._kept:
                return self._kept[whole]
        try:
            made = make(self.run(whole[0]))
            with self._lock:
                self._kept[whole] = made
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return made
        finally:
            with self._lock:
                self._making.pop(whole, None)

    def refresh(self, index: int) -> RunRef:
        """Open a run again if its files have changed, and note what is wrong if it cannot be read now."""
        index = self.ref(index).index
        entry = self._entries[index]
        path = getattr(entry.run, "path", None)
        # While one request opens the run, the others go on with what is there.
        if path is not None and self._refreshing.acquire(blocking=False):
            try:
                self._reopen(index, entry, path)
            finally:
                self._refreshing.release()
        return self.ref(index)

    def _reopen(self, index: int, entry: _Entry, path: Path) -> None:
        files, now = _files(path), time.monotonic()
        if not files:
            entry.trouble = f"{entry.name} is no longer where it was: what is shown was read before"
        elif files == entry.files:
            entry.trouble = ""
        elif now >= entry.not_before:
            try:
                found, version = open_run(path), entry.version + 1
                entry.run, entry.trouble = shared(found, (index, version), self._steps), ""
                entry.version = version
                entry.files = files
            except Exception as error:
                entry.trouble = f"{entry.name} has changed: {sentence_of(error)}"
            entry.not_before = time.monotonic() + (time.monotonic() - now) / _SHARE_OF_TIME


def _files(path: Path | None) -> Hashable:
    """Names, sizes and times of a run's journals; empty when there are none (any more)."""
    try:
        found = sorted(path.glob("*.mtj")) if path is not None else []
        return tuple((file.name, (at := file.stat()).st_size, at.st_mtime_ns) for file in found)
    except OSError:
        return ()


def _names(paths: Sequence[Path | None]) -> list[str]:
    """The folders' names; where two are alike, with as much in front as tells them apart, or a number."""
    names = [path.name or "run" if path is not None else "run" for path in paths]
    if len(set(names)) < len(names):
        names = [
            name if names.count(name) == 1 or path is None else "/".join(path.resolve().parts[-2:])
            for name, path in zip(names, paths, strict=True)
        ]
    return [
        name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)
    ]
