"""A rank's weights in GPU memory, as the layer kernel reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.packed_layer import PackedExperts, pack_layer
from musetrace.muse.packing import pack_bf16
from musetrace.muse.rope import rope_tables
from musetrace.muse.sharding import RankHead, RankLayer

# What a layer has beside its matrices; fp32 vectors, see RankLayer.
VECTORS = (
    "router_bias",
    "input_norm",
    "pre_ffn_norm",
    "post_ffn_norm",
    "pre_expert_norm",
    "post_expert_norm",
    "attn_alpha",
    "attn_beta",
    "ffn_alpha",
    "ffn_beta",
)


def upload_layer(layer: RankLayer, device: torch.device) -> dict[str, Tensor]:
    """Pack a layer and copy it to the GPU.

    Returns:
        Tensors by the kernel's names: packed matrices uint8, ``router``, factors and vectors fp32.

    Raises:
        UsageError: a size does not fit the tiles.
    """
    packed = pack_layer(layer)
    tensors = {name: _to(getattr(packed, name).data, device) for name in ("qkvg", "o", "pooler", "unpooler")}
    tensors["router"] = _to(packed.router, device)
    for name in ("gate_up", "down"):
        experts: PackedExperts = getattr(packed, name)
        tensors[name] = _to(experts.data, device)
        tensors[f"{name}_factor"] = _to(experts.factor, device)
    for name in VECTORS:
        tensors[name] = getattr(layer, name).to(device).contiguous()
    return tensors


def upload_head(head: RankHead, device: torch.device) -> dict[str, Tensor]:
    """Pack lm_head and copy it, with the final norm, to the GPU."""
    bits = head.lm_head.contiguous().view(torch.int16).numpy().view(np.uint16)
    return {
        "lm_head": _to(pack_bf16(bits), device),
        "final_norm": head.final_norm.to(device).contiguous(),
    }


def rope_table(config: MuseConfig | DraftConfig, capacity: int, device: torch.device) -> Tensor:
    """Cosine and sine of each position and pair of dimensions, fp32 [capacity, head_dim / 2, 2]."""
    tables = rope_tables(config, torch.arange(capacity))
    return torch.stack(tables, dim=-1).contiguous().to(device)


def addresses(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Device address of each tensor; the caller keeps the tensors."""
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def load_chain(
    chain: Any, config: MuseConfig, layers: Iterable[dict[str, int]], head: dict[str, int], rope: int
) -> None:
    """Tell a chain of ordinary kernels (``csrc/baseline``) where one rank's weights are.

    Args:
        layers: the addresses of each layer's tensors.
        head: those of ``lm_head`` and ``final_norm``.
        rope: that of the table of :func:`rope_table`.

    Raises:
        ValueError: a tensor is missing, or a layer is one too many.
    """
    for layer, of_layer in enumerate(layers):
        facts = {
            "global_attention": config.is_global(layer),
            "bf16_experts": config.expert_format(layer) == "bf16",
        }
        chain.set_layer(layer, of_layer | facts)
    chain.set_head(**head)
    chain.set_rope(rope)


def _to(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
