"""Synthetic weights of a Muse Spark Open model, seeded, under the public parameter names.

Each tensor depends on (seed, layer, name) alone (an expert matrix on its number too), so one layer, or one
expert, can be made without the rest. The values are those of ``random_tensors``.

The quantised experts *are* the model: ``state_dict`` gives their dequantised values. Dense weights are bf16,
router and residual gates fp32, as in the public checkpoint. Norm weights are such that ``1 + w`` is exact in
bf16, so it does not matter in which precision the sum is taken. No norm, bias or gate is trivial: each term
of the layer changes the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.random_tensors import RandomTensors

# Attributes of LayerWeights and the public parameter names behind "layers.N.".
DENSE_NAMES = {
    "input_norm": "input_layernorm.weight",
    "q_proj": "self_attn.q_proj.weight",
    "k_proj": "self_attn.k_proj.weight",
    "v_proj": "self_attn.v_proj.weight",
    "gate_proj": "self_attn.gate_proj.weight",
    "o_proj": "self_attn.o_proj.weight",
    "attn_gate": "post_attention_residual_gate.gate",
    "pre_ffn_norm": "pre_feedforward_layernorm.weight",
    "router": "mlp.gate.weight",
    "router_bias": "mlp.gate.e_score_correction_bias",
    "pooler": "mlp.pre_expert_proj.weight",
    "pre_expert_norm": "mlp.pre_expert_norm.weight",
    "post_expert_norm": "mlp.experts.post_expert_norm.weight",
    "unpooler": "mlp.post_expert_proj.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight",
    "ffn_gate": "post_feedforward_residual_gate.gate",
}
EXPERT_NAMES = {"gate_up": "mlp.experts.gate_up_proj", "down": "mlp.experts.down_proj"}

Experts = Tensor | Nvfp4Tensor


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one decoder layer, of all ranks.

    H hidden, D heads x head_dim, Dkv kv heads x head_dim, Hm moe_hidden, I moe_intermediate, E experts.
    Projections are bf16 [out, in]; ``router`` and the vectors are fp32.

    Attributes:
        input_norm: [H]; a centred norm multiplies by ``1 + w``, as all norms of a layer do.
        q_proj: [D, H]; k_proj, v_proj: [Dkv, H]; gate_proj: [D, H]; o_proj: [H, D].
        attn_gate: [H], parameter of the residual gate behind attention; ffn_gate: the one behind the experts.
        router: [E, H]; router_bias: [E], added for the selection only.
        pooler: [Hm, H]; unpooler: [H, Hm].
        gate_up: [E, 2I, Hm], the I gate rows of an expert before its I up rows; down: [E, Hm, I]. A bf16
            tensor or an Nvfp4Tensor, see ``MuseConfig.expert_format``.
        pre_expert_norm, post_expert_norm: [Hm].
        pre_ffn_norm, post_ffn_norm: [H].
    """

    layer: int
    input_norm: Tensor
    q_proj: Tensor
    k_proj: Tensor
    v_proj: Tensor
    gate_proj: Tensor
    o_proj: Tensor
    attn_gate: Tensor
    pre_ffn_norm: Tensor
    router: Tensor
    router_bias: Tensor
    pooler: Tensor
    pre_expert_norm: Tensor
    gate_up: Experts
    down: Experts
    post_expert_norm: Tensor
    unpooler: Tensor
    post_ffn_norm: Tensor
    ffn_gate: Tensor

    def state_dict(self) -> dict[str, Tensor]:
        """Public parameter name -> fp32 values, experts dequantised."""
        state = {name: getattr(self, field).float() for field, name in DENSE_NAMES.items()}
        state |= {name: expert_values(getattr(self, field)) for field, name in EXPERT_NAMES.items()}
        return {f"layers.{self.layer}.{name}": value for name, value in state.items()}


@dataclass(frozen=True)
class HeadWeights:
    """What stands outside the layers.

    Attributes:
        embed_tokens: bf16 [V, H].
        norm: fp32 [H], a plain factor (not 1 + w).
        lm_head: bf16 [V, H].
    """

    embed_tokens: Tensor
    norm: Tensor
    lm_head: Tensor


