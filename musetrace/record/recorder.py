"""The recorder: one recording of one process, from the check of its output to its end chunk."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from musetrace.errors import MusetraceError, RecordError
from musetrace.job_table import JobTable
from musetrace.record import registry
from musetrace.record.collector import Collector, LiveCollector, OffCollector
from musetrace.record.drain import ClockRead, Drain, Stop
from musetrace.record.kernel_attachment import check_buffers, kernel_table, open_kernel_device
from musetrace.record.kernel_drain import KernelDrain
from musetrace.record.kernel_recording import KernelRecording
from musetrace.record.loss_ledger import LossLedger
from musetrace.record.opening import start_drain
from musetrace.record.recorded_step import RecordedStep
from musetrace.record.run_output import Ending, RunOutput
from musetrace.record.shared_run import open_output
from musetrace.record.source import BUFFERS, SLOT_BYTES_OF_STAMPS, StampSource
from musetrace.record.stamped_kernel import StampedKernel, kernel_that_is_off
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

    Where several processes record a run, the numbers are of the ``ranks`` of this one. ``stamps`` were taken
    out of the buffers. ``verdict`` is as of the store, and ``off`` for a recorder that was switched off or
    given no device. ``losses`` are those of the index when it was made, else the lost launches.
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

    def __init__(
        self,
        output: Path | None,
        *,
        force: bool = False,
        stamps: str = _DEFAULT_STAMPS,
        alone: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Check and reserve the output; None makes a recorder that is off. Raises RecordError."""
        if stamps not in SLOT_BYTES_OF_STAMPS:
            raise RecordError(f"stamps cannot be kept by {stamps!r}; choose register, store or off")
        self.stamps = stamps
        self.active = output is not None
        self.opened_at = registry.caller()
        self._close_lock = threading.Lock()
        self._ledger = LossLedger()
        self._collector: LiveCollector | None = None
        self._kernels: KernelRecording | None = None
        self._drain: Drain | None = None
        self._result: RecordingResult | None = None
        self._stopping = False
        self._interrupted = False
        self._output: RunOutput | None = None
        if output is not None:
            registry.refuse_second()
            self._output = open_output(output, force=force, alone=alone, timeout_s=timeout_s)
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
        for part in (self._drain, self._kernels):
            if part is not None and part.failure is not None:
                return f"failed: {part.failure}"
        return "closed" if self._stopping else "recording"

    @overload
    def attach(self, source: StampSource) -> Collector: ...

    @overload
    def attach(
        self,
        source: JobTable | Mapping[str, Any] | str | bytes | Callable[..., Any],
        grid: int | Sequence[int],
        *,
        name: str | None = None,
        device: str = "cuda",
        buffers: int = BUFFERS,
        bytes: Mapping[str, int] | None = None,
    ) -> StampedKernel: ...

    def attach(
        self,
        source: Any,
        grid: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        device: str = "cuda",
        buffers: int = BUFFERS,
        bytes: Mapping[str, int] | None = None,
    ) -> Collector | StampedKernel:
        """Record a kernel, before its first launch; several calls, several kernels.

        Args:
            source: the kernel's job table: a JobTable, its JSON (text or dict), or what a library exports by
                ``MUSETRACE_EXPORT_JOB_TABLE``, loaded by ctypes. Or a StampSource, which brings everything
                with it, is alone, and gets a Collector.
            grid: how many blocks the kernel is launched with, or its dimensions.
            name: what its launches are called in the run (default: the table's name).
            device: ``cuda``, torch's current GPU, or ``cpu``: threads of the host.
            buffers: launches that may be in flight or not drained yet; more of them count as lost.
            bytes: what all blocks together move in one launch, by the name of the job that moves it; from it
                comes the bandwidth that the run shows. Instead of what the table says.

        Raises:
            RecordError: it cannot be recorded; the program can go on without.
        """
        if not isinstance(source, StampSource):
            return self._attach_kernel(source, grid, name, device, buffers, bytes)
        if not self.active or self._output is None:
            return OffCollector()
        if self._kernels is not None:
            raise RecordError(
                "this recorder has kernels of other people; open another recorder for the device"
            )
        if self._stopping or self._drain is not None:
            raise RecordError("this recorder was closed or has a device already; open another recorder")
        # What keeps no stamps at all is recorded without, and the run says so.
        if source.slot_bytes not in (0, SLOT_BYTES_OF_STAMPS[self.stamps]):
            raise RecordError(
                f"the device keeps stamps of {source.slot_bytes} bytes, but the recorder was opened for "
                f"{self.stamps}; build the device with the recorder's stamps"
            )
        self._output.compare_clocks(source.peer_clock, source.tick_ns)
        self._drain = self._start_drain(source)
        self._collector = LiveCollector(self._drain, self._ledger)
        return self._collector

    def _attach_kernel(
        self,
        table: object,
        grid: int | Sequence[int] | None,
        name: str | None,
        device: str,
        buffers: int,
        moved: Mapping[str, int] | None,
    ) -> StampedKernel:
        if not self.active or self._output is None:
            return kernel_that_is_off(name or "kernel", blocks=0, on_gpu=device == "cuda")
        if self._stopping or (self._drain is not None and self._kernels is None):
            raise RecordError("this recorder was closed or has a device already; open another recorder")
        kernel = kernel_table(table, grid, name, moved)
        check_buffers(buffers)
        if self._kernels is None:
            opened = open_kernel_device(device)
            self._output.compare_clocks(opened.peer_clock, opened.tick_ns)
            self._kernels = KernelRecording(
                opened, SLOT_BYTES_OF_STAMPS[self.stamps], self._start_kernels, self._ledger
            )
        elif self._kernels.device.kind != device:
            raise RecordError(
                f"kernel {kernel.name} is for {device!r}, the kernels before it for "
                f"{self._kernels.device.kind!r}; record them in two runs"
            )
        return self._kernels.attach(kernel, buffers)

    def _start_kernels(self, source: StampSource, kernels: KernelDrain) -> Drain:
        self._drain = self._start_drain(source, kernels)
        return self._drain

    def _start_drain(self, source: StampSource, kernels: KernelDrain | None = None) -> Drain:
        if self._output is None:
            raise RecordError("this recorder is off")
        try:
            stamps = self.stamps if source.slot_bytes else "off"
            return start_drain(source, stamps, self._output, self._ledger, kernels)
        except RecordError as error:
            self._output.withdraw(str(error))
            raise

    def step(self, *, stream: object = None, tokens: int = 0) -> AbstractContextManager[RecordedStep]:
        """Around one step of launches of attached kernels; steps are numbered from 0.

        At its end the stamps of all captured launches are copied in the stream, so that the next replay comes
        behind that: each replay of a graph needs a step of its own, or only its last one is recorded. Outside
        of steps every launch is a step. The host's time of a step is that of the block, so wait in it for the
        device if that is to be part of it. The block's value takes the step's output, if that is to be
        compared (``RecordedStep.keep_output``).

        Args:
            stream: where the graphs are replayed (None: torch's current at the block's end).
            tokens: that the step decodes, up to 65535.

        Raises:
            RecordError: inside of another step.
        """
        if not self.active:
            return nullcontext(RecordedStep())
        if self._drain is not None and self._kernels is None:
            raise RecordError("step() is for kernels given to attach(); this recorder's device notes its own")
        return self._step(stream, tokens)

    def wait_for_room(self, timeout_s: float = 10.0) -> bool:
        """Between steps of attached kernels: hold back until all launches so far are drained.

        Without it, steps that come faster than they are drained lose launches, which are counted. Returns
        False when they are not drained in time, as when a launch hangs.
        """
        return self._kernels is None or self._kernels.wait_for_room(timeout_s)

    @contextlib.contextmanager
    def _step(self, stream: object, tokens: int) -> Iterator[RecordedStep]:
        kernels, recorded = self._kernels, RecordedStep()
        step = None if kernels is None else kernels.begin_step(tokens)
        try:
            yield recorded
        finally:
            if kernels is not None and step is not None:
                kernels.end_step(step, stream, recorded.made)

    def compare_clocks(self, *, when_due: bool = False) -> bool:
        """Between steps, in all processes that record the run: compare the GPUs' clocks once more.

        They are compared at the start and at the end by themselves; a comparison in between shows how evenly
        they run, and makes the times of different ranks fit better. Every process calls this equally often,
        at a place where no launch of it waits for another process. It takes some ms, and all go on at one
        time. A process that is late or whose GPU is busy holds the others up for a second at most, and three
        times in a row end it. In a process that is alone nothing is compared.

        Args:
            when_due: compare only where some seconds of steps are over, for a call after each step.

        Returns:
            Whether the clocks were compared now.
        """
        drain, output = self._drain, self._output
        if not self.active or self._stopping or drain is None or output is None:
            return False
        try:
            compared = output.clocks_between(when_due=when_due)
            if compared is not None and compared.peer is not None:
                drain.put(ClockRead(compared.onto(drain.read_clock())))
        except Exception:
            # What was recorded is none the worse; at the end the clocks are compared once more.
            return False
        return compared is not None

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
        if not index and self._output is not None:
            self._output.hurry()
        self._stop(reason)
        with self._close_lock:
            if self._result is None:
                try:
                    done = self._drain is None or self._drain.join(timeout_s)
                    ending = self._end_output()
                except KeyboardInterrupt:
                    # The user does not want to wait; the exit handler must not wait again.
                    self._interrupted = True
                    raise
                self._result = self._finish(done, index, ending)
                registry.leave(self)
        return self._result

    def _stop(self, reason: str) -> None:
        first, self._stopping = not self._stopping, True
        if first and self._kernels is not None:
            self._kernels.stop()
        if self._collector is not None:
            self._collector.closed = True
        if first and self._drain is not None:
            self._drain.put(Stop(reason))

    def _end_output(self) -> Ending:
        """Close with the other processes that record the run, and say which of them are missing."""
        if self._output is None:
            return Ending()
        ending = self._output.end(recorded=self._drain is not None)
        for line in ending.lines:
            print(f"musetrace: {line}", file=sys.stderr, flush=True)
        return ending

    def _finish(self, done: bool, index: bool, ending: Ending) -> RecordingResult:
        drain, output, path = self._drain, self._output, self.path
        if drain is None or output is None or path is None:
            return RecordingResult(path, "off", self.state)
        lost = sum(journal.lost_launches for journal in drain.journals)
        whole = done and not ending.lines and all(journal.failure is None for journal in drain.journals)
        verdict, losses = COMPLETE if whole else INCOMPLETE, {"lost_launches": lost}
        if index and done and output.indexes and ending.closed:
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
        if self._kernels is not None:
            self._kernels.closed = True
        if self._drain is not None:
            for journal in self._drain.journals:
                journal.writer.drop()


def open_recorder(
    path: str | os.PathLike[str] | None,
    *,
    force: bool = False,
    stamps: str | None = None,
    alone: bool = False,
    timeout_s: float | None = None,
) -> Recorder:
    """See :func:`musetrace.record`."""
    named = os.environ.get(OUTPUT_VARIABLE) or path
    chosen = stamps or os.environ.get(STAMPS_VARIABLE) or _DEFAULT_STAMPS
    output = Path(named) if named else None
    return Recorder(output, force=force, stamps=chosen, alone=alone, timeout_s=timeout_s)
