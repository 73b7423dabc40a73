"""The draft against its layer written with the parts of ``transformers``' Qwen3, in fp32."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.draft.config import DraftConfig, draft_of
from musetrace.muse.draft.reference import DraftResult, add_context, features_of, guess
from musetrace.muse.draft.sharding import shard_draft
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.reference import verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.weights import HeadWeights, synthesize, synthesize_head

qwen3: Any = importlib.import_module("transformers.models.qwen3.modeling_qwen3")

TOLERANCE = 2e-5
CONTEXT = 40
ROOT = 7

# A window shorter than the context, two query heads on each KV head, no constant at its public value.
TARGET = replace(
    preset("mini"),
    name="odd",
    vocab_size=96,
    hidden_size=64,
    num_hidden_layers=4,
    final_logit_softcapping=7.0,
)
CONFIG = DraftConfig(
    name="odd-draft",
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    sliding_window=24,
    max_position_embeddings=128,
    rms_norm_eps=1e-3,
    rope_theta=1234.0,
    target_layer_ids=(0, 2),
    mask_token_id=95,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def draft() -> DraftWeights:
    return synthesize_draft(CONFIG, seed=4)


@pytest.fixture(scope="module")
def head() -> HeadWeights:
    return synthesize_head(TARGET, seed=4)


def features(n: int = CONTEXT) -> Tensor:
    return torch.randn(n, CONFIG.feature_width, generator=torch.Generator().manual_seed(3)).bfloat16().float()


def run(draft: DraftWeights, head: HeadWeights, rounding: Rounding, tp: int = 1) -> DraftResult:
    cache = KvCache.empty(CONFIG, 64)
    add_context(draft, features(), 0, cache, rounding, tp)
    return guess(draft, TARGET, head, ROOT, CONTEXT, cache, rounding, tp)


class PublicDraft:
    """fc, norms, MLP and rotary embedding of Qwen3; keys and values as the public draft joins them."""

    def __init__(self, weights: DraftWeights) -> None:
        self.weights = {name: value.float() for name, value in weights.state_dict().items()}
        self.config = importlib.import_module("transformers").Qwen3Config(
            hidden_size=CONFIG.hidden_size,
            intermediate_size=CONFIG.intermediate_size,
            head_dim=CONFIG.head_dim,
            num_attention_heads=CONFIG.num_attention_heads,
            num_key_value_heads=CONFIG.num_key_value_heads,
            rms_norm_eps=CONFIG.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_theta},
        )
        self.rotary = qwen3.Qwen3RotaryEmbedding(self.config)

    def norm(self, name: str, value: Tensor) -> Tensor:
        module = qwen3.Qwen3RMSNorm(value.shape[-1], eps=CONFIG.rms_norm_eps)
        module.load_state_dict({"weight": self.weights[name]})
        return module(value)

    def heads(self, name: str, value: Tensor) -> Tensor:
        return (value @ self.weights[name].T).view(len(value), -1, CONFIG.head_dim).transpose(0, 1)[None]

    def layer(self, number: int, x: Tensor, context: Tensor) -> Tensor:
        at = f"layers.{number}"
        normed = self.norm(f"{at}.input_layernorm.weight", x)
        both = torch.cat((context, normed))
        q = self.norm(f"{at}.self_attn.q_norm.weight", self.heads(f"{at}.self_attn.q_proj.weight", normed))
        k = self.norm(f"{at}.self_attn.k_norm.weight", self.heads(f"{at}.self_attn.k_proj.weight", both))
        v = self.heads(f"{at}.self_attn.v_proj.weight", both)
        cos, sin = self.rotary(x, torch.arange(len(both))[None])
        q, _ = qwen3.apply_rotary_pos_emb(q, q, cos[:, -len(x) :], sin[:, -len(x) :])
        k, _ = qwen3.apply_rotary_pos_emb(k, k, cos, sin)
        near = (
            torch.arange(len(context), len(both))[:, None] - torch.arange(len(both)) < CONFIG.sliding_window
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=near, enable_gqa=True)
        x = x + mixed[0].transpose(0, 1).flatten(1) @ self.weights[f"{at}.self_attn.o_proj.weight"].T
        mlp = qwen3.Qwen3MLP(self.config)
        mlp.load_state_dict(
            {
                f"{part}.weight": self.weights[f"{at}.mlp.{part}.weight"]
                for part in ("gate_proj", "up_proj", "down_proj")
            }
        )
        return x + mlp(self.norm(f"{at}.post_attention_layernorm.weight", x))

    def run(self, x: Tensor) -> list[Tensor]:
        context = self.norm("hidden_norm.weight", features() @ self.weights["fc.weight"].T)
        states = [x]
        for number in range(CONFIG.num_hidden_layers):
            states.append(self.layer(number, states[-1], context))
        return [*states, self.norm("norm.weight", states[-1][1:])]


def difference(got: Tensor, want: Tensor) -> float:
    return float((got - want).abs().max() / want.square().mean().sqrt())


@torch.no_grad()
def test_a_pass_equals_the_public_draft(draft: DraftWeights, head: HeadWeights) -> None:
    got = run(draft, head, Rounding.NONE)
    *states, normed = PublicDraft(draft).run(got.hidden_states[0])
    for layer, (ours, public) in enumerate(zip(got.hidden_states, states, strict=True)):
        assert difference(ours, public) < TOLERANCE, f"behind {layer} layers"
    cap = TARGET.final_logit_softcapping
    logits = torch.tanh(normed @ head.lm_head.float().T * TARGET.output_multiplier / cap) * cap
    assert difference(got.logits, logits) < TOLERANCE
    assert got.logits.shape == (15, TARGET.vocab_size)


def test_context_given_in_parts_is_the_context(draft: DraftWeights, head: HeadWeights) -> None:
    cache = KvCache.empty(CONFIG, 64)
    for start, end in ((0, 16), (16, 19), (19, CONTEXT)):
        add_context(draft, features()[start:end], start, cache, Rounding.BF16)
        # The rows of a pass lie where the next context goes.
        guess(draft, TARGET, head, 1, end, cache, Rounding.BF16)
    again = guess(draft, TARGET, head, ROOT, CONTEXT, cache, Rounding.BF16)
    torch.testing.assert_close(again.logits, run(draft, head, Rounding.BF16).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tp", [1, 2])
def test_rounding_moves_a_pass_little(draft: DraftWeights, head: HeadWeights, tp: int) -> None:
    exact, rounded = (run(draft, head, rounding, tp).logits for rounding in Rounding)
    assert 0 < float((exact - rounded).square().mean() / exact.square().mean()) ** 0.5 < 0.02


def test_features_are_the_chosen_layers_side_by_side() -> None:
    model = synthesize(replace(TARGET, num_hidden_layers=3), seed=2)
    result = verify(model, torch.arange(5), 0, KvCache.empty(model.config, 16), Rounding.NONE)
    joined = features_of(CONFIG, result.hidden_states, Rounding.NONE)
    assert torch.equal(joined[:, :64], result.layers[0].output)
    assert torch.equal(joined[:, 64:], result.layers[2].output)


def test_the_ranks_shares_put_together_are_the_draft(draft: DraftWeights) -> None:
    ranks = [shard_draft(draft, TARGET, rank, 2) for rank in range(2)]
    assert torch.equal(torch.cat([rank.fc for rank in ranks], dim=1), draft.fc)
    for number, layer in enumerate(draft.layers):
        parts = [rank.layers[number] for rank in ranks]
        assert torch.equal(torch.cat([part.o for part in parts], dim=1), layer.o_proj)
        assert torch.equal(torch.cat([part.down for part in parts], dim=1), layer.down_proj)
        assert torch.equal(torch.cat([part.gate_up[0::2] for part in parts]), layer.gate_proj)
        assert torch.equal(torch.cat([part.gate_up[1::2] for part in parts]), layer.up_proj)
        heads = [part.qkv.split((64, 32, 32)) for part in parts]
        for place, whole in enumerate((layer.q_proj, layer.k_proj, layer.v_proj)):
            assert torch.equal(torch.cat([of_rank[place] for of_rank in heads]), whole)


@pytest.mark.parametrize("name", ["mini", "muse-spark-open", "muse-spark-open-tp8-slice"])
def test_each_preset_has_a_draft_that_fits(name: str) -> None:
    target = preset(name)
    draft = draft_of(target)
    for tp in (1, 2, 4, 8) if target.slice_tp is None and name != "mini" else (target.slice_tp or 4,):
        draft.validate(target, tp)
    assert DraftConfig.from_json(draft.to_json()) == draft


def test_the_public_draft_has_three_billion_weights() -> None:
    # 5 x (8192 x 8192 x 2 + 8192 x 1024 x 2 + 3 x 8192 x 16384) + 8192 x 40960, without the norms.
    draft = DraftConfig()
    heads = (draft.num_attention_heads * 2 + draft.num_key_value_heads * 2) * draft.head_dim
    layer = draft.hidden_size * (heads + 3 * draft.intermediate_size)
    assert 5 * layer + draft.hidden_size * draft.feature_width == 3_103_784_960


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head_dim": 24}, "head_dim 24 is not a multiple of 16"),
        ({"num_attention_heads": 3}, "num_attention_heads 3 is not a multiple of 2"),
        ({"sliding_window": 15}, "sliding_window 15 is less than the 16 rows"),
        ({"intermediate_size": True}, "is not a whole number"),
    ],
)
def test_dimensions_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(CONFIG, **changed)


@pytest.mark.parametrize(
    ("changed", "target", "tp", "message"),
    [
        ({}, TARGET, 4, "num_key_value_heads 2 cannot be shared by 4 ranks"),
        ({"target_layer_ids": (0, 4)}, TARGET, 1, "wants layer 4 of model odd, which has layers 0 to 3"),
        ({"target_layer_ids": (2, 0)}, TARGET, 1, "do not ascend"),
        (
            {"mask_token_id": 96},
            TARGET,
            1,
            "mask_token_id 96 is outside the vocabulary of model odd, 0 to 95",
        ),
        ({}, preset("mini"), 1, "hidden_size 64, model mini 512: they do not belong together"),
    ],
)
def test_a_draft_of_another_model_is_refused(
    changed: dict[str, Any], target: MuseConfig, tp: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(CONFIG, **changed).validate(target, tp)


def test_a_pass_beyond_the_cache_is_refused(draft: DraftWeights, head: HeadWeights) -> None:
    with pytest.raises(UsageError, match="make the cache larger"):
        guess(draft, TARGET, head, ROOT, 49, KvCache.empty(CONFIG, 64), Rounding.BF16)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        guess(draft, TARGET, head, 96, 0, KvCache.empty(CONFIG, 64), Rounding.BF16)
