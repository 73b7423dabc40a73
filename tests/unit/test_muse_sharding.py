"""The shares of all ranks are the whole, and a layer computed from shares alone is the reference's layer."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse import PRESETS, MuseConfig
from musetrace.muse.attention import attend
from musetrace.muse.moe import select
from musetrace.muse.norms import rms_norm
from musetrace.muse.nvfp4 import dequantize, dequantize_unscaled
from musetrace.muse.reference import KvCache, Rounding, layer_forward, verify
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.sharding import RankLayer, shard_head, shard_layer
from musetrace.muse.weights import LayerWeights, ModelWeights, expert_values, synthesize

CONFIG = replace(PRESETS["mini"], num_hidden_layers=6)
# bf16 and NVFP4 experts, sliding and global.
LAYERS = {0: ("sliding", "bf16"), 1: ("global", "nvfp4"), 2: ("sliding", "nvfp4"), 5: ("global", "bf16")}
CONTEXT, TOKENS = 80, 16

every_layer = pytest.mark.parametrize("layer", LAYERS)
every_tp = pytest.mark.parametrize("tp", [1, 2, 4])


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def model() -> ModelWeights:
    return synthesize(CONFIG, seed=9)


def shards_of(model: ModelWeights, layer: int, tp: int) -> list[RankLayer]:
    return [shard_layer(model.layers[layer], CONFIG, rank, tp) for rank in range(tp)]


def joined(shards: list[RankLayer], field: str, dim: int = 0) -> Tensor:
    return torch.cat([getattr(shard, field) for shard in shards], dim=dim)


def test_layers_are_of_all_kinds() -> None:
    for layer, kinds in LAYERS.items():
        assert (CONFIG.layer_kind(layer), CONFIG.expert_format(layer)) == kinds


@every_layer
@every_tp
def test_shapes_types_and_layout(model: ModelWeights, layer: int, tp: int) -> None:
    bf16, fp32, byte = torch.bfloat16, torch.float32, torch.uint8
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "qkvg": (((8 + 4 + 4 + 8) // tp * 64, 512), bf16),
        "o": ((512, 8 // tp * 64), bf16),
        "pooler": ((256 // tp, 512), bf16),
        "router": ((16 // tp, 512), fp32),
        "router_bias": ((16,), fp32),
        "unpooler": ((512, 256 // tp), bf16),
        "pre_expert_norm": ((256,), fp32),
        "post_expert_norm": ((256,), fp32),
    }
    hidden = [
        "input_norm",
        "pre_ffn_norm",
        "post_ffn_norm",
        "attn_alpha",
        "attn_beta",
        "ffn_alpha",
        "ffn_beta",
    ]
    expected |= {name: ((512,), fp32) for name in hidden}
    for name, rows in (("gate_up", 512 // tp), ("down", 256 // tp)):
        if CONFIG.expert_format(layer) == "bf16":
            expected[name] = ((16, rows, 256), bf16)
        else:
            expected[f"{name}_codes"] = ((16, rows, 128), byte)
            expected[f"{name}_scales"] = ((16, rows, 16), byte)
            expected[f"{name}_global"] = ((16,), fp32)
    for shard in shards_of(model, layer, tp):
        for field in fields(shard):
            value = getattr(shard, field.name)
            if field.name not in expected:
                assert value is None, field.name
                continue
            assert (tuple(value.shape), value.dtype) == expected[field.name], field.name
            assert value.is_contiguous(), field.name
            # A share is a copy of its own: no rank keeps the whole tensor alive.
            if tp > 1 and field.name in ("qkvg", "o", "pooler", "gate_up_codes", "down"):
                assert int(value.untyped_storage().nbytes()) == value.numel() * value.element_size(), (
                    field.name
                )


@every_layer
@every_tp
def test_dense_shares_are_the_whole(model: ModelWeights, layer: int, tp: int) -> None:
    weights, shards = model.layers[layer], shards_of(model, layer, tp)
    assert torch.equal(joined(shards, "o", dim=1), weights.o_proj)
    assert torch.equal(joined(shards, "pooler"), weights.pooler)
    assert torch.equal(joined(shards, "router"), weights.router)
    assert torch.equal(joined(shards, "unpooler", dim=1), weights.unpooler)
    for shard in shards:
        assert torch.equal(shard.router_bias, weights.router_bias)
        for name in ("input_norm", "pre_ffn_norm", "post_ffn_norm", "pre_expert_norm", "post_expert_norm"):
            assert torch.equal(getattr(shard, name) - 1, getattr(weights, name)), name


@every_tp
def test_qkvg_rows_head_by_head(model: ModelWeights, tp: int) -> None:
    """Each q head stands on the rank of the kv head it reads."""
    weights, shards = model.layers[2], shards_of(model, 2, tp)
    hq, hkv, dim = 8 // tp, 4 // tp, 64
    seen = set()
    for rank, shard in enumerate(shards):
        names = [("q_proj", hq), ("k_proj", hkv), ("v_proj", hkv), ("gate_proj", hq)]
        order = [(name, rank * count + head) for name, count in names for head in range(count)]
        for position, (name, head) in enumerate(order):
            rows = shard.qkvg[position * dim : (position + 1) * dim]
            assert torch.equal(rows, getattr(weights, name)[head * dim : (head + 1) * dim])
        seen |= set(order)
        queries = [head for name, head in order if name == "q_proj"]
        keys = [head for name, head in order if name == "k_proj"]
        assert {head // 2 for head in queries} == set(keys)
    assert len(seen) == 8 + 4 + 4 + 8


def share_values(shard: RankLayer, name: str) -> Tensor:
    """Fp32 values of a rank's expert rows, whatever their format."""
    whole: Tensor | None = getattr(shard, name)
    if whole is not None:
        return whole.float()
    codes, scales, scale = (getattr(shard, f"{name}_{part}") for part in ("codes", "scales", "global"))
    values: Tensor = dequantize(codes, scales, scale)
    return values


