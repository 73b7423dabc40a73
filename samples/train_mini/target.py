"""The target model as torch trains it: batches, gradients, and the experts' rounding to NVFP4.

The same function as ``musetrace.muse.reference`` computes one pass at a time;
``tests/unit/test_train_mini.py`` compares them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from musetrace.muse import nvfp4
from musetrace.muse.config import MuseConfig
from musetrace.muse.moe import ROUTING_SUM_EPS
from musetrace.muse.norms import residual_gate
from musetrace.muse.rope import rope_tables
from musetrace.muse.weights import HeadWeights, LayerWeights, ModelWeights

# How fast the router's bias follows an uneven load.
BIAS_STEP = 1e-3


def rms(value: Tensor, eps: float) -> Tensor:
    """Weightless norm of the last dimension, in fp32."""
    value = value.float()
    return value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)


def rotated(heads: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of [..., positions, head_dim] by tables [positions, head_dim / 2]."""
    low, high = heads.chunk(2, dim=-1)
    cos, sin = tables
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def as_quantised(weight: Tensor) -> Tensor:
    """The weight's NVFP4 values; gradients pass as if they were the weight."""
    with torch.no_grad():
        rounded = nvfp4.quantize(weight.float()).dequantize()
    return weight + (rounded - weight).detach()


