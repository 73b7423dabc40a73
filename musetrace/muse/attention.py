"""Attention of one layer: the projections before it, and the attention itself over a cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import centred_norm, rms_norm
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.rounding import Rounding, linear
from musetrace.muse.speculative.tree import TokenTree
from musetrace.muse.weights import LayerWeights


@dataclass(frozen=True)
class Projected:
    """What a layer launch finds: the projections of its input. Fp32 storage, rounded.

    Attributes:
        normed: [tokens, H], the input of the projections.
        q: [tokens, heads, head_dim], behind norm, scale and rope.
        k, v: [tokens, kv heads, head_dim], as the cache takes them.
        gate: [tokens, heads, head_dim], before its sigmoid.
    """

    normed: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    gate: Tensor


def project_qkv(
    config: MuseConfig,
    weights: LayerWeights,
    x: Tensor,
    start: int,
    rounding: Rounding,
    tree: TokenTree | None = None,
) -> Projected:
    """Projections of the residual stream x [tokens, H], whose positions go from ``start`` on.

    Args:
        tree: of the tokens; None for a chain.
    """
    normed = rounding.to_bf16(centred_norm(x, weights.input_norm, config.rms_norm_eps))

    def heads(weight: Tensor) -> Tensor:
        return linear(normed, weight).reshape(len(x), -1, config.head_dim)

    q = rms_norm(heads(weights.q_proj), config.rms_norm_eps) * config.qk_scale_factor
    k = rms_norm(heads(weights.k_proj), config.rms_norm_eps)
    if not config.is_global(weights.layer):
        tables = rope_tables(config, token_positions(start, x.shape[0], tree).to(x.device))
        q, k = apply_rope(q, tables), apply_rope(k, tables)
    v, gate = heads(weights.v_proj), heads(weights.gate_proj)
    return Projected(normed, *(rounding.to_bf16(value) for value in (q, k, v, gate)))


def token_positions(start: int, tokens: int, tree: TokenTree | None = None) -> Tensor:
    """Int64 [tokens]: the positions of a chain from ``start`` on, or of a tree with its root there."""
    return start + (torch.arange(tokens) if tree is None else torch.from_numpy(tree.depths))


def visible(
    config: MuseConfig,
    layer: int,
    start: int,
    tokens: int,
    device: torch.device | str = "cpu",
    tree: TokenTree | None = None,
) -> Tensor:
    """Bool [tokens, start + tokens]: whether the token of ``row`` sees the cache row ``column``."""
    queries = token_positions(start, tokens, tree)
    distance = queries[:, None] - torch.cat((torch.arange(start), queries))
    reach = start + tokens if config.is_global(layer) else config.sliding_window
    seen = (distance >= 0) & (distance < reach)
    if tree is not None:
        seen[:, start:] &= torch.from_numpy(tree.ancestors)
    return seen.to(device)


def attend(
    config: MuseConfig, layer: int, q: Tensor, k: Tensor, v: Tensor, tree: TokenTree | None = None
) -> Tensor:
    """Attention in fp32.

    Args:
        q: [tokens, heads, head_dim], the last rows of the keys.
        k: [kv heads, rows, head_dim]; head h of q reads kv head ``h // (heads / kv heads)``.
        v: like k.
        tree: of the tokens; None for a chain.

    Returns:
        Fp32 [tokens, heads, head_dim].
    """
    tokens, positions = q.shape[0], k.shape[1]
    groups = q.reshape(tokens, k.shape[0], -1, config.head_dim).permute(1, 2, 0, 3)
    scores = linear(groups, k[:, None]) * config.head_dim**-0.5
    mask = visible(config, layer, positions - tokens, tokens, q.device, tree)
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf).double(), dim=-1).float()
    mixed = linear(weights, v[:, None].mT)
    return mixed.permute(2, 0, 1, 3).flatten(1, 2)


def gated_heads(config: MuseConfig, attended: Tensor, gate: Tensor, rounding: Rounding) -> Tensor:
    """Per-head norm x sigmoid(gate): the input of o_proj, [tokens, heads * head_dim].

    ``attended`` and ``gate`` are [tokens, heads, head_dim].
    """
    return rounding.to_bf16(rms_norm(attended, config.rms_norm_eps) * torch.sigmoid(gate)).flatten(1)