@dataclass(frozen=True)
class ModelWeights:
    """A whole model in memory; ``layers[i].layer == i``."""

    config: MuseConfig
    layers: tuple[LayerWeights, ...]
    head: HeadWeights

    def state_dict(self) -> dict[str, Tensor]:
        """Public parameter name -> fp32 values. ``lm_head.weight`` stands outside the public text model."""
        state = {
            "embed_tokens.weight": self.head.embed_tokens.float(),
            "norm.weight": self.head.norm.float(),
            "lm_head.weight": self.head.lm_head.float(),
        }
        for layer in self.layers:
            state |= layer.state_dict()
        return state


def expert_values(experts: Experts) -> Tensor:
    """Fp32 [E, rows, K] of bf16 or quantised experts."""
    return experts.dequantize() if isinstance(experts, Nvfp4Tensor) else experts.float()


def synthesize(config: MuseConfig, seed: int) -> ModelWeights:
    """A whole model. Memory: two bytes per dense weight, 9/16 per quantised one (mini: 15 MB)."""
    layers = tuple(synthesize_layer(config, seed, layer) for layer in range(config.num_hidden_layers))
    return ModelWeights(config, layers, synthesize_head(config, seed))


def synthesize_head(config: MuseConfig, seed: int) -> HeadWeights:
    """Embedding, final norm and output projection. Logits reach the bend of the soft cap."""
    source = RandomTensors(seed, None)
    vocab, hidden = config.vocab_size, config.hidden_size
    logit_std = 0.4 * config.final_logit_softcapping
    return HeadWeights(
        embed_tokens=source.bf16("embed_tokens.weight", (vocab, hidden), 1.0),
        norm=1 + source.norm("norm.weight", hidden),
        lm_head=source.bf16(
            "lm_head.weight", (vocab, hidden), logit_std / (math.sqrt(hidden) * config.output_multiplier)
        ),
    )


def synthesize_layer(config: MuseConfig, seed: int, layer: int) -> LayerWeights:
    """One decoder layer; equal to ``synthesize(config, seed).layers[layer]``.

    Raises:
        UsageError: the model has no such layer.
    """
    quantised = config.expert_format(layer) == "nvfp4"
    source = RandomTensors(seed, layer)
    hidden, moe, inner = config.hidden_size, config.moe_hidden_size, config.moe_intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    experts = config.num_local_experts

    def dense(field: str, rows: int, columns: int) -> Tensor:
        return source.bf16(DENSE_NAMES[field], (rows, columns), 1 / math.sqrt(columns))

    def norm(field: str, width: int) -> Tensor:
        return source.norm(DENSE_NAMES[field], width)

    # Unit inputs give router logits of unit size, as a trained router's are: far from a tie, far from
    # saturation.
    router_std = 1 / (math.sqrt(hidden) * config.output_multiplier)
    return LayerWeights(
        layer=layer,
        input_norm=norm("input_norm", hidden),
        q_proj=dense("q_proj", queries, hidden),
        k_proj=dense("k_proj", keys, hidden),
        v_proj=dense("v_proj", keys, hidden),
        gate_proj=dense("gate_proj", queries, hidden),
        o_proj=dense("o_proj", hidden, queries),
        attn_gate=source.residual_gate(DENSE_NAMES["attn_gate"], config),
        pre_ffn_norm=norm("pre_ffn_norm", hidden),
        router=source.normal(DENSE_NAMES["router"], (experts, hidden), router_std),
        router_bias=source.normal(DENSE_NAMES["router_bias"], (experts,), 0.1),
        pooler=dense("pooler", moe, hidden),
        pre_expert_norm=norm("pre_expert_norm", moe),
        gate_up=source.experts(EXPERT_NAMES["gate_up"], (experts, 2 * inner, moe), quantised),
        down=source.experts(EXPERT_NAMES["down"], (experts, moe, inner), quantised),
        post_expert_norm=norm("post_expert_norm", moe),
        unpooler=dense("unpooler", hidden, moe),
        post_ffn_norm=norm("post_ffn_norm", hidden),
        ffn_gate=source.residual_gate(DENSE_NAMES["ffn_gate"], config),
    )
