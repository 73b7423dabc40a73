"""Verify passes of a model on the CPU device: one launch per layer, recorded or not.

A pass is an ``entry`` launch (embedded tokens to the first layer's projections), one launch per layer, and a
``head`` launch. Two launches are in flight at a time, as on a GPU's stream.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

import musetrace
from musetrace import _core
from musetrace.abi import JobTable
from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cpu_device import (
    DEFAULT_BUDGET_NS,
    TOKENS,
    CpuDevice,
    LaunchTimeoutError,
    clock_ns,
    measure_tick_ns,
)
from musetrace.muse.reference import embed
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.weights import synthesize
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, LaunchInfo, StampSource

if TYPE_CHECKING:
    from musetrace.record.collector import Collector
    from musetrace.record.recorder import Recorder

LAUNCHES_IN_FLIGHT = 2
# Beyond this a step of the CPU device takes minutes.
LARGEST_HIDDEN = 2048


class Engine:
    """A seeded synthetic model on the CPU device.

    Args:
        model: a preset's name or a configuration.
        tp: virtual ranks.
        blocks: blocks of a rank.
        seed: of the weights.
        capacity: positions in the KV cache; the model's own limit by default.
        budget_ns: of a wait inside a launch.

    Raises:
        UsageError: no such model, or it cannot be run so.
    """

    def __init__(
        self,
        model: str | MuseConfig = "mini",
        *,
        tp: int = 2,
        blocks: int = 2,
        seed: int = 0,
        capacity: int | None = None,
        budget_ns: int = DEFAULT_BUDGET_NS,
    ) -> None:
        self.config = preset(model) if isinstance(model, str) else model
        if self.config.hidden_size > LARGEST_HIDDEN:
            raise UsageError(f"model {self.config.name} is too large for the CPU device; use --model mini")
        self.seed = seed
        with one_torch_thread():
            self.weights = synthesize(self.config, seed)
        self.device = CpuDevice(
            self.weights,
            tp=tp,
            blocks=blocks,
            capacity=capacity or self.config.max_position_embeddings,
            budget_ns=budget_ns,
        )
        self._collector: Collector | None = None
        self._stamps = "off"
        self._in_flight: deque[int] = deque()

    def attach(self, recorder: Recorder) -> None:
        """Record every pass from now on.

        Raises:
            RecordError: the recorder cannot start.
        """
        collector = recorder.attach(self.stamp_source(recorder.stamps))
        self._stamps = recorder.stamps
        self._collector = collector

    def detach(self) -> None:
        """Run without a recorder from now on."""
        self._collector, self._stamps = None, "off"

    def stamp_source(self, stamps: str) -> StampSource:
        """What this device tells a recorder; ``stamps`` is ``register``, ``store`` or ``off``."""
        return StampSource(
            job_table=JobTable.built_in(),
            ranks=self.device.tp,
            blocks=self.device.blocks,
            slot_bytes=SLOT_BYTES_OF_STAMPS[stamps],
            device={
                "kind": "cpu",
                "name": _cpu_name(),
                "warps": "threads",
                "virtual_ranks": self.device.tp,
            },
            model=self.config.to_json() | {"seed": self.seed, "weights": "synthetic"},
            build={"musetrace": musetrace.__version__, "stamps": stamps, "tp": self.device.tp},
            clock_name="CLOCK_MONOTONIC",
            tick_ns=measure_tick_ns(),
            read_clock=clock_ns,
            allocate=_allocate,
        )

    def verify(
        self, ids: npt.NDArray[np.int64], position: int, step: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Run 16 tokens through the model.

        Args:
            ids: int64[16], at the positions from ``position`` on; their keys and values enter the cache.
            step: the number under which a recorder files the launches; None for a pass that is not recorded.

        Returns:
            Logits float32[16, vocab].

        Raises:
            UsageError: not 16 tokens, or one outside the vocabulary.
            DeviceError: no room in the cache, or a wait inside a launch ran out of time.
        """
        if ids.shape != (TOKENS,):
            raise UsageError(f"a verify pass takes {TOKENS} token ids, not an array of shape {ids.shape}")
        with one_torch_thread():
            residual = embed(self.config, self.weights.head, torch.from_numpy(ids))
        self.device.set_residual(residual.numpy())
        layers = self.config.num_hidden_layers
        try:
            self._launch("entry", 0, position, _info(step, 0, -1, "entry"))
            for layer in range(layers):
                info = _info(step, layer + 1, layer, self.config.layer_kind(layer))
                self._launch("layer", layer, position, info)
            self._launch("head", layers, position, _info(step, layers + 1, layers, "head"))
            while self._in_flight:
                self.device.wait(self._in_flight.popleft())
        except LaunchTimeoutError as error:
            self._in_flight.clear()
            if self._collector is not None:
                self._collector.report(error.report)
            raise
        return self.device.logits()

    def finish_step(self, step: int, begin_ns: int, end_ns: int, tokens: int) -> None:
        """Tell the recorder that a step is over: host times (ns) and how many tokens it decoded."""
        if self._collector is not None:
            self._collector.step(step, begin_ns, end_ns, tokens)

    def _launch(self, kind: str, layer: int, position: int, info: LaunchInfo | None) -> None:
        if len(self._in_flight) == LAUNCHES_IN_FLIGHT:
            self.device.wait(self._in_flight.popleft())
        lease = None if self._collector is None or info is None else self._collector.acquire(info)
        address, epoch = (0, 0) if lease is None else (lease.address, lease.epoch)
        ticket = self.device.launch(kind, layer, position, self._stamps, address, epoch)
        self._in_flight.append(ticket)
        if lease is not None and self._collector is not None:
            self._collector.submit(lease, self._ended(ticket))

    def _ended(self, ticket: int) -> Callable[[], None]:
        return partial(_wait_quietly, self.device, ticket)


def _info(step: int | None, launch: int, layer: int, kind: str) -> LaunchInfo | None:
    return None if step is None else LaunchInfo(step, launch, layer, kind)


def _wait_quietly(device: CpuDevice, ticket: int) -> None:
    """Until a launch has ended, well or not: what it stamped is worth keeping either way."""
    try:
        device.wait(ticket)
    except LaunchTimeoutError:
        return


def _cpu_name() -> str:
    """The processor as the kernel names it, else its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _allocate(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed uint8[size_bytes], aligned for whole-register flushes."""
    align = int(_core.abi.REGION_ALIGN)
    memory = np.zeros(size_bytes + align, dtype=np.uint8)
    offset = -memory.ctypes.data % align
    return memory[offset : offset + size_bytes]
