"""The CPU device for Python: one rank's or all ranks' weights in, launches out.

A device runs a whole decoder layer per launch on virtual ranks, whose blocks' warps are threads
(``csrc/cpu``). Its rounding points are those of ``musetrace.muse.rounding``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from musetrace import _core
from musetrace.abi import JobTable, wait_sentence
from musetrace.errors import DeviceError, UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.sharding import RankHead, RankLayer, shard_head, shard_layer
from musetrace.muse.weights import ModelWeights

# Tokens of one verify pass.
TOKENS: int = _core.cpu.TOKENS
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
        self.config, self.tp, self.blocks, self.capacity = config, tp, blocks, capacity
        shape = _shape(config, tp, blocks, capacity)
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
        return _from_bf16(q), _from_bf16(gate)

    def set_projection(self, rank: int, q: npt.NDArray[Any], gate: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`projection`; values are rounded to bf16."""
        self._device.set_projection(rank, _to_bf16(q), _to_bf16(gate))

    def kv(self, rank: int, layer: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Rank's keys and values of a layer, float32[kv heads of the rank, capacity, head_dim]."""
        k, v = self._device.kv(rank, layer)
        return _from_bf16(k), _from_bf16(v)

    def set_kv(self, rank: int, layer: int, k: npt.NDArray[Any], v: npt.NDArray[Any]) -> None:
        """Inverse of :meth:`kv`; values are rounded to bf16."""
        self._device.set_kv(rank, layer, _to_bf16(k), _to_bf16(v))

    def set_delay(self, rank: int, job: int, delay_ns: int) -> None:
        """Sleep at the begin of a job of a rank, in all launches from now on: a fault to find again."""
        self._device.set_delay(rank, job, delay_ns)

    def launch(
        self, kind: str, layer: int, position: int, stamps: str = "off", address: int = 0, epoch: int = 0
    ) -> int:
        """Queue a launch and return its ticket.

        Args:
            kind: ``entry`` (first layer's projections of the residual stream), ``layer``, or ``head``.
            layer: for ``layer``: which.
            position: of the first of the 16 tokens.
            stamps: ``register``, ``store`` or ``off``.
            address: of rank 0's stamp region; 0 when the launch is not recorded.
            epoch: of the launch, written into every block header.

        Raises:
            DeviceError: the KV cache has no room for the tokens.
        """
        try:
            return int(self._device.launch(kind, layer, position, stamps, address, epoch))
        except ValueError as error:
            raise DeviceError(str(error)) from None

    def wait(self, ticket: int) -> None:
        """Until the launch has ended.

        Raises:
            LaunchTimeoutError: a wait in it ran out of time; the device is usable afterwards.
        """
        try:
            self._device.wait(ticket)
        except _core.cpu.LaunchFailed as error:
            raise LaunchTimeoutError(error.args[0]) from None


class LaunchTimeoutError(DeviceError):
    """A wait inside a launch ran out of time; ``report`` is the wait report as a dict of ints."""

    def __init__(self, report: dict[str, int]) -> None:
        self.report = report
        sentence = wait_sentence(report, JobTable.built_in())
        super().__init__(f"a launch was given up: {sentence}; the device is usable, run the step again")


def clock_ns() -> int:
    """The clock of the device's stamps, in ns."""
    return int(_core.cpu.clock_ns())


def measure_tick_ns(reads: int = 20_000) -> int:
    """Smallest step seen between two reads of the stamp clock, in ns; what a single stamp can be off by."""
    times = np.fromiter((clock_ns() for _ in range(reads)), dtype=np.int64, count=reads)
    steps = np.diff(times)
    steps = steps[steps > 0]
    # The interpreter is between two reads, so the step is an upper bound; a finer clock shows by its residue.
    return int(np.gcd.reduce(steps)) if steps.size else 1


def _shape(config: MuseConfig, tp: int, blocks: int, capacity: int) -> dict[str, float]:
    return {
        "ranks": tp,
        "blocks": blocks,
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "q_heads": config.num_attention_heads // tp,
        "kv_heads": config.num_key_value_heads // tp,
        "head_dim": config.head_dim,
        "moe_hidden": config.moe_hidden_size,
        "intermediate": config.moe_intermediate_size,
        "experts": config.num_local_experts,
        "top_k": config.num_experts_per_tok,
        "vocab": config.vocab_size // tp,
        "capacity": capacity,
        "window": config.sliding_window,
        "rms_eps": config.rms_norm_eps,
        "post_eps": config.post_norm_eps,
        "qk_scale": config.qk_scale_factor,
        "output_multiplier": config.output_multiplier,
        "softcap": config.final_logit_softcapping,
        "routed_scale": config.routed_scaling_factor,
        "rope_theta": config.rope_theta,
    }


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


def _to_bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    tensor = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(torch.bfloat16)
    return np.asarray(tensor.view(torch.uint16).numpy())


def _from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
