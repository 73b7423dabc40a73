"""The draft in plain torch: what kernels' outputs are compared with.

The form is that of the public DFlash drafts (z-lab/dflash, ``dflash/model.py``): Qwen3 layers whose keys and
values come from hidden states of the target and from a block of mask tokens, all guessed in one pass. The
grouped convolutions and the candidate selector of ``DFlash2DraftModel`` are left out: the tree is made of the
scores of each position by itself (``musetrace.muse.speculative.tree``). Two things differ from the public
code: the input is the target's embedding behind its weightless norm (``reference.embed``, as in a verify
pass), and the rows of a block see each other both ways in sliding layers too.

Positions. P tokens are in the target's cache, at the positions 0 to P - 1. The token of position P, the
*root*, is known but has not been through the target. A draft pass has 16 rows at the positions P to P + 15:
row 0 is the root, rows 1 to 15 are ``mask_token_id``. Row i >= 1 guesses the token of position P + i; the
output of row 0 is not used.

Cache. Each draft layer keeps k and v [kv heads, capacity, head_dim] by position. Rows below P hold the
*context*: k and v of the target's hidden states at that position, which never change. Rows P to P + 15 hold k
and v of the pass's own rows; the next pass writes over them, as context or as its own.

Context (:func:`add_context`): before a pass, for those n positions (1 to 16 behind a verify pass) that
entered the target's cache since the last one. With F target layers and H hidden:

1. features [n, F H]: the residual stream behind each of ``target_layer_ids``, side by side, bf16;
2. c = rms_norm(features @ fc.T) x context_norm, bf16 [n, H]: one row for all draft layers;
3. for each draft layer: k = rope(rms_norm per head(c @ k_proj.T) x k_norm), v = c @ v_proj.T, bf16, written
   at the n positions. The input norm of the layer is not applied to c.

A pass (:func:`guess`): x [16, H] is the embedded rows, fp32; for each layer

1. a = rms_norm(x) x input_norm, bf16; q, k, v = a @ q_proj.T, k_proj.T, v_proj.T; q and k go through
   rms_norm per head x q_norm (k_norm) and rope at the rows' positions; k, v are written at P to P + 15;
2. attention, scores x head_dim ** -0.5: the row at position p sees all keys at positions q with
   p - q < ``sliding_window`` and q <= P + 15, so the whole block, before and behind it;
3. x = x + o_proj(attention);
4. b = rms_norm(x) x mlp_norm, bf16; x = x + down_proj(silu(gate_proj(b)) x up_proj(b)).

Then rms_norm(x) x norm, bf16, through the target's ``lm_head``, multiplier and soft cap: logits [15, V] of
the rows 1 to 15.

Rounding under ``Rounding.BF16``: bf16 are the features, c, a, b, q and k behind rope, v, the heads behind
attention, silu x up, the normed output; the partial sums of fc, o_proj and down_proj of each rank are bf16
and added in rank order in fp32. The residual stream, all norms, scores and softmax are fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from musetrace.errors import UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DRAFT_ROWS, DraftConfig
from musetrace.muse.draft.weights import DraftLayerWeights, DraftWeights
from musetrace.muse.norms import rms_norm
from musetrace.muse.reference import embed, logits_of
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.rounding import Rounding, linear, linear_over_ranks
from musetrace.muse.weights import HeadWeights


@dataclass(frozen=True)
class DraftLayerStates:
    """Every value of a layer, in the order of computation; fp32 storage.

    Attributes:
        normed: [16, H], a.
        q: [16, heads, head_dim]; k, v: [16, kv heads, head_dim].
        attended: [16, heads * head_dim], the input of o_proj.
        attention_output: [16, H], the residual stream behind attention.
        mlp_input: [16, H], b.
        activated: [16, I], silu(gate) x up.
        output: [16, H], the residual stream behind the layer.
    """

    normed: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    attended: Tensor
    attention_output: Tensor
    mlp_input: Tensor
    activated: Tensor
    output: Tensor


@dataclass(frozen=True)
class DraftResult:
    """A draft pass.

    Attributes:
        hidden_states: number of layers + 1 tensors, fp32 [16, H]: the embedded rows, then the residual stream
            behind each layer.
        logits: fp32 [15, V] of the rows 1 to 15, behind the soft cap.
        layers: all values of each layer.
    """

    hidden_states: tuple[Tensor, ...]
    logits: Tensor
    layers: tuple[DraftLayerStates, ...]


def features_of(config: DraftConfig, hidden_states: tuple[Tensor, ...], rounding: Rounding) -> Tensor:
    """Features [tokens, F H] of the target's ``VerifyResult.hidden_states``: H columns for each layer."""
    chosen = [hidden_states[layer + 1] for layer in config.target_layer_ids]
    return rounding.to_bf16(torch.cat(chosen, dim=-1))


