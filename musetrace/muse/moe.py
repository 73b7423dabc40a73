"""The expert half of a layer: router, pooler, experts, unpooler."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import centred_norm, input_scaled_norm
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.rounding import Rounding, linear, linear_over_ranks, ordered_sum
from musetrace.muse.weights import Experts, LayerWeights

# Keeps the weights finite when every chosen score is zero; a constant of the public model.
ROUTING_SUM_EPS = 1e-15


@dataclass(frozen=True)
class Routing:
    """Where tokens go.

    Attributes:
        logits: fp32 [tokens, E], times the output multiplier.
        scores: fp32 [tokens, E], their sigmoid.
        experts: int64 [tokens, top-k], by descending biased score, ties to the lower id.
        weights: fp32 [tokens, top-k], in the same order.
    """

    logits: Tensor
    scores: Tensor
    experts: Tensor
    weights: Tensor


@dataclass(frozen=True)
class ExpertStates:
    """What one expert made of its tokens.

    Attributes:
        expert: its id.
        tokens: int64 [n], ascending.
        activated: [n, I], silu(gate) * up.
        down: [n, Hm].
        normed: fp32 [n, Hm], behind the norm, before the routing weight.
    """

    expert: int
    tokens: Tensor
    activated: Tensor
    down: Tensor
    normed: Tensor


@dataclass(frozen=True)
class MoeStates:
    """Every value between X and the unpooled sum, in the order of computation. Hm is moe_hidden_size."""

    routing: Routing
    pooled: Tensor  # [tokens, Hm]
    expert_input: Tensor  # [tokens, Hm]
    experts: tuple[ExpertStates, ...]  # ascending expert id, only those with tokens
    combined: Tensor  # [tokens, Hm]
    unpooled: Tensor  # fp32 [tokens, H]


def select(scores: Tensor, bias: Tensor, config: MuseConfig) -> tuple[Tensor, Tensor]:
    """Experts and weights [tokens, top-k] from scores [tokens, E]; the bias [E] only sways the choice."""
    order = torch.sort(scores + bias, dim=-1, descending=True, stable=True).indices
    experts = order[:, : config.num_experts_per_tok]
    chosen = scores.gather(1, experts)
    total = ordered_sum([column[:, None] for column in chosen.unbind(dim=-1)])
    return experts, chosen / (total + ROUTING_SUM_EPS) * config.routed_scaling_factor


def route(config: MuseConfig, weights: LayerWeights, x: Tensor) -> Routing:
    """Route X [tokens, H]."""
    logits = linear(x, weights.router) * config.output_multiplier
    scores = torch.sigmoid(logits)
    return Routing(logits, scores, *select(scores, weights.router_bias, config))


def expert_linear(inputs: Tensor, experts: Experts, expert: int) -> Tensor:
    """Fp32 [n, rows]: the accumulator times the fp32 scale of the expert's matrix (1 for bf16 experts)."""
    if not isinstance(experts, Nvfp4Tensor):
        return linear(inputs, experts[expert])
    matrix = Nvfp4Tensor(experts.codes[expert], experts.scales[expert], experts.global_scale[expert])
    return linear(inputs, matrix.dequantize_unscaled()) * matrix.global_scale


def run_expert(
    config: MuseConfig, weights: LayerWeights, expert: int, inputs: Tensor, tokens: Tensor, rounding: Rounding
) -> ExpertStates:
    """One expert on those rows of ``inputs`` [all tokens, Hm] that ``tokens`` [n] names."""
    gate, up = expert_linear(inputs[tokens], weights.gate_up, expert).chunk(2, dim=-1)
    activated = rounding.to_bf16(functional.silu(gate) * up)
    down = rounding.to_bf16(expert_linear(activated, weights.down, expert))
    normed = input_scaled_norm(down, weights.post_expert_norm, config.post_norm_eps, rounding)
    return ExpertStates(expert, tokens, activated, down, normed)


def combine(inputs: Tensor, routing: Routing, experts: tuple[ExpertStates, ...]) -> Tensor:
    """Fp32 sum, shaped like ``inputs``, of a token's experts times their weights, in ascending expert id."""
    total = torch.zeros_like(inputs)
    for states in experts:
        slot = (routing.experts[states.tokens] == states.expert).int().argmax(dim=-1)
        weight = routing.weights[states.tokens, slot]
        total[states.tokens] += states.normed * weight[:, None]
    return total


def moe_forward(
    config: MuseConfig, weights: LayerWeights, x: Tensor, rounding: Rounding, tp: int
) -> MoeStates:
    """The expert half on X [tokens, H] (already normed and rounded)."""
    routing = route(config, weights, x)
    pooled = rounding.to_bf16(linear(x, weights.pooler))
    inputs = rounding.to_bf16(centred_norm(pooled, weights.pre_expert_norm, config.rms_norm_eps))
    states = []
    for expert in range(config.num_local_experts):
        tokens = (routing.experts == expert).any(dim=-1).nonzero().flatten()
        if len(tokens):
            states.append(run_expert(config, weights, expert, inputs, tokens, rounding))
    combined = rounding.to_bf16(combine(inputs, routing, tuple(states)))
    unpooled = linear_over_ranks(combined, weights.unpooler, tp, rounding)
    return MoeStates(routing, pooled, inputs, tuple(states), combined, unpooled)
