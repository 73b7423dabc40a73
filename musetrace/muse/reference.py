"""The decoder in plain torch: what the megakernel's outputs are compared with.

Written for reading, one value after the other. Where it rounds is stated in ``musetrace.muse.rounding``; it
agrees with ``transformers`` (``models/muse_spark``) to fp32 rounding under ``Rounding.NONE``. Where
descriptions of the model differ from ``transformers`` (the pairs of the rotary embedding, see ``rope``),
``transformers`` decides.

A layer launch of the megakernel goes from attention to the next layer's projections and KV write. So a layer
is two functions here: :func:`project_qkv` with ``KvCache.write``, and :func:`layer_body`, all that is behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.attention import Projected, attend, gated_heads, project_qkv
from musetrace.muse.cache import KvCache
from musetrace.muse.config import MuseConfig
from musetrace.muse.moe import MoeStates, moe_forward
from musetrace.muse.norms import centred_norm, input_scaled_norm, residual_gate, rms_norm
from musetrace.muse.rounding import Rounding, linear, linear_over_ranks
from musetrace.muse.speculative.tree import TokenTree
from musetrace.muse.weights import HeadWeights, LayerWeights, ModelWeights

__all__ = [
    "KvCache",
    "LayerStates",
    "Projected",
    "Rounding",
    "VerifyResult",
    "embed",
    "head_logits",
    "layer_body",
    "layer_forward",
    "logits_of",
    "project_qkv",
    "verify",
]


@dataclass(frozen=True)
class LayerStates:
    """Every value of a layer, in the order of computation; fp32 storage.

    Attributes:
        projected: q, k, v and gate.
        attended: [tokens, heads, head_dim], behind the softmax.
        o_input: [tokens, heads * head_dim], normed and gated.
        o_output: [tokens, H], the sum over ranks.
        attention_output: [tokens, H], the residual stream behind attention.
        ffn_input: [tokens, H], X: the input of router and pooler.
        moe: from router to unpooled sum.
        output: [tokens, H], the residual stream behind the layer.
    """

    projected: Projected
    attended: Tensor
    o_input: Tensor
    o_output: Tensor
    attention_output: Tensor
    ffn_input: Tensor
    moe: MoeStates
    output: Tensor


@dataclass(frozen=True)
class VerifyResult:
    """A pass over some tokens.

    Attributes:
        hidden_states: L + 1 tensors, fp32 [tokens, H]: the embedding, then the residual stream behind each
            layer.
        logits: fp32 [tokens, V], behind the soft cap.
        layers: all values of each layer.
    """

    hidden_states: tuple[Tensor, ...]
    logits: Tensor
    layers: tuple[LayerStates, ...]


def embed(config: MuseConfig, head: HeadWeights, ids: Tensor) -> Tensor:
    """The residual stream [tokens, H] before the first layer, of int64 token ids [tokens].

    Raises:
        UsageError: an id is outside the vocabulary.
    """
    if bool(((ids < 0) | (ids >= config.vocab_size)).any()):
        raise UsageError(
            f"a token id is outside the vocabulary of model {config.name}, 0 to {config.vocab_size - 1}"
        )
    return rms_norm(head.embed_tokens[ids].float(), config.rms_norm_eps)


def layer_body(
    config: MuseConfig,
    weights: LayerWeights,
    x: Tensor,
    projected: Projected,
    cache: KvCache,
    start: int,
    rounding: Rounding,
    tp: int = 1,
    tree: TokenTree | None = None,
) -> LayerStates:
    """A layer from its attention on.

    Args:
        x: the residual stream [tokens, H] before the layer, tokens at the positions from ``start`` on.
        projected: the projections of x.
        cache: already holds k and v of these tokens.
        tp: over how many ranks the sums of o_proj and unpooler are split.
        tree: of the tokens; None for a chain.
    """
    k, v = cache.read(weights.layer, start + x.shape[0])
    attended = attend(config, weights.layer, projected.q, k, v, tree)
    o_input = gated_heads(config, attended, projected.gate, rounding)
    o_output = linear_over_ranks(o_input, weights.o_proj, tp, rounding)
    alpha, beta = residual_gate(weights.attn_gate, config.residual_gate_temperature)
    attention_output = alpha * x + beta * rms_norm(o_output, config.post_norm_eps)
    ffn_input = rounding.to_bf16(centred_norm(attention_output, weights.pre_ffn_norm, config.rms_norm_eps))
    moe = moe_forward(config, weights, ffn_input, rounding, tp)
    branch = input_scaled_norm(moe.unpooled, weights.post_ffn_norm, config.post_norm_eps, rounding)
    alpha, beta = residual_gate(weights.ffn_gate, config.residual_gate_temperature)
    output = alpha * attention_output + beta * branch
    return LayerStates(projected, attended, o_input, o_output, attention_output, ffn_input, moe, output)


def layer_forward(
    config: MuseConfig,
    weights: LayerWeights,
    x: Tensor,
    cache: KvCache,
    start: int,
    rounding: Rounding,
    tp: int = 1,
    tree: TokenTree | None = None,
) -> LayerStates:
    """A whole layer on any residual stream x [tokens, H]; writes k and v of its tokens into the cache."""
    projected = project_qkv(config, weights, x, start, rounding, tree)
    cache.write(weights.layer, start, projected.k, projected.v)
    return layer_body(config, weights, x, projected, cache, start, rounding, tp, tree)


def head_logits(config: MuseConfig, head: HeadWeights, x: Tensor, rounding: Rounding) -> Tensor:
    """Logits [tokens, V] of the residual stream behind the last layer."""
    return logits_of(config, head, rounding.to_bf16(rms_norm(x, config.rms_norm_eps) * head.norm))


def logits_of(config: MuseConfig, head: HeadWeights, normed: Tensor) -> Tensor:
    """Logits [tokens, V] of rows [tokens, H] behind their last norm; the draft's too."""
    logits = linear(normed, head.lm_head) * config.output_multiplier
    return torch.tanh(logits / config.final_logit_softcapping) * config.final_logit_softcapping


def verify(
    model: ModelWeights,
    ids: Tensor,
    start: int,
    cache: KvCache,
    rounding: Rounding,
    tp: int = 1,
    tree: TokenTree | None = None,
) -> VerifyResult:
    """Run tokens through the model over a cache: a verify pass of 16, or a prefill of any number.

    Args:
        ids: int64 [tokens], at the positions from ``start`` on.
        cache: holds the positions before ``start``; those of ``ids`` are written, whatever they held.
        tree: of ``ids``, with its root at ``start``; None for a chain. ``KvCache.keep`` then leaves the
            accepted ones.

    Raises:
        UsageError: the ids, the positions or ``tp`` do not fit the model or the cache.
    """
    config = model.config
    config.validate(tp)
    if ids.dim() != 1 or not 0 <= start <= cache.capacity - len(ids) or len(ids) == 0:
        raise UsageError(
            f"token ids of shape {list(ids.shape)} from position {start} on do not fit a cache of "
            f"{cache.capacity}; make the cache larger"
        )
    hidden_states = [embed(config, model.head, ids)]
    layers = []
    for weights in model.layers:
        layers.append(layer_forward(config, weights, hidden_states[-1], cache, start, rounding, tp, tree))
        hidden_states.append(layers[-1].output)
    logits = head_logits(config, model.head, hidden_states[-1], rounding)
    return VerifyResult(tuple(hidden_states), logits, tuple(layers))
