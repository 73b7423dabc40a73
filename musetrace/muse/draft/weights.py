"""Weights of a draft model: under the public parameter names, synthetic and seeded.

Projections are bf16 [out, in], norms fp32 plain factors. Embedding and output projection are the target's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.random_tensors import RandomTensors

# Attributes and the public parameter names behind "layers.N.".
LAYER_NAMES = {
    "input_norm": "input_layernorm.weight",
    "q_proj": "self_attn.q_proj.weight",
    "k_proj": "self_attn.k_proj.weight",
    "v_proj": "self_attn.v_proj.weight",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o_proj": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate_proj": "mlp.gate_proj.weight",
    "up_proj": "mlp.up_proj.weight",
    "down_proj": "mlp.down_proj.weight",
}
OUTER_NAMES = {"fc": "fc.weight", "context_norm": "hidden_norm.weight", "norm": "norm.weight"}


@dataclass(frozen=True)
class DraftLayerWeights:
    """One draft layer, of all ranks.

    H hidden, D heads x head_dim, Dkv kv heads x head_dim, d head_dim, I intermediate.

    Attributes:
        input_norm, mlp_norm: fp32 [H]; q_norm, k_norm: fp32 [d].
        q_proj: [D, H]; k_proj, v_proj: [Dkv, H]; o_proj: [H, D].
        gate_proj, up_proj: [I, H]; down_proj: [H, I].
    """

    input_norm: Tensor
    q_proj: Tensor
    k_proj: Tensor
    v_proj: Tensor
    q_norm: Tensor
    k_norm: Tensor
    o_proj: Tensor
    mlp_norm: Tensor
    gate_proj: Tensor
    up_proj: Tensor
    down_proj: Tensor


@dataclass(frozen=True)
class DraftWeights:
    """A whole draft.

    Attributes:
        fc: bf16 [H, F x H], F target layers side by side; context_norm, norm: fp32 [H].
        layers: as many as the configuration says.
    """

    config: DraftConfig
    fc: Tensor
    context_norm: Tensor
    layers: tuple[DraftLayerWeights, ...]
    norm: Tensor

    def state_dict(self) -> dict[str, Tensor]:
        """Public parameter name -> the tensor as it is kept."""
        state = {name: getattr(self, field) for field, name in OUTER_NAMES.items()}
        for number, layer in enumerate(self.layers):
            for field, name in LAYER_NAMES.items():
                state[f"layers.{number}.{name}"] = getattr(layer, field)
        return state


def layer_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each attribute of :class:`DraftLayerWeights`."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    return {
        "input_norm": (hidden,),
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "q_norm": (head,),
        "k_norm": (head,),
        "o_proj": (hidden, queries),
        "mlp_norm": (hidden,),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }


def synthesize_draft(config: DraftConfig, seed: int) -> DraftWeights:
    """A whole draft; two bytes per weight (mini: 26 MB)."""
    outer = RandomTensors(seed, "draft")
    hidden = config.hidden_size
    return DraftWeights(
        config=config,
        fc=_projection(outer, "fc", (hidden, config.feature_width)),
        context_norm=1 + outer.norm("context_norm", hidden),
        layers=tuple(_layer(config, seed, number) for number in range(config.num_hidden_layers)),
        norm=1 + outer.norm("norm", hidden),
    )


def _layer(config: DraftConfig, seed: int, number: int) -> DraftLayerWeights:
    source = RandomTensors(seed, f"draft.{number}")
    tensors = {}
    for field, shape in layer_shapes(config).items():
        is_norm = len(shape) == 1
        tensors[field] = 1 + source.norm(field, shape[0]) if is_norm else _projection(source, field, shape)
    return DraftLayerWeights(**tensors)


def _projection(source: RandomTensors, name: str, shape: tuple[int, ...]) -> Tensor:
    return source.bf16(name, shape, 1 / math.sqrt(shape[-1]))