class Layer(nn.Module):
    """One decoder layer; parameters as in ``LayerWeights``."""

    def __init__(self, config: MuseConfig, number: int) -> None:
        super().__init__()
        self.config, self.number = config, number
        hidden, moe, inner = config.hidden_size, config.moe_hidden_size, config.moe_intermediate_size
        queries, keys = (
            n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads)
        )
        experts = config.num_local_experts

        def matrix(*shape: int, std: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * std / math.sqrt(shape[-1]))

        def zeros(width: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(width))

        self.input_norm, self.pre_ffn_norm, self.post_ffn_norm = zeros(hidden), zeros(hidden), zeros(hidden)
        self.pre_expert_norm, self.post_expert_norm = zeros(moe), zeros(moe)
        self.q_proj, self.k_proj, self.v_proj = (
            matrix(queries, hidden),
            matrix(keys, hidden),
            matrix(keys, hidden),
        )
        self.gate_proj, self.o_proj = matrix(queries, hidden), matrix(hidden, queries)
        # A branch weighs an eighth at first.
        gate = -2 * config.residual_gate_temperature
        self.attn_gate = nn.Parameter(torch.full((hidden,), gate))
        self.ffn_gate = nn.Parameter(torch.full((hidden,), gate))
        self.router = matrix(experts, hidden, std=1 / config.output_multiplier)
        self.register_buffer("router_bias", torch.zeros(experts))
        self.pooler, self.unpooler = matrix(moe, hidden), matrix(hidden, moe)
        self.gate_up, self.down = matrix(experts, 2 * inner, moe), matrix(experts, moe, inner)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], quantise: bool) -> Tensor:
        """The residual stream fp32 [batch, positions, H] behind the layer."""
        config = self.config
        attended = self._attention(rms(x, config.rms_norm_eps) * (1 + self.input_norm), tables)
        alpha, beta = residual_gate(self.attn_gate, config.residual_gate_temperature)
        x = alpha * x + beta * rms(attended, config.post_norm_eps)
        unpooled = self._experts(rms(x, config.rms_norm_eps) * (1 + self.pre_ffn_norm), quantise)
        alpha, beta = residual_gate(self.ffn_gate, config.residual_gate_temperature)
        return alpha * x + beta * rms(unpooled * (1 + self.post_ffn_norm), config.post_norm_eps)

    def _attention(self, normed: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        config = self.config

        def heads(weight: Tensor) -> Tensor:
            return functional.linear(normed, weight).unflatten(-1, (-1, config.head_dim)).transpose(1, 2)

        q = rms(heads(self.q_proj), config.rms_norm_eps) * config.qk_scale_factor
        k = rms(heads(self.k_proj), config.rms_norm_eps)
        positions = torch.arange(normed.shape[1], device=normed.device)
        distance = positions[:, None] - positions
        mask = distance >= 0
        if not config.is_global(self.number):
            q, k = rotated(q, tables), rotated(k, tables)
            mask &= distance < config.sliding_window
        v = heads(self.v_proj)
        mixed = functional.scaled_dot_product_attention(
            q.to(v.dtype), k.to(v.dtype), v, attn_mask=mask, enable_gqa=True
        )
        gated = rms(mixed, config.rms_norm_eps) * torch.sigmoid(heads(self.gate_proj).float())
        return functional.linear(gated.transpose(1, 2).flatten(2), self.o_proj)

    def _experts(self, x: Tensor, quantise: bool) -> Tensor:
        """Every expert on every token, and only the chosen ones counted: few and small experts allow it."""
        config = self.config
        quantise &= config.expert_format(self.number) == "nvfp4"
        gate_up, down = (as_quantised(one) if quantise else one for one in (self.gate_up, self.down))
        weights = self._routing(x).flatten(0, 1)
        pooled = functional.linear(x, self.pooler)
        inputs = (rms(pooled, config.rms_norm_eps) * (1 + self.pre_expert_norm)).flatten(0, 1)
        gate, up = torch.matmul(inputs, gate_up.mT).chunk(2, dim=-1)
        made = torch.matmul(functional.silu(gate) * up, down.mT)
        normed = rms(made * (1 + self.post_expert_norm), config.post_norm_eps)
        combined = torch.einsum("enm,ne->nm", normed, weights)
        return functional.linear(combined.unflatten(0, x.shape[:2]), self.unpooler)

    def _routing(self, x: Tensor) -> Tensor:
        """Weights [batch, positions, E], 0 for experts not chosen; in training the bias evens the load."""
        with torch.autocast(x.device.type, enabled=False):
            scores = torch.sigmoid(functional.linear(x.float(), self.router) * self.config.output_multiplier)
        chosen = torch.zeros_like(scores, dtype=torch.bool)
        top = (scores + self.router_bias).topk(self.config.num_experts_per_tok, dim=-1).indices
        chosen.scatter_(-1, top, True)
        if self.training:
            load = chosen.float().mean(dim=(0, 1))
            self.router_bias += BIAS_STEP * torch.sign(load.mean() - load)
        kept = scores * chosen
        return kept / (kept.sum(-1, keepdim=True) + ROUTING_SUM_EPS) * self.config.routed_scaling_factor


class Target(nn.Module):
    """The whole model; ``quantise`` rounds the experts as the exported ones will be."""

    def __init__(self, config: MuseConfig) -> None:
        super().__init__()
        self.config, self.quantise = config, False
        self.embed_tokens = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        std = 1 / (math.sqrt(config.hidden_size) * config.output_multiplier)
        self.lm_head = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * std)

    def embedded(self, ids: Tensor) -> Tensor:
        """The residual stream before the first layer, fp32 [..., H]."""
        return rms(self.embed_tokens[ids], self.config.rms_norm_eps)

    def forward(self, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of int64 [batch, positions]: logits fp32 [batch, positions, V], and each layer's output."""
        x = self.embedded(ids)
        tables = rope_tables(self.config, torch.arange(ids.shape[1], device=ids.device))
        states = []
        for layer in self.layers:
            x = layer(x, tables, self.quantise)
            states.append(x)
        return self.logits(rms(x, self.config.rms_norm_eps) * self.norm), states

    def logits(self, normed: Tensor) -> Tensor:
        """Logits of rows behind their last norm."""
        cap = self.config.final_logit_softcapping
        raw = functional.linear(normed, self.lm_head).float() * self.config.output_multiplier
        return torch.tanh(raw / cap) * cap

    def exported(self) -> ModelWeights:
        """The weights as the engine takes them: bf16, NVFP4 experts, fp32 vectors and router."""
        layers = tuple(_exported(layer, self.config) for layer in self.layers)
        head = HeadWeights(
            self.embed_tokens.detach().cpu().bfloat16(),
            self.norm.detach().cpu().float(),
            self.lm_head.detach().cpu().bfloat16(),
        )
        return ModelWeights(self.config, layers, head)


def _exported(layer: nn.Module, config: MuseConfig) -> LayerWeights:
    tensors: dict[str, object] = {}
    for name, value in layer.state_dict().items():
        kept = value.detach().cpu().float()
        if name in ("gate_up", "down") and config.expert_format(layer.number) == "nvfp4":
            tensors[name] = nvfp4.quantize(kept)
        else:
            tensors[name] = kept if kept.dim() == 1 or name == "router" else kept.bfloat16()
    return LayerWeights(layer=layer.number, **tensors)
