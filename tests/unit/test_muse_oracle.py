"""The reference against the public model in ``transformers``, with the same weights, in fp32.

Measured on the two models below: hidden states differ by at most 9.2e-6 of their rms, logits by 7.2e-6.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from musetrace.muse import PRESETS, MuseConfig
from musetrace.muse.attention import project_qkv
from musetrace.muse.reference import KvCache, Rounding, VerifyResult, verify
from musetrace.muse.weights import ModelWeights, synthesize

# Not an import statement: whether the package has type annotations depends on its version.
transformers: Any = importlib.import_module("transformers")

TOLERANCE = 2e-5
PREFILL = 150
STEP = 16

MINI = PRESETS["mini"]
# Every constant away from its public value, so that none is written into the reference.
ODD = replace(
    MINI,
    name="odd",
    vocab_size=300,
    hidden_size=192,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    moe_hidden_size=96,
    moe_intermediate_size=48,
    num_local_experts=7,
    num_experts_per_tok=3,
    sliding_window=24,
    rms_norm_eps=1e-3,
    post_norm_eps=1e-2,
    qk_scale_factor=2.5,
    output_multiplier=1.3,
    final_logit_softcapping=7.0,
    rope_theta=1234.0,
    residual_gate_temperature=0.7,
    routed_scaling_factor=1.7,
)


def public_config(config: MuseConfig) -> Any:
    """The whole public model around this text model, with the smallest image and sound parts it takes."""
    own = {"name", "rope_theta", "slice_tp"}
    text = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in own}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": config.rope_theta}
    text |= {"bos_token_id": None, "eos_token_id": None}
    return transformers.MuseSparkConfig(
        text_config=text,
        vision_config={
            "num_hidden_layers": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_attention_heads": 2,
        },
        audio_config={
            "patch_sizes": (2,),
            "hidden_sizes": (8,),
            "depths": (1,),
            "num_hidden_layers": 1,
            "out_hidden_size": config.hidden_size,
        },
        out_hidden_size=64,
        projector_hidden_size=16,
        # Text only: these stand outside the vocabulary.
        image_token_id=config.vocab_size,
        video_token_id=config.vocab_size + 1,
        audio_token_id=config.vocab_size + 2,
        attn_implementation="eager",
        experts_implementation="eager",
    )


def public_model(model: ModelWeights) -> Any:
    """The public model with our weights; every text parameter must find its counterpart."""
    public = transformers.MuseSparkForConditionalGeneration(public_config(model.config)).eval()
    state = model.state_dict()
    public.lm_head.load_state_dict({"weight": state.pop("lm_head.weight")})
    public.model.language_model.load_state_dict(state, strict=True)
    return public


class Recorded:
    """Outputs of the parts of the public text model, by name; the last call's."""

    def __init__(self, public: Any) -> None:
        self.values: dict[str, tuple[Tensor, ...]] = {}
        text = public.model.language_model
        self._watch("embed", text.embed_tokens)
        for index, layer in enumerate(text.layers):
            self._watch(f"{index}", layer)
            self._watch(f"{index}.attention", layer.self_attn)
            self._watch(f"{index}.ffn_input", layer.pre_feedforward_layernorm)
            self._watch(f"{index}.router", layer.mlp.gate)
            self._watch(f"{index}.expert_input", layer.mlp.pre_expert_norm)
            self._watch(f"{index}.experts", layer.mlp.experts)
            self._watch(f"{index}.moe", layer.mlp)

    def _watch(self, name: str, module: Any) -> None:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            self.values[name] = tuple(value.clone() for value in outputs if isinstance(value, Tensor))

        module.register_forward_hook(keep)


@dataclass(frozen=True)
class Comparison:
    """One pass of both models over the same tokens and weights; ``start`` is the first position."""

    model: ModelWeights
    start: int
    ours: VerifyResult
    cache: KvCache
    public: dict[str, tuple[Tensor, ...]]
    public_logits: Tensor
    public_cache: Any


def compare(config: MuseConfig) -> dict[str, Comparison]:
    """A prefill longer than the sliding window, and a verify pass over what it left in the cache."""
    model = synthesize(config, seed=1)
    public = public_model(model)
    recorded = Recorded(public)
    ids = torch.randint(config.vocab_size, (PREFILL + STEP,), generator=torch.Generator().manual_seed(5))
    cache = KvCache.empty(config, PREFILL + STEP)
    public_cache = None
    results = {}
    for name, start, end in (("prefill", 0, PREFILL), ("verify", PREFILL, PREFILL + STEP)):
        ours = verify(model, ids[start:end], start, cache, Rounding.NONE)
        with torch.no_grad():
            output = public(input_ids=ids[None, start:end], cache=public_cache, use_cache=True)
        public_cache = output.cache
        values = dict(recorded.values)
        results[name] = Comparison(model, start, ours, cache, values, output.logits[0], public_cache)
    return results


@pytest.fixture(scope="module")
def comparisons(one_torch_thread: None) -> dict[str, dict[str, Comparison]]:
    return {config.name: compare(config) for config in (MINI, ODD)}


