"""The reference of loopback equals that of a model whose ranks all hold the same shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from musetrace.muse.attention import Projected, project_qkv
from musetrace.muse.config import preset
from musetrace.muse.cuda_weights import upload_head, upload_layer
from musetrace.muse.moe import Routing
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.reference import KvCache, LayerStates, Rounding, head_logits, layer_body
from musetrace.muse.sharding import shard_head, shard_layer
from musetrace.muse.weights import Experts, LayerWeights, synthesize_head, synthesize_layer
from tests.gpu.slice_reference import Slice, SliceStates, clear_tokens, layer_states, logits_of, project

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CONFIG = preset("mini")
CPU = torch.device("cpu")
TOKENS, POSITION = 16, 80
SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16 = 0, 1, 3, 7

every_layer = pytest.mark.parametrize("layer", [SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16])
every_tp = pytest.mark.parametrize("tp", [1, 2, 4])


def repeated(tensor: Tensor, tp: int, dim: int = 0) -> Tensor:
    """The first of ``tp`` shares, once for each rank."""
    return torch.cat([tensor.chunk(tp, dim=dim)[0]] * tp, dim=dim)


def repeated_experts(experts: Experts, tp: int, parts: int) -> Experts:
    """The same of every expert's rows; gate and up are two parts."""

    def rows(tensor: Tensor) -> Tensor:
        return torch.cat([repeated(part, tp, 1) for part in tensor.chunk(parts, dim=1)], dim=1)

    if isinstance(experts, Nvfp4Tensor):
        return Nvfp4Tensor(rows(experts.codes), rows(experts.scales), experts.global_scale)
    return rows(experts)


def repeated_layer(layer: int, tp: int) -> LayerWeights:
    """A layer of which all ranks hold what rank 0 holds; only the router bias differs between ranks."""
    weights = synthesize_layer(CONFIG, 5, layer)
    rows = ("q_proj", "k_proj", "v_proj", "gate_proj", "router", "pooler", "post_expert_norm")
    changed: dict[str, Any] = {name: repeated(getattr(weights, name), tp) for name in rows}
    changed |= {name: repeated(getattr(weights, name), tp, 1) for name in ("o_proj", "unpooler")}
    changed["gate_up"] = repeated_experts(weights.gate_up, tp, parts=2)
    changed["down"] = repeated_experts(weights.down, tp, parts=1)
    return replace(weights, **changed)


def slice_of(weights: LayerWeights, tp: int) -> Slice:
    return Slice(CONFIG, tp, weights.layer, upload_layer(shard_layer(weights, CONFIG, 0, tp), CPU))


def both(layer: int, tp: int, stop4: str) -> tuple[LayerStates, SliceStates, Projected, Projected]:
    """States and projections of the reference and of loopback, on the same random input."""
    weights = repeated_layer(layer, tp)
    generator = torch.Generator().manual_seed(layer)
    x = torch.randn(TOKENS, CONFIG.hidden_size, generator=generator)
    projected = project_qkv(CONFIG, weights, x, POSITION, Rounding.BF16)
    cache = KvCache.empty(CONFIG, POSITION + TOKENS)
    shape = (POSITION, CONFIG.num_key_value_heads // tp, CONFIG.head_dim)
    k, v = (torch.randn(shape, generator=generator).bfloat16().float().repeat(1, tp, 1) for _ in range(2))
    cache.write(layer, 0, k, v)
    cache.write(layer, POSITION, projected.k, projected.v)
    expected = layer_body(CONFIG, weights, x, projected, cache, POSITION, Rounding.BF16, tp)
    slice_ = slice_of(weights, tp)
    own = project(slice_, x, POSITION)
    heads = CONFIG.num_key_value_heads // tp
    kv = [part[:heads] for part in cache.read(layer, POSITION + TOKENS)]
    return expected, layer_states(slice_, x, own, kv, stop4), projected, own


@every_layer
@every_tp
@pytest.mark.parametrize("stop4", ["sumsq", "gather"])
def test_loopback_is_a_model_of_equal_ranks(layer: int, tp: int, stop4: str) -> None:
    expected, got, projected, own = both(layer, tp, stop4)
    for name in ("q", "k", "v", "gate"):
        part = getattr(own, name)
        assert part.equal(getattr(projected, name)[:, : part.shape[1]]), name
    moe, columns = expected.moe, CONFIG.moe_hidden_size // tp
    assert got.heads.equal(expected.o_input.chunk(tp, dim=1)[0])
    assert got.x1.equal(expected.ffn_input)
    assert got.pooled.equal(moe.pooled)
    assert got.expert_x.equal(moe.expert_input)
    assert (got.routing.logits * CONFIG.output_multiplier).equal(moe.routing.logits)
    assert got.routing.experts.equal(moe.routing.experts.sort(dim=-1).values)
    for states in moe.experts:
        pairs = (got.routing.experts.flatten() == states.expert).nonzero().flatten()
        assert got.features[pairs].equal(states.activated)
        assert got.outputs[pairs].equal(states.down[:, :columns])
    torch.testing.assert_close(got.combined, moe.combined[:, :columns], rtol=2**-7, atol=1e-6)
    torch.testing.assert_close(got.output, expected.output, rtol=1e-4, atol=1e-4)


def test_the_two_ways_of_stop_4_differ_by_the_weights_of_the_repeats() -> None:
    weights = repeated_layer(SLIDING_NVFP4, 4)
    x = torch.randn(TOKENS, CONFIG.hidden_size, generator=torch.Generator().manual_seed(1))
    changed = replace(weights, post_expert_norm=weights.post_expert_norm.clone())
    changed.post_expert_norm[CONFIG.moe_hidden_size // 4 :] += 3
    ways = {}
    for way in ("sumsq", "gather"):
        for name, layer in (("equal", weights), ("other", changed)):
            slice_ = slice_of(layer, 4)
            own = project(slice_, x, 0)
            kv = [own.k.transpose(0, 1), own.v.transpose(0, 1)]
            ways[way, name] = layer_states(slice_, x, own, kv, way).combined
    assert ways["sumsq", "other"].equal(ways["sumsq", "equal"])
    assert not ways["gather", "other"].equal(ways["gather", "equal"])


@every_tp
def test_logits(tp: int) -> None:
    head = synthesize_head(CONFIG, 5)
    x = torch.randn(TOKENS, CONFIG.hidden_size, generator=torch.Generator().manual_seed(2))
    expected = head_logits(CONFIG, head, x, Rounding.BF16)
    got = logits_of(CONFIG, tp, upload_head(shard_head(head, CONFIG, 0, tp), CPU), x)
    assert got.equal(expected[:, : CONFIG.vocab_size // tp])


def test_near_ties_between_router_rows_are_not_clear() -> None:
    """Four ranks of four rows: experts e and e + 4 have one score, and their tie goes to the lower id."""
    slice_ = slice_of(repeated_layer(SLIDING_NVFP4, 4), 4)
    slice_.tensors["router_bias"].zero_()
    rows = torch.tensor([[0.9, 0.5, 0.4, 0.3], [0.9, 0.9 - 1e-5, 0.4, 0.3], [0.9, 0.9 - 1e-3, 0.4, 0.3]])
    experts = torch.tensor([[0, 4, 8, 12]] * 3)
    logits = rows.repeat(1, 4)
    clear = clear_tokens(slice_, Routing(logits, logits, experts, torch.ones(3, 4)), 1e-4)
    assert clear.tolist() == [True, False, True]
