"""The recorder: one recording of one process, from the check of its output to its end chunk."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from musetrace.errors import MusetraceError, RecordError
from musetrace.record import registry
from musetrace.record.collector import Collector, LiveCollector, OffCollector
from musetrace.record.drain import Drain, Stop
from musetrace.record.loss_ledger import LossLedger
from musetrace.record.opening import start_drain
from musetrace.record.output import OutputFolder
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, StampSource
from musetrace.store.index import index_run
from musetrace.store.losses import COMPLETE, INCOMPLETE

OUTPUT_VARIABLE = "MUSETRACE_OUTPUT"
STAMPS_VARIABLE = "MUSETRACE_STAMPS"
_DEFAULT_STAMPS = "register"
# At exit, a launch that never ends must not keep the program from ending.
_EXIT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RecordingResult:
    """What became of a recording; ``launches`` and ``lost_launches`` count each rank's launch as one.

    ``stamps`` were taken out of the buffers. ``verdict`` is as of the store, and ``off`` for a recorder that
    was switched off or given no device. ``losses`` are those of the index when it was made, else the lost
    launches.
    """

    path: Path | None
    verdict: str
    state: str
    ranks: int = 0
    steps: int = 0
    launches: int = 0
    stamps: int = 0
    lost_launches: int = 0
    losses: dict[str, int] = field(default_factory=dict)


class Recorder:
    """Records the launches of one device into one folder. Context manager.

    ``active`` says whether it records at all, ``stamps`` how the device is to keep its stamps, ``state`` is
    ``recording``, ``closed``, ``off`` or ``failed: ...``.
    """

    def __init__(self, output: Path | None, *, force: bool = False, stamps: str = _DEFAULT_STAMPS) -> None:
        """Check and reserve the output; None makes a recorder that is off. Raises RecordError."""
        if stamps not in SLOT_BYTES_OF_STAMPS:
            raise RecordError(f"stamps cannot be kept by {stamps!r}; choose register, store or off")
        self.stamps = stamps
        self.active = output is not None
        self.opened_at = registry.caller()
        self._close_lock = threading.Lock()
        self._collector: LiveCollector | None = None
        self._drain: Drain | None = None
        self._result: RecordingResult | None = None
        self._stopping = False
        self._interrupted = False
        self._output: OutputFolder | None = None
        if output is not None:
            registry.refuse_second()
            self._output = OutputFolder(output, force=force)
            self._output.reserve()
            registry.enter(self)

    @property
    def path(self) -> Path | None:
        """The run's folder."""
        return self._output.path if self._output else None

    @property
    def state(self) -> str:
        """See the class."""
        if not self.active:
            return "off"
        if self._drain is not None and self._drain.failure is not None:
            return f"failed: {self._drain.failure}"
        return "closed" if self._stopping else "recording"

    def attach(self, source: StampSource) -> Collector:
        """Allocate everything, open the journals and start the drain thread, before the first launch.

        Raises RecordError; the program can go on without a recording then.
        """
        if not self.active or self._output is None:
            return OffCollector()
        if self._stopping or self._drain is not None:
            raise RecordError("this recorder was closed or has a device already; open another recorder")
        if source.slot_bytes != SLOT_BYTES_OF_STAMPS[self.stamps]:
            raise RecordError(
                f"the device keeps stamps of {source.slot_bytes} bytes, but the recorder was opened for "
                f"{self.stamps}; build the device with the recorder's stamps"
            )
        ledger = LossLedger()
        self._drain = start_drain(source, self.stamps, self._output, ledger)
        self._collector = LiveCollector(self._drain, ledger)
        return self._collector

    def close(self, reason: str = "closed") -> RecordingResult:
        """End the recording, write its totals and index it. Idempotent, from any thread."""
        return self._close(reason, index=True, timeout_s=None)

    def __enter__(self) -> Recorder:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        """Close it; what the program raised goes on."""
        self.close("closed" if kind is None else f"ended by {kind.__name__}")

    def _close(self, reason: str, *, index: bool, timeout_s: float | None) -> RecordingResult:
        if not self.active:
            return RecordingResult(self.path, "off", self.state)
        self._stop(reason)
        with self._close_lock:
            if self._result is None:
                try:
                    done = self._drain is None or self._drain.join(timeout_s)
                except KeyboardInterrupt:
                    # The user does not want to wait; the exit handler must not wait again.
                    self._interrupted = True
                    raise
                self._result = self._finish(done, index)
                registry.leave(self)
        return self._result

    def _stop(self, reason: str) -> None:
        first, self._stopping = not self._stopping, True
        if self._collector is not None:
            self._collector.closed = True
        if first and self._drain is not None:
            self._drain.put(Stop(reason))

    def _finish(self, done: bool, index: bool) -> RecordingResult:
        drain, path = self._drain, self.path
        if drain is None or path is None:
            if self._output is not None:
                self._output.discard()
            return RecordingResult(path, "off", self.state)
        lost = sum(journal.lost_launches for journal in drain.journals)
        whole = done and all(journal.failure is None for journal in drain.journals)
        verdict, losses = COMPLETE if whole else INCOMPLETE, {"lost_launches": lost}
        if index and done:
            # The recording is safe on disk; an index that cannot be made now is made when it is opened.
            with contextlib.suppress(MusetraceError, OSError):
                manifest = index_run(path)
                verdict, losses = manifest["verdict"], manifest["losses"]
        return RecordingResult(
            path=path,
            verdict=verdict,
            state=self.state,
            ranks=len(drain.journals),
            steps=max(journal.steps for journal in drain.journals),
            launches=sum(journal.launches for journal in drain.journals),
            stamps=drain.stamps,
            lost_launches=lost,
            losses=losses,
        )

    def close_at_exit(self) -> None:
        """End the recording without indexing it, unless the user interrupted that already."""
        if not self._interrupted:
            self._close("the program ended", index=False, timeout_s=_EXIT_TIMEOUT_S)

    def switch_off_in_child(self) -> None:
        """After a fork: switch off without taking a lock, and let go of the parent's files."""
        self.active = False
        if self._collector is not None:
            self._collector.closed = True
        if self._drain is not None:
            for journal in self._drain.journals:
                journal.writer.drop()


def open_recorder(
    path: str | os.PathLike[str] | None, *, force: bool = False, stamps: str | None = None
) -> Recorder:
    """See :func:`musetrace.record`."""
    named = os.environ.get(OUTPUT_VARIABLE) or path
    chosen = stamps or os.environ.get(STAMPS_VARIABLE) or _DEFAULT_STAMPS
    return Recorder(Path(named) if named else None, force=force, stamps=chosen)
