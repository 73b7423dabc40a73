"""One rank that plays its peers, in plain torch: what the layer kernel makes of packed weights in loopback.

What a rank would get from its peers it gets from itself. So sums over ranks are its own bf16 partial, added
as often as there are ranks, in order; and pooled rows, router logits, features and expert outputs are its own
columns, repeated. The norm behind an expert goes over all columns of the outputs: with ``stop4="gather"``
each repeat has its own columns' weights, with ``sumsq`` every rank sends the sum of its own columns under its
own weights, so each repeat has those of rank 0. Rounding is that of ``musetrace.muse.rounding``; sums are in
fp64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from musetrace.muse.attention import Projected, attend, gated_heads
from musetrace.muse.config import MuseConfig
from musetrace.muse.moe import Routing, select
from musetrace.muse.norms import rms_norm
from musetrace.muse.nvfp4 import dequantize_unscaled
from musetrace.muse.packing import gate_up_rows, unpack_bf16, unpack_nvfp4
from musetrace.muse.packing_codes import PRODUCT_EXPONENT
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.rounding import Rounding, linear, ordered_sum

ROUNDED = Rounding.BF16


@dataclass(frozen=True)
class Slice:
    """A layer of one rank of ``tp``.

    Attributes:
        tensors: as ``cuda_weights.upload_layer`` names them, on any device.
        unpacked: matrices of experts that were asked for.
    """

    config: MuseConfig
    tp: int
    layer: int
    tensors: dict[str, Tensor]
    unpacked: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def moe_columns(self) -> int:
        """The rank's own columns of moe_hidden."""
        return self.config.moe_hidden_size // self.tp

    def expert(self, name: str, expert: int) -> Tensor:
        """Fp32 [rows, K] of ``gate_up`` (rows in turn) or ``down``, but for the factor."""
        if (name, expert) not in self.unpacked:
            self.unpacked[name, expert] = self._unpacked_expert(name, expert)
        return self.unpacked[name, expert]

    def _unpacked_expert(self, name: str, expert: int) -> Tensor:
        config = self.config
        rows, k = self.moe_columns, config.moe_intermediate_size
        if name == "gate_up":
            rows, k = 2 * config.moe_intermediate_size // self.tp, config.moe_hidden_size
        packed = _bytes(self.tensors[name]).reshape(config.num_local_experts, -1)[expert]
        order = gate_up_rows if name == "gate_up" else np.asarray
        if config.expert_format(self.layer) == "bf16":
            return _values(order(unpack_bf16(packed.cpu().numpy(), rows, k)), packed.device)
        parts = (order(part) for part in unpack_nvfp4(packed.cpu().numpy(), rows, k))
        codes, scales = (torch.from_numpy(np.ascontiguousarray(part)).to(packed.device) for part in parts)
        return dequantize_unscaled(codes, scales)

    def expert_linear(self, name: str, expert: int, inputs: Tensor) -> Tensor:
        """Fp32 [n, rows]."""
        exponent = 0 if self.config.expert_format(self.layer) == "bf16" else PRODUCT_EXPONENT
        factor = self.tensors[f"{name}_factor"][expert].double() * 2.0**exponent
        return linear(inputs, self.expert(name, expert)) * factor.float()


def dense(packed: Tensor, rows: int, k: int) -> Tensor:
    """Fp32 [rows, K] of a packed bf16 matrix, on its device."""
    return _values(unpack_bf16(_bytes(packed).cpu().numpy(), rows, k), packed.device)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _values(bits: np.ndarray, device: torch.device) -> Tensor:  # type: ignore[type-arg]
    return torch.from_numpy(np.ascontiguousarray(bits).view(np.int16)).to(device).view(torch.bfloat16).float()


def project(slice_: Slice, x: Tensor, start: int) -> Projected:
    """The rank's projections of the residual stream x [tokens, H] at the positions from ``start`` on."""
    config, tp = slice_.config, slice_.tp
    normed = ROUNDED.to_bf16(rms_norm(x, config.rms_norm_eps) * slice_.tensors["input_norm"])
    queries, keys = config.num_attention_heads // tp, config.num_key_value_heads // tp
    rows = 2 * (queries + keys) * config.head_dim
    heads = linear(normed, dense(slice_.tensors["qkvg"], rows, config.hidden_size))
    q, k, v, gate = heads.reshape(len(x), -1, config.head_dim).split([queries, keys, keys, queries], dim=1)
    q, k = rms_norm(q, config.rms_norm_eps) * config.qk_scale_factor, rms_norm(k, config.rms_norm_eps)
    if not config.is_global(slice_.layer):
        tables = rope_tables(config, torch.arange(start, start + len(x), device=x.device))
        q, k = apply_rope(q, tables), apply_rope(k, tables)
    return Projected(normed, *(ROUNDED.to_bf16(part) for part in (q, k, v, gate)))


@dataclass(frozen=True)
class SliceStates:
    """What the kernel's exchange holds behind a launch, and the residual stream. Hm is moe_hidden.

    Attributes:
        heads: [tokens, the rank's heads * head_dim], input of o_proj.
        x1: [tokens, H], input of router and pooler.
        routing: logits as they are sent, without the multiplier; experts ascending.
        pooled, expert_x: [tokens, Hm].
        features: [tokens * top-k, I], a token's experts ascending.
        outputs: [tokens * top-k, Hm / tp], the rank's own columns.
        combined: [tokens, Hm / tp].
        output: [tokens, H].
    """

    heads: Tensor
    x1: Tensor
    routing: Routing
    pooled: Tensor
    expert_x: Tensor
    features: Tensor
    outputs: Tensor
    combined: Tensor
    output: Tensor