@every_layer
@every_tp
def test_expert_rows(model: ModelWeights, layer: int, tp: int) -> None:
    weights, shards = model.layers[layer], shards_of(model, layer, tp)
    gate, up = expert_values(weights.gate_up).chunk(2, dim=1)
    features = 256 // tp
    for rank, shard in enumerate(shards):
        rows = share_values(shard, "gate_up")
        for feature in range(features):
            assert torch.equal(rows[:, 2 * feature], gate[:, rank * features + feature])
            assert torch.equal(rows[:, 2 * feature + 1], up[:, rank * features + feature])
    down = torch.cat([share_values(shard, "down") for shard in shards], dim=1)
    assert torch.equal(down, expert_values(weights.down))


@every_tp
def test_head_shares_are_the_whole(model: ModelWeights, tp: int) -> None:
    heads = [shard_head(model.head, CONFIG, rank, tp) for rank in range(tp)]
    assert torch.equal(torch.cat([head.lm_head for head in heads]), model.head.lm_head)
    for head in heads:
        assert head.lm_head.is_contiguous()
        assert head.lm_head.dtype == torch.bfloat16
        assert head.embed.data_ptr() == model.head.embed_tokens.data_ptr()
        assert torch.equal(head.final_norm, model.head.norm)


# A layer from shares alone, the way ranks would compute it.


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    return (inputs.double() @ weight.double().T).float()


def expert_product(shard: RankLayer, name: str, expert: int, inputs: Tensor) -> Tensor:
    whole: Tensor | None = getattr(shard, name)
    if whole is not None:
        return product(inputs, whole[expert])
    codes, scales, scale = (
        getattr(shard, f"{name}_{part}")[expert] for part in ("codes", "scales", "global")
    )
    scaled: Tensor = product(inputs, dequantize_unscaled(codes, scales)) * scale
    return scaled


def attention_branch(
    config: MuseConfig, shards: list[RankLayer], layer: int, x: Tensor, cache: KvCache, rounding: Rounding
) -> Tensor:
    eps, dim, hkv = config.rms_norm_eps, config.head_dim, config.num_key_value_heads // len(shards)
    normed = rounding.to_bf16(rms_norm(x, eps) * shards[0].input_norm)
    tables = rope_tables(config, torch.arange(CONTEXT, CONTEXT + TOKENS))
    total = torch.zeros(x.shape)
    for rank, shard in enumerate(shards):
        heads = product(normed, shard.qkvg).reshape(len(x), -1, dim)
        hq = (heads.shape[1] - 2 * hkv) // 2
        q, k, v, gate = torch.split(heads, [hq, hkv, hkv, hq], dim=1)
        q, k = rms_norm(q, eps) * config.qk_scale_factor, rms_norm(k, eps)
        if not config.is_global(layer):
            q, k = apply_rope(q, tables), apply_rope(k, tables)
        q, k, v, gate = (rounding.to_bf16(value) for value in (q, k, v, gate))
        own = slice(rank * hkv, (rank + 1) * hkv)
        keys = torch.cat([cache.k[layer][own, :CONTEXT], k.transpose(0, 1)], dim=1)
        values = torch.cat([cache.v[layer][own, :CONTEXT], v.transpose(0, 1)], dim=1)
        mixed = attend(config, layer, q, keys, values)
        gated = rounding.to_bf16(rms_norm(mixed, eps) * torch.sigmoid(gate)).flatten(1)
        total = total + rounding.to_bf16(product(gated, shard.o))
    return rms_norm(total, config.post_norm_eps)


