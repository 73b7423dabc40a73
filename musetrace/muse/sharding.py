"""What one rank of a tensor-parallel group holds.

Everything is split along N (whole output rows), except ``o`` and ``unpooler``, which are split along K: their
partial sums meet in the all-reduce. Experts are quantised whole and then cut along N, so no cut goes through
a block of 16 and every rank has the same scales as a single one would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import residual_gate
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.weights import Experts, HeadWeights, LayerWeights, ModelWeights


@dataclass(frozen=True)
class RankLayer:
    """One rank's share of a layer; contiguous tensors on the CPU.

    hq and hkv are the heads of the rank, d head_dim, H hidden, Hm moe_hidden, I moe_intermediate, E experts.

    Attributes:
        qkvg: bf16 [(hq + hkv + hkv + hq) * d, H]; rows of the q, k, v and gate heads, in this order. The q
            heads of a rank are those of its kv heads.
        o: bf16 [H, hq * d], columns of the rank's heads.
        pooler: bf16 [Hm / tp, H].
        router: fp32 [E / tp, H]; router_bias: fp32 [E], whole, since every rank selects over all experts.
        gate_up: bf16 [E, 2 I / tp, Hm], or None for NVFP4. Row 2 j is gate j and row 2 j + 1 is up j of the
            rank's I / tp features.
        gate_up_codes: uint8 [E, 2 I / tp, Hm / 2], rows as in gate_up, or None for bf16.
        gate_up_scales: uint8 [E, 2 I / tp, Hm / 16].
        gate_up_global: fp32 [E].
        down: bf16 [E, Hm / tp, I], or None for NVFP4; down_codes, down_scales, down_global as for gate_up.
        unpooler: bf16 [H, Hm / tp], columns.
        input_norm, pre_ffn_norm, post_ffn_norm: fp32 [H], as 1 + w.
        pre_expert_norm, post_expert_norm: fp32 [Hm], as 1 + w.
        attn_alpha, attn_beta, ffn_alpha, ffn_beta: fp32 [H], see ``norms.residual_gate``.
    """

    qkvg: Tensor
    o: Tensor
    pooler: Tensor
    router: Tensor
    router_bias: Tensor
    gate_up: Tensor | None
    gate_up_codes: Tensor | None
    gate_up_scales: Tensor | None
    gate_up_global: Tensor | None
    down: Tensor | None
    down_codes: Tensor | None
    down_scales: Tensor | None
    down_global: Tensor | None
    unpooler: Tensor
    input_norm: Tensor
    pre_ffn_norm: Tensor
    post_ffn_norm: Tensor
    pre_expert_norm: Tensor
    post_expert_norm: Tensor
    attn_alpha: Tensor
    attn_beta: Tensor
    ffn_alpha: Tensor
    ffn_beta: Tensor


@dataclass(frozen=True)
class RankHead:
    """One rank's share of what stands outside the layers.

    Attributes:
        embed: bf16 [V, H], whole; shared by the ranks, not copied.
        final_norm: fp32 [H], a plain factor.
        lm_head: bf16 [V / tp, H].
    """

    embed: Tensor
    final_norm: Tensor
    lm_head: Tensor


class RankShares(Protocol):
    """Where the ranks' shares of a model come from."""

    @property
    def config(self) -> MuseConfig:
        """The model."""

    @property
    def host_head(self) -> HeadWeights:
        """What stands outside the layers, whole."""

    def layer(self, layer: int, rank: int, tp: int) -> RankLayer:
        """The share of ``rank`` of ``tp`` in a layer."""

    def head(self, rank: int, tp: int) -> RankHead:
        """The share of ``rank`` of ``tp`` in what stands outside the layers."""


class WholeShares:
    """Shares of a model that is whole in memory."""

    def __init__(self, model: ModelWeights) -> None:
        self.config = model.config
        self.host_head = model.head
        self._layers = model.layers

    def layer(self, layer: int, rank: int, tp: int) -> RankLayer:
        """See :class:`RankShares`."""
        return shard_layer(self._layers[layer], self.config, rank, tp)

    def head(self, rank: int, tp: int) -> RankHead:
        """See :class:`RankShares`."""
        return shard_head(self.host_head, self.config, rank, tp)