def layer_states(
    slice_: Slice, x: Tensor, projected: Projected, kv: Sequence[Tensor], stop4: str
) -> SliceStates:
    """A layer from its attention on.

    Args:
        x: fp32 [tokens, H].
        kv: keys and values [the rank's kv heads, positions, head_dim]; the last are those of these tokens.
        stop4: ``sumsq`` or ``gather``.
    """
    config, tensors = slice_.config, slice_.tensors
    attended = attend(config, slice_.layer, projected.q, *kv)
    heads = gated_heads(config, attended, projected.gate, ROUNDED)
    branch = rms_norm(_summed(slice_, "o", heads), config.post_norm_eps)
    middle = tensors["attn_alpha"] * x + tensors["attn_beta"] * branch
    x1 = ROUNDED.to_bf16(rms_norm(middle, config.rms_norm_eps) * tensors["pre_ffn_norm"])
    routing = _routed(slice_, x1)
    own = ROUNDED.to_bf16(linear(x1, dense(tensors["pooler"], slice_.moe_columns, config.hidden_size)))
    pooled = own.repeat(1, slice_.tp)
    expert_x = ROUNDED.to_bf16(rms_norm(pooled, config.rms_norm_eps) * tensors["pre_expert_norm"])
    features, outputs = _experts(slice_, expert_x, routing)
    combined = _combined(slice_, outputs, routing, stop4)
    unpooled = ROUNDED.to_bf16(_summed(slice_, "unpooler", combined) * tensors["post_ffn_norm"])
    branch = rms_norm(unpooled, config.post_norm_eps)
    output = tensors["ffn_alpha"] * middle + tensors["ffn_beta"] * branch
    return SliceStates(heads, x1, routing, pooled, expert_x, features, outputs, combined, output)


def _summed(slice_: Slice, name: str, inputs: Tensor) -> Tensor:
    """The all-reduce behind o_proj or unpooler."""
    weight = dense(slice_.tensors[name], slice_.config.hidden_size, inputs.shape[1])
    return ordered_sum([ROUNDED.to_bf16(linear(inputs, weight))] * slice_.tp)


def _routed(slice_: Slice, x1: Tensor) -> Routing:
    config, tensors = slice_.config, slice_.tensors
    logits = linear(x1, tensors["router"]).repeat(1, slice_.tp)
    scores = torch.sigmoid(logits * config.output_multiplier)
    experts, weights = select(scores, tensors["router_bias"], config)
    order = experts.argsort(dim=-1)
    return Routing(logits, scores, experts.gather(1, order), weights.gather(1, order))


def _experts(slice_: Slice, expert_x: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
    top_k, tp = slice_.config.num_experts_per_tok, slice_.tp
    ids = routing.experts.flatten()
    features = torch.full((len(ids), slice_.config.moe_intermediate_size), torch.nan, device=expert_x.device)
    outputs = torch.full((len(ids), slice_.moe_columns), torch.nan, device=expert_x.device)
    for expert in ids.unique().tolist():
        pairs = (ids == expert).nonzero().flatten()
        rows = slice_.expert_linear("gate_up", expert, expert_x[pairs // top_k])
        own = ROUNDED.to_bf16(functional.silu(rows[:, 0::2]) * rows[:, 1::2])
        features[pairs] = own.repeat(1, tp)
        outputs[pairs] = ROUNDED.to_bf16(slice_.expert_linear("down", expert, features[pairs]))
    return features, outputs


def _combined(slice_: Slice, outputs: Tensor, routing: Routing, stop4: str) -> Tensor:
    config, weight = slice_.config, slice_.tensors["post_expert_norm"]
    if stop4 == "sumsq":
        weight = weight[: slice_.moe_columns].repeat(slice_.tp)
    scaled = ROUNDED.to_bf16(outputs.repeat(1, slice_.tp) * weight)
    own = rms_norm(scaled, config.post_norm_eps)[:, : slice_.moe_columns]
    weighted = own * routing.weights.reshape(-1, 1)
    of_token = weighted.reshape(-1, config.num_experts_per_tok, slice_.moe_columns)
    return ROUNDED.to_bf16(ordered_sum(list(of_token.unbind(dim=1))))


def logits_of(config: MuseConfig, tp: int, head: dict[str, Tensor], x: Tensor) -> Tensor:
    """The rank's logits [tokens, V / tp] of the residual stream x behind the last layer."""
    normed = ROUNDED.to_bf16(rms_norm(x, config.rms_norm_eps) * head["final_norm"])
    rows = linear(normed, dense(head["lm_head"], config.vocab_size // tp, config.hidden_size))
    return torch.tanh(rows * config.output_multiplier / config.final_logit_softcapping) * (
        config.final_logit_softcapping
    )


def clear_tokens(slice_: Slice, routing: Routing, margin: float) -> Tensor:
    """Bool [tokens]: whose experts are no choice between scores nearer than ``margin``.

    Experts of the same router row have the same score to the bit; where such a tie decides, ids do.
    """
    config = slice_.config
    biased = routing.scores + slice_.tensors["router_bias"]
    chosen = torch.zeros_like(biased, dtype=torch.bool).scatter(1, routing.experts, True)
    row = torch.arange(config.num_local_experts, device=biased.device) % (
        config.num_local_experts // slice_.tp
    )
    rivals = chosen[:, :, None] & ~chosen[:, None, :] & (row[:, None] != row)
    gaps = (biased[:, :, None] - biased[:, None, :]).masked_fill(~rivals, torch.inf)
    return gaps.amin(dim=(1, 2)) > margin
