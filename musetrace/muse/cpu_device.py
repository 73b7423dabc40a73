"""The CPU device for Python: one rank's or all ranks' weights in, launches out.

A device runs a whole decoder layer per launch on virtual ranks, whose blocks' warps are threads
(``csrc/cpu``). Its rounding points are those of ``musetrace.muse.rounding``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from musetrace import _core
from musetrace.errors import DeviceError, UsageError
from musetrace.job_table import JobTable
from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.config import MuseConfig
from musetrace.muse.device import TOKENS, LaunchTimeoutError, shape_of
from musetrace.muse.sharding import RankHead, RankLayer, shard_head, shard_layer
from musetrace.muse.weights import ModelWeights
from musetrace.record.cpu_kernel_device import aligned_zeros, cpu_name
from musetrace.record.kernel_device import tick_of
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, StampSource

__all__ = ["DEFAULT_BUDGET_NS", "TOKENS", "CpuDevice", "LaunchTimeoutError", "clock_ns", "measure_tick_ns"]

DEFAULT_BUDGET_NS = 30_000_000_000


class CpuDevice:
    """Virtual ranks of a model on this machine's CPU.

    Args:
        weights: the whole model; every rank takes its share.
        tp: ranks.
        blocks: blocks of a rank; each is 12 threads.
        capacity: positions in the KV cache.
        budget_ns: how long a wait inside a launch may take before the launch is given up.

    Raises:
        UsageError: the model cannot be run with this ``tp``, ``blocks`` or ``capacity``.
    """

    def __init__(
        self,
        weights: ModelWeights,
        *,
        tp: int,
        blocks: int,
        capacity: int,
        budget_ns: int = DEFAULT_BUDGET_NS,
    ) -> None:
        config = weights.config
        config.validate(tp)
        self.config, self.tp, self.ranks, self.blocks, self.capacity = config, tp, tp, blocks, capacity
        # As on a GPU's stream.
        self.launches_in_flight = 2
        shape = shape_of(config, tp, blocks, capacity, config.num_hidden_layers)
        try:
            self._device = _core.cpu.Device(shape, stage_bytes=_stage_bytes(config), budget_ns=budget_ns)
        except ValueError as error:
            raise UsageError(f"the CPU device cannot run model {config.name}: {error}") from None
        for rank in range(tp):
            for layer in weights.layers:
                arrays = _arrays(shard_layer(layer, config, rank, tp))
                self._device.set_layer(rank, layer.layer, arrays, config.is_global(layer.layer))
            self._device.set_head(rank, _arrays(shard_head(weights.head, config, rank, tp)))

    def set_residual(self, residual: npt.NDArray[np.float32]) -> None:
        """The residual stream float32[16, hidden] of the next launch, on every rank."""
        self._device.set_residual(np.ascontiguousarray(residual, dtype=np.float32))

    def residual(self, rank: int) -> npt.NDArray[np.float32]:
        """The residual stream float32[16, hidden] that the last launch left on a rank."""
        return np.asarray(self._device.residual(rank))

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits float32[16, vocab] of the last ``head`` launch, all ranks' shares together."""
        return np.concatenate([self._device.logits(rank) for rank in range(self.tp)], axis=1)

    def projection(self, rank: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Rank's q and gate, float32[16, heads of the rank * head_dim], for the next launch."""
        q, gate = self._device.projection(rank)
        return from_bf16_bits(q), from_bf16_bits(gate)

    def set_projection(self, rank: int, q: npt.NDArray[Any], gate: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`projection`; values are rounded to bf16."""
        self._device.set_projection(rank, to_bf16_bits(q), to_bf16_bits(gate))

    def kv(self, rank: int, layer: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Rank's keys and values of a layer, float32[kv heads of the rank, capacity, head_dim]."""
        k, v = self._device.kv(rank, layer)
        return from_bf16_bits(k), from_bf16_bits(v)

    def set_kv(self, rank: int, layer: int, k: npt.NDArray[Any], v: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`kv`; values are rounded to bf16."""
        self._device.set_kv(rank, layer, to_bf16_bits(k), to_bf16_bits(v))

    def set_delay(self, rank: int, job: int, delay_ns: int) -> None:
        """Sleep at the begin of a job of a rank, in all launches from now on: a fault to find again."""
        self._device.set_delay(rank, job, delay_ns)

    def launch(
        self, kind: str, layer: int, position: int, stamps: str = "off", address: int = 0, epoch: int = 0
    ) -> int:
        """See :meth:`Device.launch`; rank r's stamps go to ``address`` + r regions."""
        try:
            return int(self._device.launch(kind, layer, position, stamps, address, epoch))
        except ValueError as error:
            raise DeviceError(str(error)) from None

    def wait(self, ticket: int) -> None:
        """See :meth:`Device.wait`."""
        try:
            self._device.wait(ticket)
        except _core.cpu.LaunchFailed as error:
            raise LaunchTimeoutError(error.args[0], JobTable.built_in()) from None

    def stamps_ready(self, ticket: int) -> Callable[[], None]:
        """See :meth:`Device.stamps_ready`."""
        return partial(self._wait_quietly, ticket)

    def _wait_quietly(self, ticket: int) -> None:
        with suppress(LaunchTimeoutError):
            self.wait(ticket)

    def stamp_source(self, stamps: str, model: dict[str, Any], build: dict[str, Any]) -> StampSource:
        """See :meth:`Device.stamp_source`."""
        return StampSource(
            job_table=JobTable.built_in(),
            ranks=self.tp,
            blocks=self.blocks,
            slot_bytes=SLOT_BYTES_OF_STAMPS[stamps],
            device={"kind": "cpu", "name": cpu_name(), "warps": "threads", "virtual_ranks": self.tp},
            model=model,
            build=build,
            clock_name="CLOCK_MONOTONIC",
            tick_ns=measure_tick_ns(),
            read_clock=clock_ns,
            allocate=aligned_zeros,
        )


def clock_ns() -> int:
    """The clock of the device's stamps, in ns."""
    return int(_core.cpu.clock_ns())


def measure_tick_ns(reads: int = 20_000) -> int:
    """Smallest step seen between two reads of the stamp clock, in ns; what a single stamp can be off by."""
    return tick_of(clock_ns() for _ in range(reads))


def _stage_bytes(config: MuseConfig) -> int:
    """A ring stage of the size the GPU uses, or one fp32 router row where that is larger."""
    return max(16384, 4 * config.hidden_size)


def _arrays(shard: RankLayer | RankHead) -> dict[str, npt.NDArray[Any]]:
    """A rank's tensors as arrays; bf16 as its bits in uint16."""
    arrays = {}
    for field in fields(shard):
        tensor = getattr(shard, field.name)
        if tensor is None:
            continue
        tensor = tensor.contiguous()
        arrays[field.name] = (
            tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
        )
    return arrays
