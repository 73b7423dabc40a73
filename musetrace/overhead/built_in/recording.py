"""A recorder while it is measured: it records into a temporary folder that is removed."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from musetrace.errors import RecordError
from musetrace.record.recorder import Recorder
from musetrace.record.source import StampSource

_ROOM_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 60.0
# Frames and numbers around the stamps of a launch, and what else is on the disk meanwhile.
_DISK_SHARE = 1.2


class TemporaryRecording:
    """An attached recorder. Context manager: the folder is removed at its end.

    Args:
        source: the device.
        stamps: how it keeps its stamps.
        launches: that will be recorded in all.
        folder: where to make the temporary folder; None for the system's place.

    Raises:
        RecordError: the recorder cannot start, or the disk has no room for what it will write.
    """

    def __init__(self, source: StampSource, stamps: str, launches: int, folder: Path | None = None) -> None:
        self._folder = _made(folder)
        try:
            _require_room(Path(self._folder.name), launches * source.ranks * source.layout.region_bytes)
            self._recorder = Recorder(Path(self._folder.name) / "run", stamps=stamps)
            self.collector = self._recorder.attach(source)
        except BaseException:
            self._folder.cleanup()
            raise
        self._buffers = source.buffers
        self._drained_ns: list[int] = []
        self._steps = 0
        self.stamps = stamps

    def wait_for_room(self, launches: int) -> int:
        """Hold back until a step of so many launches can be taken. Returns the number to file it under."""
        self.collector.wait_free(launches, _ROOM_TIMEOUT_S)
        self._steps += 1
        return self._steps - 1

    def finish_step(self, step: int, begin_ns: int, end_ns: int) -> None:
        """A step is over: host times, ns."""
        self.collector.step(step, begin_ns, end_ns)

    def drain(self) -> None:
        """Until all that was handed over is written."""
        begin_ns = time.perf_counter_ns()
        self.collector.wait_free(self._buffers, _DRAIN_TIMEOUT_S)
        self._drained_ns.append(time.perf_counter_ns() - begin_ns)

    def end(self) -> dict[str, Any]:
        """End the recording. Returns what became of it, in JSON types; launches count once for each rank."""
        # Nobody reads this run, so it needs no index.
        self._recorder.close_at_exit()
        result = self._recorder.close()
        files = [file for file in Path(self._folder.name).rglob("*") if file.is_file()]
        return {
            "stamps": self.stamps,
            "state": result.state,
            "steps": self._steps,
            "launches": result.launches,
            "lost_launches": result.lost_launches,
            "bytes": sum(file.stat().st_size for file in files),
            "drained_behind_turn_ns": float(np.median(self._drained_ns)) if self._drained_ns else None,
        }

    def __enter__(self) -> TemporaryRecording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it if that was not done, and remove the folder."""
        self._recorder.close_at_exit()
        self._folder.cleanup()


def _made(folder: Path | None) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="musetrace-overhead-", dir=folder)
    except OSError as error:
        raise RecordError(f"cannot make a temporary folder in {folder}: {error.strerror}") from error


def _require_room(folder: Path, need_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < _DISK_SHARE * need_bytes:
        raise RecordError(
            f"it may write {need_bytes / 1e9:.1f} GB, and {folder.parent} has {free_bytes / 1e9:.1f} free; "
            "name another place with TMPDIR, or run fewer --rounds or --steps"
        )
