"""A recording of other people's kernels, as the program's threads see it.

Nothing here waits for the device. What goes wrong with the recording is said once, and the program goes on.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import musetrace
from musetrace.errors import OutputError, RecordError
from musetrace.record.cpu_kernel_device import aligned_zeros
from musetrace.record.drain import Drain, StepDone, WaitReported
from musetrace.record.graph_snapshots import GraphSnapshots
from musetrace.record.kernel_buffers import LentRegion, RegionPool, keep
from musetrace.record.kernel_device import KernelDevice
from musetrace.record.kernel_drain import DrainedKernel, KernelDrain, first_line
from musetrace.record.kernel_launch import Ended, KernelLaunch, nothing
from musetrace.record.kernel_table import KernelTable, bytes_of_kernels, combined_table
from musetrace.record.launch_numbers import MAX_LAYERS, LaunchNumber, LaunchNumbers, OpenStep
from musetrace.record.loss_ledger import (
    BUFFERS_BUSY,
    NEVER_SUBMITTED,
    NO_MEMORY,
    RECORDING_FAILED,
    TOO_MANY_LAUNCHES,
    LossLedger,
)
from musetrace.record.source import LaunchInfo, StampSource
from musetrace.record.stamped_kernel import LaunchStamps, RecordedLaunch, StampedKernel
from musetrace.step_output import output_of
from musetrace.store import limits

StartDrain = Callable[[StampSource, KernelDrain], Drain]

_LAUNCHED_AGAIN = "launched {launches} times with one region"

_POLL_S = 0.0002


@dataclass
class RecordedKernel:
    """A kernel of the recording; ``pool`` is None when the recorder keeps no stamps."""

    table: KernelTable
    drained: DrainedKernel
    pool: RegionPool | None


@dataclass(eq=False)
class OpenLaunch:
    """A launch whose ``with`` block is open; ``lent`` is None where it cannot be recorded, or is captured."""

    kernel: int
    stream: Any
    layer: int | None
    stamps: LaunchStamps
    number: LaunchNumber | None = None
    lent: LentRegion | None = None
    lost: str | None = None
    captured: bool = False
    submit_ns: int = field(default_factory=time.monotonic_ns)


class KernelRecording:
    """The kernels of one recorder, from the first that is attached to the close. Safe from several threads.

    ``closed`` ends it; ``failure`` says why it could not begin.
    """

    def __init__(self, device: KernelDevice, slot_bytes: int, start: StartDrain, ledger: LossLedger) -> None:
        """``start`` opens the journal and the drain thread, once all kernels are known."""
        self.device = device
        self.closed = False
        self.failure: str | None = None
        self.no_stamps = LaunchStamps(0, 0, device.kind == "cuda", device.no_region)
        self._slot_bytes = slot_bytes
        self._start = start
        self._ledger = ledger
        # A thread that is interrupted inside may close the recorder.
        self._lock = threading.RLock()
        self._kernels: list[RecordedKernel] = []
        self._graphs = GraphSnapshots(device, self._info)
        self._numbers = LaunchNumbers()
        self._open: set[OpenLaunch] = set()
        self._drain: Drain | None = None
        # Whether it is too late for one more kernel.
        self._is_sealed = False
        self._told_outputs = False

    def attach(self, kernel: KernelTable, buffers: int) -> StampedKernel:
        """One more kernel, with room for ``buffers`` launches. Raises RecordError."""
        with self._lock:
            if self._is_sealed or self.closed:
                raise RecordError(
                    f"kernel {kernel.name} is attached after the first launch or step: attach all before"
                )
            if kernel.name in {one.table.name for one in self._kernels}:
                raise RecordError(f"there are two kernels {kernel.name}: give attach() another name")
            combined_table([*(one.table for one in self._kernels), kernel])
            drained = DrainedKernel(kernel, self._slot_bytes)
            pool = None
            if self._slot_bytes:
                try:
                    pool = RegionPool(self.device, drained.layout, buffers)
                except (MemoryError, RuntimeError) as error:
                    raise RecordError(
                        f"no memory for {buffers} x {drained.layout.region_bytes} bytes of stamps of kernel "
                        f"{kernel.name}: {first_line(error)}; give attach() fewer buffers"
                    ) from None
            self._kernels.append(RecordedKernel(kernel, drained, pool))
            index = len(self._kernels) - 1
        return StampedKernel(kernel.name, kernel.blocks, partial(RecordedLaunch, self, index))

    def enter(self, kernel: int, stream: object, layer: int | None) -> OpenLaunch | None:
        """A launch begins; None when nothing is noted of it. Raises RecordError for bad arguments."""
        if layer is not None and not -(1 << 15) <= layer < 1 << 15:
            raise RecordError(f"layer {layer} cannot be recorded; it is -32768 to 32767")
        if self.closed:
            return None
        try:
            with self._lock:
                return self._enter(kernel, stream, layer)
        except RecordError:
            raise
        except Exception as error:
            self._fail(error)
            return None

    def _enter(self, kernel: int, stream: object, layer: int | None) -> OpenLaunch | None:
        found, captures = self._look_at(stream)
        if self.closed:
            return None
        if captures:
            # Opening the run may wait and use the GPU, which a capture forbids: the first step does it.
            return self._capture(kernel, layer)
        drain, one = self._started(), self._kernels[kernel]
        if drain is None:
            return None
        one.drained.launched += 1
        opened = OpenLaunch(kernel, found, layer, self.no_stamps, self._numbers.enter(kernel))
        if drain.failure is not None:
            opened.lost = RECORDING_FAILED
        elif one.pool is not None:
            opened.lent = one.pool.take()
            opened.lost = BUFFERS_BUSY if opened.lent is None else None
        if opened.lent is not None and one.pool is not None:
            opened.stamps = self._stamps(one, opened.lent.address, partial(one.pool.array, opened.lent))
        self._open.add(opened)
        return opened

    def _look_at(self, stream: object) -> tuple[Any, bool]:
        """The stream that a user names, and whether it is being captured."""
        try:
            found = self.device.stream(stream)
            return found, self.device.is_capturing(found)
        except RecordError:
            raise
        except Exception as error:
            self._fail(error)
            return None, False

    def _capture(self, kernel: int, layer: int | None) -> OpenLaunch | None:
        """A launch that becomes part of a graph."""
        one = self._kernels[kernel]
        self._is_sealed = True
        if one.pool is None or self.failure is not None:
            return None
        one.drained.launched += 1
        try:
            number = one.drained.captured % MAX_LAYERS
            slab, row = self._graphs.captured.add(
                kernel, one.drained.layout, number if layer is None else layer
            )
        except MemoryError:
            lost, _ = self._numbers.leave(None, kernel)
            self._ledger.note(self._info(lost, kernel, layer), NO_MEMORY)
            return None
        one.drained.captured += 1
        stamps = self._stamps(one, slab.regions.addresses[row], partial(slab.regions.array, row))
        return OpenLaunch(kernel, None, layer, stamps, captured=True)

    def _stamps(self, one: RecordedKernel, address: int, array: Callable[[], Any]) -> LaunchStamps:
        return LaunchStamps(address, one.drained.layout.region_bytes, self.device.kind == "cuda", array)

    def leave(self, opened: OpenLaunch, raised: bool) -> None:
        """A launch is in its stream; ``raised``: or it is not, because the program failed before."""
        if opened.captured or self.closed:
            return
        try:
            ended = None if opened.lost else self._bring(opened)
            with self._lock:
                self._open.discard(opened)
                if not self.closed:
                    self._submit(opened, ended, raised)
        except Exception as error:
            self._fail(error)

    def _bring(self, opened: OpenLaunch) -> Ended | None:
        """Queue the copy of a launch's stamps; None when the device failed."""
        pool = self._kernels[opened.kernel].pool
        try:
            with self.device.aside():
                if opened.lent is None or pool is None:
                    return self.device.mark(opened.stream)
                return pool.bring(opened.lent, opened.stream)
        except Exception as error:
            self._fail(error)
            return None

    def _submit(self, opened: OpenLaunch, ended: Ended | None, raised: bool) -> None:
        pool, drain = self._kernels[opened.kernel].pool, self._drain
        if drain is None or (raised and opened.lent is None):
            return
        number, alone = self._numbers.leave(opened.number, opened.kernel)
        info = self._info(number, opened.kernel, opened.layer)
        if ended is None or number.launch >= limits.MAX_LAUNCHES_PER_STEP - self._graphs.captured.count:
            self._ledger.note(info, opened.lost or (RECORDING_FAILED if ended is None else TOO_MANY_LAUNCHES))
        else:
            lent = opened.lent
            drain.put(
                KernelLaunch(
                    info=info,
                    memory=None if lent is None or pool is None else pool.memory(lent),
                    epoch=1 if lent is None else lent.epoch,
                    submit_ns=opened.submit_ns,
                    ended=ended,
                    give_back=nothing if lent is None or pool is None else partial(pool.give_back, lent),
                    may_be_absent=raised,
                    repeated=_LAUNCHED_AGAIN,
                )
            )
        if alone:
            # Nobody said how long the host took for it.
            drain.put(StepDone({"step": info.step, "host_begin_ns": 0, "host_end_ns": 0, "tokens": 0}))

    def _info(self, number: LaunchNumber, kernel: int, layer: int | None) -> LaunchInfo:
        return LaunchInfo(
            step=number.step,
            launch=min(number.launch, limits.MAX_LAUNCHES_PER_STEP - 1),
            layer=number.of_kernel if layer is None else layer,
            kind=self._kernels[kernel].table.name,
            kernel=kernel,
        )

    def begin_step(self, tokens: int) -> OpenStep | None:
        """A step begins; None when nothing is recorded. Raises RecordError inside of another step."""
        if self.closed:
            return None
        with self._lock:
            if not self._look_at(None)[1] and self._started() is None:
                return None
            return self._numbers.begin_step(tokens)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until every launch that is over was drained; False when that is not so in time."""
        deadline = time.monotonic() + timeout_s
        while not self._has_room():
            if self.closed or self.failure is not None or time.monotonic() > deadline:
                return False
            # Polled, so that the drain thread never has to wake anybody.
            time.sleep(_POLL_S)
        return True

    def _has_room(self) -> bool:
        with self._lock:
            lent = any(kernel.pool is not None and kernel.pool.is_lent for kernel in self._kernels)
            return not lent and self._graphs.has_room

    def end_step(self, step: OpenStep, stream: object, made: object = None) -> None:
        """A step ends: what it replayed is copied, in its stream, and what it made is hashed."""
        if self.closed:
            return
        end_ns = time.monotonic_ns()
        output = {} if made is None else self._hashed(made)
        with self._lock:
            drain = self._drain
            self._numbers.end_step()
            if drain is None or self.closed:
                return
            try:
                self._snapshot(step, stream)
            except RecordError:
                raise
            except Exception as error:
                self._fail(error)
            times = {"host_begin_ns": step.begin_ns, "host_end_ns": end_ns}
            drain.put(StepDone({"step": step.number, **times, "tokens": step.tokens, **output}))

    def _hashed(self, made: object) -> dict[str, Any]:
        """A step's output as the journal keeps it; what cannot be hashed is said once."""
        try:
            if self._look_at(None)[1]:
                raise OutputError("the stream is being captured, so that the output is not there yet")
            with self.device.aside():
                output = output_of(made)
            return {} if output is None else {"output": output.digest()}
        except Exception as error:
            self._tell_once(f"outputs of steps are not kept: {first_line(error)}")
            return {}

    def _tell_once(self, line: str) -> None:
        """On stderr and in the run."""
        drain, first = self._drain, not self._told_outputs
        self._told_outputs = True
        if first and drain is not None:
            drain.put(WaitReported({"kernel": "", "text": line}))
            with contextlib.suppress(Exception):
                print(f"musetrace: {line}", file=sys.stderr, flush=True)

    def _snapshot(self, step: OpenStep, stream: object) -> None:
        """Queue copies of all captured launches, whether their graph was replayed or not: the copies tell."""
        drain = self._drain
        if not self._graphs.captured.slabs or drain is None or drain.failure is not None:
            return
        found = self.device.stream(stream)
        if not self.device.is_capturing(found):
            with self.device.aside():
                for snapshot in self._graphs.take(step, found):
                    drain.put(snapshot)

    def stop(self) -> None:
        """No launch is recorded from now on; a recording without a launch begins, so that there is a run."""
        with self._lock:
            if self.closed:
                return
            drain = self._started()
            self.closed = True
            if drain is not None:
                for opened in self._open:
                    number, _ = self._numbers.leave(opened.number, opened.kernel)
                    self._ledger.note(self._info(number, opened.kernel, opened.layer), NEVER_SUBMITTED)
            if self._open:
                self._keep_pools()

    def _keep_pools(self) -> None:
        """Kernels may still be running that write to them."""
        keep([one.pool for one in self._kernels])

    def _started(self) -> Drain | None:
        """The drain thread, started before the first launch or step; None when it cannot be."""
        if self._drain is None and self.failure is None and self._kernels:
            self._is_sealed = True
            drained = [one.drained for one in self._kernels]
            at_end = partial(self._graphs.take_last, self._numbers)
            kernels = KernelDrain(drained, self.device.enter_thread, at_end, self._keep_pools)
            try:
                self._drain = self._start(self._source(), kernels)
            except RecordError as error:
                self.failure = str(error)
                with contextlib.suppress(Exception):
                    print(f"musetrace: nothing is recorded: {error}", file=sys.stderr, flush=True)
        return self._drain

    def _source(self) -> StampSource:
        device, table = self.device, combined_table([one.table for one in self._kernels])
        return StampSource(
            job_table=table,
            ranks=1,
            blocks=max(one.table.blocks for one in self._kernels),
            slot_bytes=self._slot_bytes,
            device=device.facts,
            model={},
            build={"musetrace": musetrace.__version__},
            clock_name=device.clock_name,
            tick_ns=device.tick_ns,
            read_clock=device.read_clock,
            allocate=aligned_zeros,
            anchor=device.anchor,
            job_bytes=bytes_of_kernels(table),
        )

    def _fail(self, error: BaseException) -> None:
        """The recording has failed, and the program goes on."""
        if self._drain is not None:
            self._drain.fail(f"{type(error).__name__}: {first_line(error)}")
