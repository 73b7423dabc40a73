"""The built-in step as sides: launched one by one on the CPU device, as one CUDA graph on a GPU."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.abi import StampLayout
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import Device
from musetrace.muse.engine import Engine
from musetrace.muse.graph_pass import StepGraph
from musetrace.muse.passes import EagerPasses, Recording
from musetrace.overhead.built_in.inputs import StepInputs
from musetrace.overhead.built_in.kept_regions import KeptRegions
from musetrace.overhead.built_in.recording import TemporaryRecording
from musetrace.overhead.clocks import Stopwatch
from musetrace.overhead.result import LAUNCHES, OFF, STEP
from musetrace.overhead.stamp_count import StampCount, count_stamps
from musetrace.overhead.turns import StepDone
from musetrace.step_output import output_of


@dataclass(frozen=True)
class Shared:
    """What all sides have in common: one engine with its weights, the inputs, what times the launches."""

    engine: Engine
    inputs: StepInputs
    stopwatch: Stopwatch


class BuiltInSide(ABC):
    """One build of the step.

    Two times are taken of each step: that of its launches, and that of the whole step as the host sees it,
    from the rows that go in to the logits that come out, with all that a recorder does before, between and
    behind.

    Args:
        name: of the side.
        build: ``register``, ``store`` or ``off``; on a GPU also ``absent``.
        shared: what all sides have in common.
        recording: the recorder that records this side; None for a side that is not recorded.
    """

    def __init__(
        self,
        name: str,
        build: str,
        shared: Shared,
        recording: TemporaryRecording | None = None,
    ) -> None:
        self.name = name
        self._device, self._plan = shared.engine.device, shared.engine.plan
        self._inputs, self._stopwatch, self._recording = shared.inputs, shared.stopwatch, recording

    def step(self, number: int) -> StepDone:
        """See :meth:`Side.step`. Raises DeviceError when a launch was given up."""
        rows = self._inputs.rows(number)
        begin_ns = time.monotonic_ns()
        filed_as = number if self._recording is None else self._recording.wait_for_room(len(self._plan))
        self._device.set_residual(rows)
        launches = self._launch(filed_as)
        logits = self._device.logits()
        end_ns = time.monotonic_ns()
        if self._recording is not None:
            self._recording.finish_step(filed_as, begin_ns, end_ns)
            end_ns = time.monotonic_ns()
        times_ns = {LAUNCHES: self._stopwatch.elapsed_ns(), STEP: float(end_ns - begin_ns)}
        return StepDone(times_ns, output_of(logits), launches)

    def rest(self) -> None:
        """See :meth:`Side.rest`: what was recorded is drained."""
        if self._recording is not None:
            self._recording.drain()

    def count_stamps(self) -> StampCount | None:
        """Run a step and count what it stamps; None without stamps, or where they are drained."""
        layout = self._stamp_layout()
        if layout is None or layout.slot_bytes == 0 or self._recording is not None:
            return None
        self._clear_stamps()
        self.step(0)
        return count_stamps(self._stamped(), layout, self._device.ranks)

    @abstractmethod
    def _launch(self, step: int) -> int:
        """Make the launches of a step, timed, and wait for their end. Returns how many there were."""

    @abstractmethod
    def _stamp_layout(self) -> StampLayout | None:
        """Of a rank's region; None without stamps."""

    @abstractmethod
    def _clear_stamps(self) -> None:
        """Make the regions empty."""

    @abstractmethod
    def _stamped(self) -> list[npt.NDArray[np.uint8]]:
        """The regions of each launch of a step, uint8[ranks * region_bytes]."""


class EagerSide(BuiltInSide):
    """Launch after launch, on any device."""

    def __init__(
        self,
        name: str,
        build: str,
        shared: Shared,
        recording: TemporaryRecording | None = None,
    ) -> None:
        super().__init__(name, build, shared, recording)
        engine = shared.engine
        self._counted = _CountedLaunches(engine.device)
        self._passes = EagerPasses(self._counted, engine.plan)
        self._kept: KeptRegions | None = None
        self._with: Recording | None = None
        self._layout: StampLayout | None = None
        if recording is not None:
            self._with = Recording(recording.collector, build)
        elif build != OFF:
            source = engine.stamp_source(build)
            self._kept, self._layout = KeptRegions(source, len(engine.plan)), source.layout
            self._with = Recording(self._kept, build)

    def _launch(self, step: int) -> int:
        before = self._counted.made
        self._stopwatch.start()
        self._passes.run(self._inputs.position, self._with, step)
        self._stopwatch.stop()
        return self._counted.made - before

    def _stamp_layout(self) -> StampLayout | None:
        return self._layout

    def _clear_stamps(self) -> None:
        if self._kept is not None:
            self._kept.clear()

    def _stamped(self) -> list[npt.NDArray[np.uint8]]:
        return [] if self._kept is None else self._kept.memory


class _CountedLaunches:
    """A device that counts the launches which pass through."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.made = 0

    def launch(self, *request: Any) -> int:
        """See :meth:`Device.launch`."""
        self.made += 1
        return self._device.launch(*request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


class GraphSide(BuiltInSide):
    """A replay of a captured step, on a GPU."""

    def __init__(
        self,
        name: str,
        build: str,
        shared: Shared,
        recording: TemporaryRecording | None = None,
    ) -> None:
        super().__init__(name, build, shared, recording)
        assert isinstance(self._device, CudaDevice)
        self._graph = StepGraph(self._device, self._plan, build)

    def _launch(self, step: int) -> int:
        collector = None if self._recording is None else self._recording.collector
        leases = (
            [] if collector is None else collector.acquire_all([one.info(step) for one in self._plan]) or []
        )
        self._stopwatch.start()
        ticket = self._graph.replay(self._inputs.position, leases)
        self._stopwatch.stop()
        if collector is not None:
            ended = self._graph.fetch(leases)
            for lease in leases:
                collector.submit(lease, ended.synchronize)
        self._device.wait(ticket)
        return self._graph.launches

    def _stamp_layout(self) -> StampLayout | None:
        return self._graph.layout

    def _clear_stamps(self) -> None:
        self._graph.fetch([]).synchronize()

    def _stamped(self) -> list[npt.NDArray[np.uint8]]:
        return list(self._graph.regions.cpu().numpy())