def add_context(
    draft: DraftWeights, features: Tensor, start: int, cache: KvCache, rounding: Rounding, tp: int = 1
) -> Tensor:
    """Write the context rows of all layers for the positions from ``start`` on.

    Args:
        features: [n, F H].
        cache: of the draft; ``KvCache.empty(draft.config, capacity)``.

    Returns:
        c, [n, H].

    Raises:
        UsageError: the positions do not fit the cache.
    """
    config = draft.config
    summed = linear_over_ranks(features, draft.fc, tp, rounding)
    context = rounding.to_bf16(rms_norm(summed, config.rms_norm_eps) * draft.context_norm)
    for number, layer in enumerate(draft.layers):
        cache.write(number, start, *_keys_and_values(config, layer, context, start, rounding))
    return context


def guess(
    draft: DraftWeights,
    target: MuseConfig,
    head: HeadWeights,
    root: int,
    position: int,
    cache: KvCache,
    rounding: Rounding,
    tp: int = 1,
) -> DraftResult:
    """One draft pass.

    Args:
        target, head: of the target model.
        root: the token at ``position``.
        cache: holds the context of all positions below ``position``.

    Raises:
        UsageError: the root is outside the vocabulary, or 16 rows do not fit the cache.
    """
    config = draft.config
    config.validate(target, tp)
    if not 0 <= position <= cache.capacity - DRAFT_ROWS:
        raise UsageError(
            f"a draft pass at position {position} needs {DRAFT_ROWS} rows of a cache of {cache.capacity}; "
            "make the cache larger"
        )
    ids = torch.full((DRAFT_ROWS,), config.mask_token_id)
    ids[0] = root
    hidden_states = [embed(target, head, ids)]
    layers = []
    for number, layer in enumerate(draft.layers):
        layers.append(_layer(config, layer, number, hidden_states[-1], position, cache, rounding, tp))
        hidden_states.append(layers[-1].output)
    normed = rounding.to_bf16(rms_norm(hidden_states[-1][1:], config.rms_norm_eps) * draft.norm)
    return DraftResult(tuple(hidden_states), logits_of(target, head, normed), tuple(layers))


def _keys_and_values(
    config: DraftConfig, layer: DraftLayerWeights, rows: Tensor, start: int, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    k = _rotated(config, layer.k_proj, layer.k_norm, rows, start)
    v = linear(rows, layer.v_proj).reshape(len(rows), -1, config.head_dim)
    return rounding.to_bf16(k), rounding.to_bf16(v)


def _rotated(config: DraftConfig, weight: Tensor, norm: Tensor, rows: Tensor, start: int) -> Tensor:
    heads = linear(rows, weight).reshape(len(rows), -1, config.head_dim)
    tables = rope_tables(config, torch.arange(start, start + len(rows)))
    return apply_rope(rms_norm(heads, config.rms_norm_eps) * norm, tables)


def _layer(
    config: DraftConfig,
    layer: DraftLayerWeights,
    number: int,
    x: Tensor,
    position: int,
    cache: KvCache,
    rounding: Rounding,
    tp: int,
) -> DraftLayerStates:
    normed = rounding.to_bf16(rms_norm(x, config.rms_norm_eps) * layer.input_norm)
    q = rounding.to_bf16(_rotated(config, layer.q_proj, layer.q_norm, normed, position))
    k, v = _keys_and_values(config, layer, normed, position, rounding)
    cache.write(number, position, k, v)
    attended = rounding.to_bf16(_attend(config, q, *cache.read(number, position + len(x))).flatten(1))
    attention_output = x + linear_over_ranks(attended, layer.o_proj, tp, rounding)
    mlp_input = rounding.to_bf16(rms_norm(attention_output, config.rms_norm_eps) * layer.mlp_norm)
    gate, up = linear(mlp_input, layer.gate_proj), linear(mlp_input, layer.up_proj)
    activated = rounding.to_bf16(functional.silu(gate) * up)
    output = attention_output + linear_over_ranks(activated, layer.down_proj, tp, rounding)
    return DraftLayerStates(normed, q, k, v, attended, attention_output, mlp_input, activated, output)


def _attend(config: DraftConfig, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Fp32 [16, heads, head_dim]; rows are the last positions of k, v [kv heads, positions, head_dim]."""
    rows, positions = q.shape[0], k.shape[1]
    queries = torch.arange(positions - rows, positions)
    mask = queries[:, None] - torch.arange(positions) < config.sliding_window
    groups = q.reshape(rows, k.shape[0], -1, config.head_dim).permute(1, 2, 0, 3)
    scores = linear(groups, k[:, None]) * config.head_dim**-0.5
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf).double(), dim=-1).float()
    return linear(weights, v[:, None].mT).permute(2, 0, 1, 3).flatten(1, 2)
