"""Synthetic weights: what they depend on, and that none is trivial."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse import PRESETS
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.weights import (
    DENSE_NAMES,
    EXPERT_NAMES,
    LayerWeights,
    expert_values,
    synthesize,
    synthesize_head,
    synthesize_layer,
)

# The layers of mini, with so few and narrow experts that a test may make many of them.
CONFIG = replace(
    PRESETS["mini"],
    num_local_experts=4,
    num_experts_per_tok=2,
    moe_hidden_size=32,
    moe_intermediate_size=48,
    vocab_size=256,
)


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def tensors(weights: LayerWeights) -> dict[str, Tensor]:
    return {name.split(".", 2)[2]: value for name, value in weights.state_dict().items()}


def equal(one: LayerWeights, other: LayerWeights) -> list[str]:
    pairs = zip(tensors(one).items(), tensors(other).values(), strict=True)
    return [name for (name, value), counterpart in pairs if torch.equal(value, counterpart)]


def test_a_layer_can_be_made_alone() -> None:
    model = synthesize(CONFIG, seed=3)
    for layer in (0, 3, 7):
        alone = synthesize_layer(CONFIG, 3, layer)
        assert alone.layer == layer
        assert len(equal(alone, model.layers[layer])) == len(DENSE_NAMES) + len(EXPERT_NAMES)
    assert torch.equal(synthesize_head(CONFIG, 3).lm_head, model.head.lm_head)


def test_seed_and_layer_change_every_tensor() -> None:
    base = synthesize_layer(CONFIG, 3, 1)
    assert equal(base, synthesize_layer(CONFIG, 4, 1)) == []
    assert equal(base, synthesize_layer(CONFIG, 3, 2)) == []


def test_tensors_of_one_shape_differ() -> None:
    base = synthesize_layer(CONFIG, 3, 1)
    assert not torch.equal(base.q_proj, base.gate_proj)
    assert not torch.equal(base.input_norm, base.post_ffn_norm)
    assert not torch.equal(base.attn_gate, base.ffn_gate)
    experts = expert_values(base.down)
    assert len({tuple(expert[0].tolist()) for expert in experts}) == CONFIG.num_local_experts


@pytest.mark.parametrize(("layer", "quantised"), [(0, False), (1, True), (6, True), (7, False)])
def test_experts_have_the_format_of_their_layer(layer: int, quantised: bool) -> None:
    weights = synthesize_layer(CONFIG, 3, layer)
    for experts in (weights.gate_up, weights.down):
        assert isinstance(experts, Nvfp4Tensor) is quantised
    if isinstance(weights.gate_up, Nvfp4Tensor):
        # Scales that differ a lot, so that taking a neighbour's is seen.
        scales = weights.gate_up.global_scale
        assert scales.max() > 1.5 * scales.min()


def test_shapes_and_types() -> None:
    weights = synthesize_layer(CONFIG, 3, 1)
    assert weights.q_proj.shape == (512, 512)
    assert weights.k_proj.shape == weights.v_proj.shape == (256, 512)
    assert weights.o_proj.shape == (512, 512)
    assert weights.router.shape == (4, 512)
    assert weights.pooler.shape == (32, 512)
    assert weights.unpooler.shape == (512, 32)
    assert expert_values(weights.gate_up).shape == (4, 96, 32)
    assert expert_values(weights.down).shape == (4, 32, 48)
    single = {"input_norm", "pre_ffn_norm", "post_ffn_norm", "pre_expert_norm", "post_expert_norm"}
    single |= {"router", "router_bias", "attn_gate", "ffn_gate"}
    for field in DENSE_NAMES:
        wanted = torch.float32 if field in single else torch.bfloat16
        assert getattr(weights, field).dtype == wanted, field


def test_nothing_is_constant() -> None:
    for name, value in tensors(synthesize_layer(CONFIG, 3, 1)).items():
        assert bool(value.isfinite().all()), name
        assert value.std() > 0.01, name
        # No large part of it is one value (zeros or ones, say); NVFP4 has 15 values to choose from.
        _, counts = torch.unique(value, return_counts=True)
        assert counts.max() <= max(0.3 * value.numel(), 4), name


def test_one_plus_a_norm_weight_is_exact_in_bf16() -> None:
    weights = synthesize_layer(CONFIG, 3, 1)
    for field in fields(LayerWeights):
        if field.name.endswith("norm"):
            factor = 1 + getattr(weights, field.name)
            assert torch.equal(factor.bfloat16().float(), factor), field.name
            assert torch.equal(getattr(weights, field.name).bfloat16().float() + 1, factor), field.name
    norm = synthesize_head(CONFIG, 3).norm
    assert torch.equal(norm.bfloat16().float(), norm)


def test_dense_weights_are_near_normal() -> None:
    """The first four moments, at a size where chance moves them by under a percent."""
    values = synthesize_layer(CONFIG, 3, 1).q_proj.double() * 512**0.5
    assert values.mean().abs() < 0.01
    assert values.std() == pytest.approx(1, abs=0.01)
    assert (values**3).mean().abs() < 0.05
    # 3 for a normal distribution, 2.7 for the sum of four uniform ones.
    assert (values**4).mean() == pytest.approx(2.7, abs=0.1)


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="layers 0 to 7"):
        synthesize_layer(CONFIG, 3, 8)
