"""The reference by itself: that every term of a layer matters, rounding points, cache, passes.

The parts are compared with plain Python in test_muse_parts.py, the whole with the public model in
test_muse_oracle.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse import PRESETS, MuseConfig
from musetrace.muse.norms import residual_gate
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.reference import (
    KvCache,
    LayerStates,
    Rounding,
    embed,
    head_logits,
    layer_body,
    layer_forward,
    project_qkv,
    verify,
)
from musetrace.muse.weights import LayerWeights, ModelWeights, synthesize

CONFIG = PRESETS["mini"]
SLIDING, GLOBAL = 1, 3
CONTEXT = 90
TOKENS = 16


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def model() -> ModelWeights:
    return synthesize(replace(CONFIG, num_hidden_layers=4), seed=7)


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(CONFIG.vocab_size, (CONTEXT + TOKENS,), generator=torch.Generator().manual_seed(2))


def rms(value: Tensor) -> float:
    return float(value.double().square().mean().sqrt())


# Every term


def nudged(value: Tensor) -> Tensor:
    """A few percent off, in every element."""
    factor = 1 + 0.05 * torch.cos(torch.arange(value.numel(), dtype=torch.float32)).reshape(value.shape)
    return (value.float() * factor).to(value.dtype)


def nudged_scales(value: Nvfp4Tensor) -> Nvfp4Tensor:
    return replace(value, scales=value.scales.flip(-1))


WEIGHT_CHANGES: dict[str, Callable[[Any], Any]] = {
    "input_norm": torch.zeros_like,
    "q_proj": nudged,
    "k_proj": nudged,
    "v_proj": nudged,
    "gate_proj": torch.zeros_like,
    "o_proj": nudged,
    "attn_gate": nudged,
    "pre_ffn_norm": torch.zeros_like,
    "router": nudged,
    "router_bias": torch.zeros_like,
    "pooler": nudged,
    "pre_expert_norm": torch.zeros_like,
    "gate_up": nudged_scales,
    "down": nudged_scales,
    "post_expert_norm": torch.zeros_like,
    "unpooler": nudged,
    "post_ffn_norm": torch.zeros_like,
    "ffn_gate": nudged,
}

CONFIG_CHANGES: dict[str, Any] = {
    "sliding_window": CONFIG.sliding_window - 1,
    "rope_theta": 10_000.0,
    "qk_scale_factor": 5.0,
    "rms_norm_eps": 0.05,
    "post_norm_eps": 0.01,
    "residual_gate_temperature": 0.4,
    "output_multiplier": 0.5,
    "num_experts_per_tok": 3,
}


@dataclass(frozen=True)
class Prepared:
    """A residual stream and the cache before it, for one layer of each kind."""

    model: ModelWeights
    x: dict[int, Tensor]
    cache: KvCache

    def run(
        self, layer: int, weights: LayerWeights | None = None, config: MuseConfig | None = None
    ) -> LayerStates:
        weights = weights or self.model.layers[layer]
        config = config or self.model.config
        return layer_forward(config, weights, self.x[layer], self.cache, CONTEXT, Rounding.NONE)


@pytest.fixture(scope="module")
def prepared(model: ModelWeights, ids: Tensor) -> Prepared:
    cache = KvCache.empty(CONFIG, CONTEXT + TOKENS)
    verify(model, ids[:CONTEXT], 0, cache, Rounding.NONE)
    result = verify(model, ids[CONTEXT:], CONTEXT, cache, Rounding.NONE)
    return Prepared(model, {layer: result.hidden_states[layer] for layer in (SLIDING, GLOBAL)}, cache)


@pytest.mark.parametrize("name", WEIGHT_CHANGES)
def test_every_weight_matters(prepared: Prepared, name: str) -> None:
    weights = prepared.model.layers[SLIDING]
    changed = replace(weights, **{name: WEIGHT_CHANGES[name](getattr(weights, name))})
    difference = prepared.run(SLIDING, changed).output - prepared.run(SLIDING).output
    assert rms(difference) > 1e-3


@pytest.mark.parametrize("name", CONFIG_CHANGES)
def test_every_constant_matters(prepared: Prepared, name: str) -> None:
    config = replace(prepared.model.config, **{name: CONFIG_CHANGES[name]})
    difference = prepared.run(SLIDING, config=config).output - prepared.run(SLIDING).output
    assert rms(difference) > 1e-4


@pytest.mark.parametrize("name", ["sliding_window", "rope_theta"])
def test_global_layers_have_neither_window_nor_rope(prepared: Prepared, name: str) -> None:
    config = replace(prepared.model.config, **{name: CONFIG_CHANGES[name]})
    assert torch.equal(prepared.run(GLOBAL, config=config).output, prepared.run(GLOBAL).output)


def test_the_routed_scaling_factor_scales_the_sum_of_experts(prepared: Prepared) -> None:
    """The norm behind the unpooler takes it out of the output again, so it is looked for before."""
    config = replace(prepared.model.config, routed_scaling_factor=2.0)
    changed, base = prepared.run(SLIDING, config=config), prepared.run(SLIDING)
    assert torch.allclose(changed.moe.combined, 2 * base.moe.combined, rtol=1e-5, atol=1e-6)


def test_the_head(model: ModelWeights, prepared: Prepared) -> None:
    x = prepared.x[SLIDING]
    logits = head_logits(CONFIG, model.head, x, Rounding.NONE)
    assert logits.abs().max() < CONFIG.final_logit_softcapping
    no_cap = head_logits(replace(CONFIG, final_logit_softcapping=1e9), model.head, x, Rounding.NONE)
    assert torch.allclose(torch.tanh(no_cap / 20) * 20, logits, atol=1e-4)
    assert rms(no_cap - logits) > 0.1
    plain = replace(model.head, norm=torch.ones_like(model.head.norm))
    assert rms(head_logits(CONFIG, plain, x, Rounding.NONE) - logits) > 0.1


def test_synthetic_gates_reach_the_floor(model: ModelWeights) -> None:
    for weights in model.layers:
        for gate in (weights.attn_gate, weights.ffn_gate):
            alpha, beta = residual_gate(gate, CONFIG.residual_gate_temperature)
            at_floor = int((alpha < math.sqrt(1e-3) * 1.000001).sum())
            assert 1 <= at_floor < 0.02 * len(gate)
            assert 0.05 < float(beta.median()) < 0.3


# Rounding


def is_bf16(value: Tensor) -> bool:
    return torch.equal(value.bfloat16().float(), value)


def bf16_values(states: LayerStates) -> dict[str, Tensor]:
    projected, moe = states.projected, states.moe
    named = {name: getattr(projected, name) for name in ("normed", "q", "k", "v", "gate")}
    named |= {name: getattr(moe, name) for name in ("pooled", "expert_input", "combined")}
    for expert in moe.experts:
        named |= {f"activated {expert.expert}": expert.activated, f"down {expert.expert}": expert.down}
    return named | {"o_input": states.o_input, "ffn_input": states.ffn_input}


def fp32_values(states: LayerStates) -> dict[str, Tensor]:
    named = {name: getattr(states, name) for name in ("attended", "o_output", "attention_output", "output")}
    named |= {
        "unpooled": states.moe.unpooled,
        "logits": states.moe.routing.logits,
        "x": states.moe.routing.weights,
    }
    return named | {f"normed {expert.expert}": expert.normed for expert in states.moe.experts}


def test_what_is_rounded_and_what_is_not(model: ModelWeights, ids: Tensor) -> None:
    cache = KvCache.empty(CONFIG, TOKENS)
    for rounding, rounded in ((Rounding.BF16, True), (Rounding.NONE, False)):
        result = verify(model, ids[:TOKENS], 0, cache, rounding, tp=2)
        for states in result.layers:
            for name, value in bf16_values(states).items():
                assert is_bf16(value) == rounded, name
            for name, value in fp32_values(states).items():
                assert not is_bf16(value), name


def test_partial_sums_of_ranks_are_rounded(model: ModelWeights, ids: Tensor) -> None:
    weights = model.layers[SLIDING]
    for tp in (1, 2, 4):
        cache = KvCache.empty(CONFIG, TOKENS)
        states = verify(model, ids[:TOKENS], 0, cache, Rounding.BF16, tp).layers[SLIDING]
        for inputs, weight, output in (
            (states.o_input, weights.o_proj, states.o_output),
            (states.moe.combined, weights.unpooler, states.moe.unpooled),
        ):
            width = inputs.shape[1] // tp
            total = torch.zeros(output.shape)
            for rank in range(tp):
                columns = slice(rank * width, (rank + 1) * width)
                partial = inputs[:, columns].double() @ weight[:, columns].double().T
                total = total + partial.float().bfloat16().float()
            # A partial on the edge between two bf16 values may go either way; few do.
            assert (total != output).float().mean() < 1e-3
            assert rms(total - output) < 1e-4 * rms(output)


def test_rounding_moves_a_layer_a_little(prepared: Prepared) -> None:
    for layer in (SLIDING, GLOBAL):
        exact = prepared.run(layer).output
        weights, config = prepared.model.layers[layer], prepared.model.config
        rounded = layer_forward(
            config, weights, prepared.x[layer], prepared.cache, CONTEXT, Rounding.BF16, tp=4
        ).output
        assert 1e-4 < rms(rounded - exact) / rms(exact) < 1e-2


def test_activations_stay_sane(model: ModelWeights, ids: Tensor) -> None:
    result = verify(model, ids, 0, KvCache.empty(CONFIG, len(ids)), Rounding.BF16)
    for hidden in result.hidden_states:
        assert 0.5 < rms(hidden) < 2
    for states in result.layers:
        # Every expert but a few has work, and none takes all of it.
        counts = torch.bincount(states.moe.routing.experts.flatten(), minlength=CONFIG.num_local_experts)
        assert (counts > 0).sum() >= 14
        assert counts.max() < 0.9 * len(ids)


# Cache and passes


@pytest.mark.parametrize("rounding", Rounding)
def test_two_passes_are_one(model: ModelWeights, ids: Tensor, rounding: Rounding) -> None:
    whole_cache, cache = (KvCache.empty(CONFIG, len(ids)) for _ in range(2))
    whole = verify(model, ids, 0, whole_cache, rounding)
    verify(model, ids[:CONTEXT], 0, cache, rounding)
    rest = verify(model, ids[CONTEXT:], CONTEXT, cache, rounding)
    tolerance = 1e-5 if rounding is Rounding.NONE else 1e-2
    for one, other in zip(whole.hidden_states, rest.hidden_states, strict=True):
        assert rms(one[CONTEXT:] - other) < tolerance
    for layer in range(4):
        assert rms(whole_cache.k[layer] - cache.k[layer]) < tolerance
        assert rms(whole_cache.v[layer] - cache.v[layer]) < tolerance


def test_a_pass_over_rejected_tokens_overwrites_them(model: ModelWeights, ids: Tensor) -> None:
    cache = KvCache.empty(CONFIG, 50)
    verify(model, ids[:20], 0, cache, Rounding.BF16)
    first = verify(model, ids[20:36], 20, cache, Rounding.BF16)
    verify(model, ids[40:56], 20, cache, Rounding.BF16)
    again = verify(model, ids[20:36], 20, cache, Rounding.BF16)
    assert torch.equal(first.logits, again.logits)
    # What was never written stays unread: it is NaN.
    assert bool(cache.k[0][:, 36:].isnan().all())
    assert bool(again.logits.isfinite().all())


def test_a_launch_from_attention_on_is_the_layer(model: ModelWeights, ids: Tensor) -> None:
    """The two halves, split as a launch splits them, on the input of each layer."""
    config = model.config
    cache = KvCache.empty(CONFIG, TOKENS)
    result = verify(model, ids[:TOKENS], 0, cache, Rounding.BF16, tp=2)
    projected = project_qkv(
        config, model.layers[0], embed(config, model.head, ids[:TOKENS]), 0, Rounding.BF16
    )
    cache = KvCache.empty(CONFIG, TOKENS)
    cache.write(0, 0, projected.k, projected.v)
    for layer, weights in enumerate(model.layers):
        x = result.hidden_states[layer]
        states = layer_body(config, weights, x, projected, cache, 0, Rounding.BF16, tp=2)
        assert torch.equal(states.output, result.hidden_states[layer + 1])
        if layer + 1 < len(model.layers):
            projected = project_qkv(config, model.layers[layer + 1], states.output, 0, Rounding.BF16)
            cache.write(layer + 1, 0, projected.k, projected.v)


# Refusals


def test_ids_outside_the_vocabulary(model: ModelWeights) -> None:
    for wrong in (-1, CONFIG.vocab_size):
        with pytest.raises(UsageError, match="0 to 1023"):
            verify(model, torch.tensor([3, wrong]), 0, KvCache.empty(CONFIG, 8), Rounding.NONE)


@pytest.mark.parametrize(("tokens", "start"), [(9, 0), (4, 5), (4, -1), (0, 0)])
def test_positions_outside_the_cache(model: ModelWeights, tokens: int, start: int) -> None:
    with pytest.raises(UsageError, match="cache of 8"):
        verify(model, torch.zeros(tokens, dtype=torch.int64), start, KvCache.empty(CONFIG, 8), Rounding.NONE)


def test_a_tp_that_does_not_divide(model: ModelWeights) -> None:
    with pytest.raises(UsageError, match="num_attention_heads"):
        verify(model, torch.tensor([1]), 0, KvCache.empty(CONFIG, 8), Rounding.BF16, tp=3)


@pytest.mark.parametrize("capacity", [0, 513])
def test_cache_size(capacity: int) -> None:
    with pytest.raises(UsageError, match="512 tokens"):
        KvCache.empty(CONFIG, capacity)


def test_cache_write_outside(model: ModelWeights) -> None:
    cache = KvCache.empty(CONFIG, 8)
    heads = torch.zeros(4, 4, 64)
    for start in (-1, 5):
        with pytest.raises(UsageError, match="cache of 8"):
            cache.write(0, start, heads, heads)