def shard_layer(weights: LayerWeights, config: MuseConfig, rank: int, tp: int) -> RankLayer:
    """The share of ``rank`` of ``tp``.

    Raises:
        UsageError: ``tp`` does not divide the model, or there is no such rank.
    """
    check_rank(config, rank, tp)

    def rows(tensor: Tensor) -> Tensor:
        return _share(tensor, rank, tp, dim=0)

    attn_alpha, attn_beta = residual_gate(weights.attn_gate, config.residual_gate_temperature)
    ffn_alpha, ffn_beta = residual_gate(weights.ffn_gate, config.residual_gate_temperature)
    projections = (weights.q_proj, weights.k_proj, weights.v_proj, weights.gate_proj)
    gate_up = _expert_rows(_interleaved(weights.gate_up), rank, tp)
    down = _expert_rows(weights.down, rank, tp)
    return RankLayer(
        qkvg=torch.cat([rows(projection) for projection in projections]),
        o=_share(weights.o_proj, rank, tp, dim=1),
        pooler=rows(weights.pooler),
        router=rows(weights.router),
        router_bias=weights.router_bias.contiguous(),
        gate_up=gate_up if isinstance(gate_up, Tensor) else None,
        gate_up_codes=gate_up.codes if isinstance(gate_up, Nvfp4Tensor) else None,
        gate_up_scales=gate_up.scales if isinstance(gate_up, Nvfp4Tensor) else None,
        gate_up_global=gate_up.global_scale if isinstance(gate_up, Nvfp4Tensor) else None,
        down=down if isinstance(down, Tensor) else None,
        down_codes=down.codes if isinstance(down, Nvfp4Tensor) else None,
        down_scales=down.scales if isinstance(down, Nvfp4Tensor) else None,
        down_global=down.global_scale if isinstance(down, Nvfp4Tensor) else None,
        unpooler=_share(weights.unpooler, rank, tp, dim=1),
        input_norm=1 + weights.input_norm,
        pre_ffn_norm=1 + weights.pre_ffn_norm,
        post_ffn_norm=1 + weights.post_ffn_norm,
        pre_expert_norm=1 + weights.pre_expert_norm,
        post_expert_norm=1 + weights.post_expert_norm,
        attn_alpha=attn_alpha,
        attn_beta=attn_beta,
        ffn_alpha=ffn_alpha,
        ffn_beta=ffn_beta,
    )


def shard_head(weights: HeadWeights, config: MuseConfig, rank: int, tp: int) -> RankHead:
    """The share of ``rank`` of ``tp``. Raises UsageError as :func:`shard_layer` does."""
    check_rank(config, rank, tp)
    return RankHead(
        embed=weights.embed_tokens.contiguous(),
        final_norm=weights.norm.float().contiguous(),
        lm_head=_share(weights.lm_head, rank, tp, dim=0),
    )


def check_rank(config: MuseConfig, rank: int, tp: int) -> None:
    """Refuse a rank that is none of ``tp``, or a ``tp`` that does not divide the model. Raises UsageError."""
    config.validate(tp)
    if not 0 <= rank < tp:
        raise UsageError(f"there is no rank {rank} among {tp}; ranks count from 0")


def _share(tensor: Tensor, rank: int, tp: int, dim: int) -> Tensor:
    # A copy even where a view would do: a share does not keep the whole alive, and its address is aligned.
    return tensor.chunk(tp, dim=dim)[rank].clone(memory_format=torch.contiguous_format)


def _expert_rows(experts: Experts, rank: int, tp: int) -> Experts:
    if isinstance(experts, Nvfp4Tensor):
        codes, scales = (_share(part, rank, tp, dim=1) for part in (experts.codes, experts.scales))
        return Nvfp4Tensor(codes, scales, experts.global_scale.contiguous())
    return _share(experts, rank, tp, dim=1)


def _interleaved(experts: Experts) -> Experts:
    """Gate and up rows in turn; a rank's contiguous share then holds both rows of each of its features."""

    def interleave(rows: Tensor) -> Tensor:
        return torch.stack(rows.chunk(2, dim=1), dim=2).flatten(1, 2)

    if isinstance(experts, Nvfp4Tensor):
        return Nvfp4Tensor(interleave(experts.codes), interleave(experts.scales), experts.global_scale)
    return interleave(experts)
