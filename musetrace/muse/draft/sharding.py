"""What one rank holds of a draft.

``qkv`` and ``gate_up`` are split along N, ``fc``, ``o`` and ``down`` along K: their partial sums meet in an
all-reduce. The features that a rank's ``gate_up`` makes are those that its ``down`` reads, so nothing is
gathered between ranks in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.weights import DraftLayerWeights, DraftWeights


@dataclass(frozen=True)
class RankDraftLayer:
    """One rank's share of a draft layer; contiguous tensors on the CPU.

    hq and hkv are the heads of the rank, d head_dim, H hidden, I intermediate.

    Attributes:
        qkv: bf16 [(hq + hkv + hkv) * d, H]; rows of the q, k and v heads, in this order.
        o: bf16 [H, hq * d], columns of the rank's heads.
        gate_up: bf16 [2 I / tp, H]; row 2 j is gate j and row 2 j + 1 is up j of the rank's features.
        down: bf16 [H, I / tp], columns of the rank's features.
        input_norm, mlp_norm: fp32 [H]; q_norm, k_norm: fp32 [d]. Plain factors.
    """

    qkv: Tensor
    o: Tensor
    gate_up: Tensor
    down: Tensor
    input_norm: Tensor
    mlp_norm: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True)
class RankDraft:
    """One rank's share of a draft.

    Attributes:
        fc: bf16 [H, F x H / tp]; columns [r F H / tp, (r + 1) F H / tp) of the features, rank r.
        context_norm, norm: fp32 [H], plain factors.
        layers: in their order.
    """

    fc: Tensor
    context_norm: Tensor
    norm: Tensor
    layers: tuple[RankDraftLayer, ...]


def shard_draft(weights: DraftWeights, target: MuseConfig, rank: int, tp: int) -> RankDraft:
    """The share of ``rank`` of ``tp``.

    Raises:
        UsageError: ``tp`` does not divide the draft, or there is no such rank.
    """
    weights.config.validate(target, tp)
    if not 0 <= rank < tp:
        raise UsageError(f"there is no rank {rank} among {tp}; ranks count from 0")
    return RankDraft(
        fc=_share(weights.fc, rank, tp, dim=1),
        context_norm=weights.context_norm.contiguous(),
        norm=weights.norm.contiguous(),
        layers=tuple(_shard_layer(layer, rank, tp) for layer in weights.layers),
    )


def _shard_layer(layer: DraftLayerWeights, rank: int, tp: int) -> RankDraftLayer:
    gate, up = (_share(matrix, rank, tp, dim=0) for matrix in (layer.gate_proj, layer.up_proj))
    heads = (_share(matrix, rank, tp, dim=0) for matrix in (layer.q_proj, layer.k_proj, layer.v_proj))
    return RankDraftLayer(
        qkv=torch.cat(list(heads)),
        o=_share(layer.o_proj, rank, tp, dim=1),
        gate_up=torch.stack((gate, up), dim=1).flatten(0, 1),
        down=_share(layer.down_proj, rank, tp, dim=1),
        input_norm=layer.input_norm.contiguous(),
        mlp_norm=layer.mlp_norm.contiguous(),
        q_norm=layer.q_norm.contiguous(),
        k_norm=layer.k_norm.contiguous(),
    )


def _share(tensor: Tensor, rank: int, tp: int, dim: int) -> Tensor:
    return tensor.chunk(tp, dim=dim)[rank].clone(memory_format=torch.contiguous_format)