@pytest.fixture(params=["mini-prefill", "mini-verify", "odd-prefill", "odd-verify"])
def comparison(request: pytest.FixtureRequest, comparisons: dict[str, dict[str, Comparison]]) -> Comparison:
    config, name = request.param.split("-")
    return comparisons[config][name]


def distance(ours: Tensor, public: Tensor) -> float:
    """Largest difference, in units of the public value's rms."""
    assert ours.shape == public.shape
    return float((ours - public).abs().max() / public.square().mean().sqrt())


def test_transformers_is_new_enough() -> None:
    assert tuple(int(part) for part in transformers.__version__.split(".")[:2]) >= (5, 24)


def test_public_numbers_are_the_public_ones() -> None:
    ours, public = PRESETS["muse-spark-open"], transformers.MuseSparkTextConfig()
    for field in fields(ours):
        if field.name not in ("name", "rope_theta", "slice_tp"):
            assert getattr(ours, field.name) == getattr(public, field.name), field.name
    assert ours.rope_theta == public.rope_parameters["rope_theta"]


@pytest.mark.parametrize("config", [PRESETS["muse-spark-open"], MINI, ODD], ids=lambda config: config.name)
def test_layer_kinds_and_rotary_layers_are_the_public_ones(config: MuseConfig) -> None:
    public = transformers.MuseSparkTextConfig(num_hidden_layers=config.num_hidden_layers)
    for layer in range(config.num_hidden_layers):
        assert config.is_global(layer) == (public.layer_types[layer] == "full_attention")
        assert config.is_global(layer) == (public.layer_rope_theta[layer] == 0)


def test_the_runs_cover_what_they_should(comparison: Comparison) -> None:
    config = comparison.model.config
    assert comparison.start + len(comparison.public_logits) > 2 * config.sliding_window
    kinds = {
        (config.layer_kind(layer.layer), config.expert_format(layer.layer))
        for layer in comparison.model.layers
    }
    assert {("sliding", "bf16"), ("sliding", "nvfp4"), ("global", "bf16")} <= kinds
    # Logits where tanh bends, and a bias that changes the choice of experts.
    assert comparison.public_logits.abs().max() > 0.7 * config.final_logit_softcapping
    unbiased = [
        states.moe.routing.scores.topk(config.num_experts_per_tok).indices
        for states in comparison.ours.layers
    ]
    chosen = [states.moe.routing.experts for states in comparison.ours.layers]
    changed = [
        (one.sort().values != other.sort().values).any() for one, other in zip(unbiased, chosen, strict=True)
    ]
    assert all(changed)


def test_hidden_states(comparison: Comparison) -> None:
    names = ["embed"] + [f"{layer}" for layer in range(comparison.model.config.num_hidden_layers)]
    for name, ours in zip(names, comparison.ours.hidden_states, strict=True):
        assert distance(ours, comparison.public[name][0][0]) < TOLERANCE, name


def test_logits(comparison: Comparison) -> None:
    assert distance(comparison.ours.logits, comparison.public_logits) < TOLERANCE


def test_values_inside_the_layers(comparison: Comparison) -> None:
    for index, ours in enumerate(comparison.ours.layers):
        values = {
            "attention": ours.o_output[None],
            "ffn_input": ours.ffn_input[None],
            "expert_input": ours.moe.expert_input,
            "experts": ours.moe.combined,
            "moe": ours.moe.unpooled[None],
        }
        for name, value in values.items():
            # Norms of what cancels in a sum lose more than the hidden states do.
            assert distance(value, comparison.public[f"{index}.{name}"][0]) < 5 * TOLERANCE, (index, name)


def test_routing(comparison: Comparison) -> None:
    for index, ours in enumerate(comparison.ours.layers):
        logits, weights, experts = comparison.public[f"{index}.router"]
        routing = ours.moe.routing
        assert distance(routing.logits, logits) < TOLERANCE
        by_id, order = experts.sort(dim=-1)
        ours_by_id, ours_order = routing.experts.sort(dim=-1)
        assert torch.equal(ours_by_id, by_id)
        assert distance(routing.weights.gather(1, ours_order), weights.gather(1, order)) < TOLERANCE


def test_cache(comparisons: dict[str, dict[str, Comparison]]) -> None:
    """Both caches end alike: all positions in global layers, the window's in sliding ones."""
    for passes in comparisons.values():
        comparison = passes["verify"]
        for index in range(comparison.model.config.num_hidden_layers):
            public = comparison.public_cache.layers[index]
            kept = public.keys.shape[-2]
            assert distance(comparison.cache.k[index][:, -kept:], public.keys[0]) < TOLERANCE
            assert distance(comparison.cache.v[index][:, -kept:], public.values[0]) < TOLERANCE


def test_a_layer_on_the_public_input(comparison: Comparison) -> None:
    """Teacher forcing: projections of the public residual stream meet the cache that the free run wrote."""
    config = comparison.model.config
    for index in range(1, config.num_hidden_layers):
        x = comparison.public[f"{index - 1}"][0][0]
        projected = project_qkv(config, comparison.model.layers[index], x, comparison.start, Rounding.NONE)
        end = comparison.start + len(x)
        written = comparison.cache.k[index][:, comparison.start : end].transpose(0, 1)
        assert distance(projected.k, written) < TOLERANCE