def expert_sum(config: MuseConfig, shards: list[RankLayer], x: Tensor, rounding: Rounding) -> Tensor:
    logits = torch.cat([product(x, shard.router) for shard in shards], dim=1) * config.output_multiplier
    chosen, weights = select(torch.sigmoid(logits), shards[0].router_bias, config)
    pooled = torch.cat([rounding.to_bf16(product(x, shard.pooler)) for shard in shards], dim=1)
    inputs = rounding.to_bf16(rms_norm(pooled, config.rms_norm_eps) * shards[0].pre_expert_norm)
    combined = torch.zeros(inputs.shape)
    for token in range(len(x)):
        for expert in sorted(chosen[token].tolist()):
            rows = [expert_product(shard, "gate_up", expert, inputs[token : token + 1]) for shard in shards]
            activated = [torch.nn.functional.silu(gate_up[:, 0::2]) * gate_up[:, 1::2] for gate_up in rows]
            hidden = rounding.to_bf16(torch.cat(activated, dim=1))
            down = torch.cat([expert_product(shard, "down", expert, hidden) for shard in shards], dim=1)
            scaled = rounding.to_bf16(rounding.to_bf16(down) * shards[0].post_expert_norm)
            weight = weights[token, chosen[token].tolist().index(expert)]
            combined[token] += rms_norm(scaled, config.post_norm_eps)[0] * weight
    combined = rounding.to_bf16(combined)
    total = torch.zeros(x.shape)
    for shard, columns in zip(shards, combined.chunk(len(shards), dim=1), strict=True):
        total = total + rounding.to_bf16(product(columns, shard.unpooler))
    return total


def layer_from_shards(
    config: MuseConfig, shards: list[RankLayer], layer: int, x: Tensor, cache: KvCache, rounding: Rounding
) -> Tensor:
    one = shards[0]
    x = one.attn_alpha * x + one.attn_beta * attention_branch(config, shards, layer, x, cache, rounding)
    ffn_input = rounding.to_bf16(rms_norm(x, config.rms_norm_eps) * one.pre_ffn_norm)
    unpooled = expert_sum(config, shards, ffn_input, rounding)
    branch = rms_norm(rounding.to_bf16(unpooled * one.post_ffn_norm), config.post_norm_eps)
    return one.ffn_alpha * x + one.ffn_beta * branch


@pytest.mark.parametrize("rounding", Rounding)
@every_layer
@every_tp
def test_a_layer_from_shares(model: ModelWeights, layer: int, tp: int, rounding: Rounding) -> None:
    generator = torch.Generator().manual_seed(layer)
    weights: LayerWeights = model.layers[layer]
    cache = KvCache.empty(CONFIG, CONTEXT + TOKENS)
    context = torch.randn(CONTEXT, CONFIG.hidden_size, generator=generator)
    layer_forward(CONFIG, weights, context, cache, 0, rounding, tp)
    x = torch.randn(TOKENS, CONFIG.hidden_size, generator=generator)
    expected = layer_forward(CONFIG, weights, x, cache, CONTEXT, rounding, tp).output
    actual = layer_from_shards(CONFIG, shards_of(model, layer, tp), layer, x, cache, rounding)
    # Both accumulate in fp64, so even under bf16 rounding hardly a value falls on the other side.
    difference = (actual - expected).square().mean().sqrt()
    assert difference < (1e-6 if rounding is Rounding.NONE else 1e-4)


def test_tp_changes_the_model_by_rounding_only(model: ModelWeights) -> None:
    ids = torch.arange(TOKENS)
    results = {
        tp: verify(model, ids, 0, KvCache.empty(CONFIG, TOKENS), Rounding.BF16, tp).hidden_states[1]
        for tp in (1, 2, 4)
    }
    for tp in (2, 4):
        difference = (results[tp] - results[1]).square().mean().sqrt()
        assert 0 < difference < 5e-3


# Refusals


@pytest.mark.parametrize(("rank", "tp"), [(2, 2), (-1, 2), (0, 3), (0, 8), (0, 0)])
def test_ranks_that_are_not_there(model: ModelWeights, rank: int, tp: int) -> None:
    with pytest.raises(UsageError):
        shard_layer(model.layers[0], CONFIG, rank, tp)
    with pytest.raises(UsageError):
        shard_head(model.head, CONFIG, rank, tp)
