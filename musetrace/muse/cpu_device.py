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
from musetrace.muse.device import TOKENS, LaunchTimeoutError, draft_shape_of, shape_of
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.sharding import RankDraftLayer, shard_draft
from musetrace.muse.draft.weights import DraftWeights
from musetrace.muse.sharding import RankHead, RankLayer, RankShares, WholeShares
from musetrace.muse.weights import ModelWeights
from musetrace.record.cpu_kernel_device import aligned_zeros, cpu_name
from musetrace.record.kernel_device import tick_of
from musetrace.record.source import SLOT_BYTES_OF_STAMPS, StampSource

__all__ = [
    "DEFAULT_BUDGET_NS",
    "TOKENS",
    "CpuDevice",
    "LaunchTimeoutError",
    "clock_ns",
    "measure_tick_ns",
]

DEFAULT_BUDGET_NS = 30_000_000_000


class CpuDevice:
    """Virtual ranks of a model on this machine's CPU.

    Args:
        weights: the whole model, or where its ranks' shares come from.
        tp: ranks.
        blocks: blocks of a rank; each is 12 threads.
        capacity: positions in the KV cache.
        budget_ns: how long a wait inside a launch may take before the launch is given up.
        draft: of this model, whose weights come by :meth:`load_draft`; None for a device that only verifies.

    Raises:
        UsageError: the model cannot be run with this ``tp``, ``blocks`` or ``capacity``.
    """

    def __init__(
        self,
        weights: ModelWeights | RankShares,
        *,
        tp: int,
        blocks: int,
        capacity: int,
        budget_ns: int = DEFAULT_BUDGET_NS,
        draft: DraftConfig | None = None,
    ) -> None:
        shares = WholeShares(weights) if isinstance(weights, ModelWeights) else weights
        config = shares.config
        config.validate(tp)
        self.config, self.tp, self.ranks, self.blocks, self.capacity = config, tp, tp, blocks, capacity
        # As on a GPU's stream.
        self.launches_in_flight = 2
        self.draft = draft
        if draft is not None:
            draft.validate(config, tp)
        shape = shape_of(config, tp, blocks, capacity, config.num_hidden_layers)
        try:
            self._device = _core.cpu.Device(
                shape,
                stage_bytes=_stage_bytes(config, draft, tp),
                budget_ns=budget_ns,
                draft=None if draft is None else draft_shape_of(draft, tp),
            )
        except ValueError as error:
            raise UsageError(f"the CPU device cannot run model {config.name}: {error}") from None
        for rank in range(tp):
            for layer in range(config.num_hidden_layers):
                arrays = _arrays(shares.layer(layer, rank, tp))
                self._device.set_layer(rank, layer, arrays, config.is_global(layer))
            self._device.set_head(rank, _arrays(shares.head(rank, tp)))

    def load_draft(self, draft: DraftWeights) -> None:
        """Give every rank its share of the draft that the device was made for.

        Raises:
            UsageError: it is another one.
        """
        if draft.config != self.draft:
            raise UsageError(f"the device was made for another draft than {draft.config.name}")
        for rank in range(self.tp):
            share = shard_draft(draft, self.config, rank, self.tp)
            arrays = {name: _array(getattr(share, name)) for name in ("fc", "context_norm", "norm")}
            self._device.set_draft(rank, arrays, [_arrays(layer) for layer in share.layers])

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

    def set_step(self, **step: Any) -> None:
        """What a decode step starts from, on every rank; what is not named stays as it was.

        Args:
            step: ``position`` (tokens in the cache, behind which the root stands), ``tokens`` and ``parents``
                (16 each, of the tree's nodes; the root is node 0, its parent 0), ``kept`` and ``path`` (how
                many rows of the last pass are new in the cache, and 16 numbers that begin with which),
                ``top_k`` (1 to 8 candidates a depth), ``temperature`` (0 for greedy tokens) and ``seed``.

        Raises:
            UsageError: a number is out of range.
        """
        try:
            self._device.set_step(step)
        except ValueError as error:
            raise UsageError(f"a step cannot start so: {error}") from None

    def step(self, rank: int = 0) -> dict[str, Any]:
        """The step's state that the last launch left on a rank, by the names of :meth:`set_step`.

        ``path`` has the accepted nodes and ``chosen`` the tokens behind them.
        """
        return dict(self._device.step(rank))

    def features(self, rank: int) -> npt.NDArray[np.float32]:
        """Inputs of the draft's context of the last verify pass, float32[16, target layers * hidden]."""
        return from_bf16_bits(self._device.features(rank))

    def set_features(self, rank: int, features: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`features`; values are rounded to bf16."""
        self._device.set_features(rank, to_bf16_bits(features))

    def draft_kv(self, rank: int, layer: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """As :meth:`kv`, of a draft layer."""
        k, v = self._device.draft_kv(rank, layer)
        return from_bf16_bits(k), from_bf16_bits(v)

    def set_draft_kv(self, rank: int, layer: int, k: npt.NDArray[Any], v: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`draft_kv`; values are rounded to bf16."""
        self._device.set_draft_kv(rank, layer, to_bf16_bits(k), to_bf16_bits(v))

    def draft_q(self, rank: int) -> npt.NDArray[np.float32]:
        """Rank's q of the next draft layer, float32[16, heads of the rank * head_dim]."""
        return from_bf16_bits(self._device.draft_q(rank))

    def set_draft_q(self, rank: int, q: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`draft_q`; values are rounded to bf16."""
        self._device.set_draft_q(rank, to_bf16_bits(q))

    def set_delay(self, rank: int, job: int, delay_ns: int) -> None:
        """Sleep at the begin of a job of a rank, in all launches from now on: a fault to find again."""
        self._device.set_delay(rank, job, delay_ns)

    def launch(
        self, kind: str, layer: int, position: int, stamps: str = "off", address: int = 0, epoch: int = 0
    ) -> int:
        """See :meth:`Device.launch`; rank r's stamps go to ``address`` + r regions.

        Other kinds, which all run at ``FROM_STATE``: ``draft_context``, ``draft_layer``, ``draft_head``,
        ``draft_tree`` and ``accept``.
        """
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
        except ValueError as error:
            raise DeviceError(str(error)) from None

    def stamps_ready(self, ticket: int) -> Callable[[], None]:
        """See :meth:`Device.stamps_ready`."""
        return partial(self._wait_quietly, ticket)

    def _wait_quietly(self, ticket: int) -> None:
        with suppress(DeviceError):
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


def _stage_bytes(config: MuseConfig, draft: DraftConfig | None, tp: int) -> int:
    """A ring stage of the size the GPU uses, or the longest weight row where that is larger."""
    of_draft = 0 if draft is None else 2 * max(draft.feature_width // tp, draft.intermediate_size)
    return max(16384, 4 * config.hidden_size, of_draft)


def _arrays(shard: RankLayer | RankHead | RankDraftLayer) -> dict[str, npt.NDArray[Any]]:
    """A rank's tensors as arrays; bf16 as its bits in uint16."""
    tensors = {field.name: getattr(shard, field.name) for field in fields(shard)}
    return {name: _array(tensor) for name, tensor in tensors.items() if tensor is not None}


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    tensor = tensor.contiguous()
    return np.asarray(tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy())
