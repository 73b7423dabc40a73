"""The baseline chain on a real GPU against the torch reference, layer by layer, on synthetic `mini` models.

With loopback a rank plays its peers, so it computes a model whose ranks all hold the same shares: the
reference gets just that model. Tolerances are in units of the expected values' rms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.muse.attention import Projected, project_qkv
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_weights import addresses, load_chain, rope_table, upload_head, upload_layer
from musetrace.muse.device import shape_of
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.reference import KvCache, LayerStates, Rounding, head_logits, layer_body
from musetrace.muse.sharding import shard_head, shard_layer
from musetrace.muse.weights import Experts, LayerWeights, ModelWeights, synthesize

pytestmark = pytest.mark.gpu

TOKENS = 16
CAPACITY = 160
# The window of 64 cuts, and neither the window's nor the tokens' begin is a multiple of the 32 keys of a run.
POSITION = 101
TOLERANCE = 1e-2
ROUTING_MARGIN = 5e-4
NAN_BITS = 0x7FFF
SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16 = 0, 1, 3, 7
CASES = [SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16]


def repeated(tensor: Tensor, tp: int, dim: int) -> Tensor:
    """The first of ``tp`` shares, once for each rank."""
    return torch.cat([tensor.chunk(tp, dim=dim)[0]] * tp, dim=dim)


def repeated_experts(experts: Experts, tp: int, halves: int) -> Experts:
    """The same of the rows of every expert; gate and up are two halves, each of them cut."""

    def rows(tensor: Tensor) -> Tensor:
        return torch.cat([repeated(half, tp, 1) for half in tensor.chunk(halves, dim=1)], dim=1)

    if isinstance(experts, Nvfp4Tensor):
        return Nvfp4Tensor(rows(experts.codes), rows(experts.scales), experts.global_scale)
    return rows(experts)


def repeated_layer(weights: LayerWeights, tp: int) -> LayerWeights:
    """A layer of which all ranks hold what rank 0 holds of ``weights``."""
    rows = ("q_proj", "k_proj", "v_proj", "gate_proj", "router", "pooler", "post_expert_norm")
    changed: dict[str, Any] = {name: repeated(getattr(weights, name), tp, 0) for name in rows}
    changed |= {name: repeated(getattr(weights, name), tp, 1) for name in ("o_proj", "unpooler")}
    changed["gate_up"] = repeated_experts(weights.gate_up, tp, halves=2)
    changed["down"] = repeated_experts(weights.down, tp, halves=1)
    return replace(weights, **changed)


@cache
def model(tp: int) -> ModelWeights:
    weights = synthesize(preset("mini"), seed=3)
    return replace(weights, layers=tuple(repeated_layer(layer, tp) for layer in weights.layers))


def shape(config: MuseConfig, tp: int, blocks: int) -> dict[str, float]:
    return shape_of(config, tp, blocks, CAPACITY, config.num_hidden_layers)


@dataclass(frozen=True)
class Chain:
    """A chain with all weights of a model, and what keeps them alive."""

    device: Any
    weights: ModelWeights
    tp: int
    kept: list[dict[str, Tensor]]


def make_chain(cuda: ModuleType, tp: int, blocks: int = 132) -> Chain:
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device for the weights")
    gpu = torch.device("cuda")
    weights = model(tp)
    config = weights.config
    device = cuda.BaselineChain(shape(config, tp, blocks), loopback=tp > 1)
    kept = [upload_layer(shard_layer(layer, config, 0, tp), gpu) for layer in weights.layers]
    head, rope = upload_head(shard_head(weights.head, config, 0, tp), gpu), rope_table(config, CAPACITY, gpu)
    load_chain(device, config, map(addresses, kept), addresses(head), rope.data_ptr())
    torch.cuda.synchronize()
    return Chain(device, weights, tp, [*kept, head, {"rope": rope}])


@pytest.fixture(scope="module", params=[1, 2, 4])
def chain(cuda: ModuleType, request: pytest.FixtureRequest) -> Chain:
    return make_chain(cuda, request.param)


@pytest.fixture(scope="module")
def single(cuda: ModuleType) -> Chain:
    return make_chain(cuda, 1)


def bits_of(values: Tensor) -> NDArray[np.uint16]:
    rounded: NDArray[np.int16] = values.bfloat16().contiguous().view(torch.int16).numpy()
    return rounded.view(np.uint16)


def values_of(bits: NDArray[np.uint16]) -> Tensor:
    return torch.from_numpy((bits.astype(np.uint32) << 16).view(np.float32))


def assert_close(got: Tensor, expected: Tensor, what: str) -> None:
    assert got.shape == expected.shape, what
    error = (got - expected).double().square().mean().sqrt() / expected.double().square().mean().sqrt()
    assert float(error) < TOLERANCE, f"{what} is off by {float(error):.2e} of its rms"


@dataclass(frozen=True)
class Step:
    """One layer's input, random but for its projections, and what the reference makes of it."""

    x: Tensor
    projected: Projected
    cache: KvCache
    states: LayerStates


def make_step(chain: Chain, layer: int, position: int) -> Step:
    """A step in which no token's choice of experts hangs on the last bits of its scores."""
    for seed in range(100):
        step = random_step(chain, layer, position, seed)
        scores = step.states.moe.routing.scores + chain.weights.layers[layer].router_bias
        chosen = chain.weights.config.num_experts_per_tok
        top = scores.sort(dim=-1, descending=True).values
        if float((top[:, chosen - 1] - top[:, chosen]).min()) > ROUTING_MARGIN:
            return step
    pytest.fail("no random step has a clear routing")


def random_step(chain: Chain, layer: int, position: int, seed: int) -> Step:
    config = chain.weights.config
    generator = torch.Generator().manual_seed(1000 * seed + 10 * layer + position)
    x = torch.randn(TOKENS, config.hidden_size, generator=generator)
    projected = project_qkv(config, chain.weights.layers[layer], x, position, Rounding.BF16)
    cache = KvCache.empty(config, CAPACITY)
    for number in range(config.num_hidden_layers):
        shape = (position, config.num_key_value_heads // chain.tp, config.head_dim)
        k, v = (torch.randn(shape, generator=generator).bfloat16().float() for _ in range(2))
        if position:
            cache.write(number, 0, k.repeat(1, chain.tp, 1), v.repeat(1, chain.tp, 1))
    cache.write(layer, position, projected.k, projected.v)
    return Step(x, projected, cache, reference(chain, layer, position, x, projected, cache))


def reference(
    chain: Chain, layer: int, position: int, x: Tensor, projected: Projected, cache: KvCache
) -> LayerStates:
    weights = chain.weights
    return layer_body(
        weights.config, weights.layers[layer], x, projected, cache, position, Rounding.BF16, chain.tp
    )


def put(chain: Chain, layer: int, position: int, step: Step) -> None:
    """Everything a launch of the layer finds; the cache is NaN where no token is yet."""
    device, heads = chain.device, chain.weights.config.num_attention_heads // chain.tp
    kv_heads = chain.weights.config.num_key_value_heads // chain.tp
    device.poison(0xFF)
    device.set_position(position)
    device.set_residual(step.x.numpy())
    device.set_projection(
        *(bits_of(part[:, :heads].flatten(1)) for part in (step.projected.q, step.projected.gate))
    )
    for number in range(len(chain.weights.layers)):
        end = position + TOKENS if number == layer else position
        k, v = (bits_of(part[number][:kv_heads]) for part in (step.cache.k, step.cache.v))
        k[:, end:], v[:, end:] = NAN_BITS, NAN_BITS
        device.set_kv(number, k, v)


def check_projection(chain: Chain, layer: int, position: int, x: Tensor) -> None:
    """Projections of the layer for the residual stream x, and its cache."""
    config = chain.weights.config
    expected = project_qkv(config, chain.weights.layers[layer], x, position, Rounding.BF16)
    heads, kv_heads = config.num_attention_heads // chain.tp, config.num_key_value_heads // chain.tp
    q, gate = (values_of(bits) for bits in chain.device.projection())
    assert_close(q, expected.q[:, :heads].flatten(1), "q")
    assert_close(gate, expected.gate[:, :heads].flatten(1), "gate")
    k, v = (values_of(bits) for bits in chain.device.kv(layer))
    written = slice(position, position + TOKENS)
    assert_close(k[:, written], expected.k[:, :kv_heads].transpose(0, 1), "k")
    assert_close(v[:, written], expected.v[:, :kv_heads].transpose(0, 1), "v")
    assert bool(k[:, position + TOKENS :].isnan().all()), "a row behind the tokens was written"


@pytest.mark.parametrize("position", [0, 16, POSITION, CAPACITY - TOKENS])
@pytest.mark.parametrize("layer", CASES)
def test_layer_agrees_with_the_reference(chain: Chain, layer: int, position: int) -> None:
    weights = chain.weights
    config, step = weights.config, make_step(chain, layer, position)
    put(chain, layer, position, step)
    chain.device.run_layer(layer)
    residual = torch.from_numpy(chain.device.residual())
    assert_close(residual, step.states.output, "the residual stream")
    if layer + 1 < config.num_hidden_layers:
        check_projection(chain, layer + 1, position, residual)
        return
    chain.device.run_head()
    logits = head_logits(config, weights.head, residual, Rounding.BF16)
    assert_close(torch.from_numpy(chain.device.logits()), logits.chunk(chain.tp, dim=1)[0], "logits")


def test_entry_agrees_with_the_reference(chain: Chain) -> None:
    step = make_step(chain, GLOBAL_BF16, POSITION)
    put(chain, GLOBAL_BF16, POSITION, step)
    chain.device.run_entry()
    check_projection(chain, 0, POSITION, step.x)
    assert (chain.device.residual() == step.x.numpy()).all()


@pytest.mark.parametrize("blocks", [16, 66, 128])
def test_other_numbers_of_blocks(cuda: ModuleType, blocks: int) -> None:
    chain = make_chain(cuda, 1, blocks)
    for layer in CASES:
        test_layer_agrees_with_the_reference(chain, layer, POSITION)


def all_tokens_alike(chain: Chain, layer: int, step: Step) -> Step:
    """Every token as the first, at position 0: attention gives all of them the same."""

    def alike(values: Tensor) -> Tensor:
        return torch.cat([values[:1]] * TOKENS)

    x, first = alike(step.x), step.projected
    projected = Projected(*(alike(part) for part in (first.normed, first.q, first.k, first.v, first.gate)))
    step.cache.write(layer, 0, projected.k, projected.v)
    return Step(x, projected, step.cache, reference(chain, layer, 0, x, projected, step.cache))


@pytest.mark.parametrize("layer", CASES)
def test_experts_with_sixteen_tokens(chain: Chain, layer: int) -> None:
    step = all_tokens_alike(chain, layer, make_step(chain, layer, 0))
    put(chain, layer, 0, step)
    chain.device.run_layer(layer)
    loads = [len(expert.tokens) for expert in step.states.moe.experts]
    assert loads == [TOKENS] * chain.weights.config.num_experts_per_tok
    assert_close(torch.from_numpy(chain.device.residual()), step.states.output, "the residual stream")


def outputs(chain: Chain, next_layer: int | None) -> list[NDArray[Any]]:
    device = chain.device
    if next_layer is None:
        return [device.residual(), device.logits()]
    return [device.residual(), *device.projection(), *device.kv(next_layer)]


def assert_same(got: list[NDArray[Any]], expected: list[NDArray[Any]]) -> None:
    assert [part.tobytes() for part in got] == [part.tobytes() for part in expected]


@pytest.mark.parametrize("layer", CASES)
def test_a_hundred_repeats_are_the_same_bit_for_bit(chain: Chain, layer: int) -> None:
    step = make_step(chain, layer, POSITION)
    next_layer = layer + 1 if layer != GLOBAL_BF16 else None
    first: list[NDArray[Any]] = []
    for _ in range(100):
        put(chain, layer, POSITION, step)
        chain.device.run_layer(layer)
        if next_layer is None:
            chain.device.run_head()
        got = outputs(chain, next_layer)
        assert_same(got, first or got)
        first = first or got


def test_plain_launches_graph_and_programmatic_graph_are_the_same_bit_for_bit(chain: Chain) -> None:
    device, layers = chain.device, list(range(len(chain.weights.layers)))
    step = make_step(chain, 0, POSITION)
    put(chain, 0, POSITION, step)
    device.run_entry()
    for layer in layers:
        device.run_layer(layer)
    device.run_head()
    expected = outputs(chain, None)
    for mode in ("graph", "pdl"):
        graph = device.capture(mode, layers, with_head=True, with_entry=True)
        for _ in range(100):
            put(chain, 0, POSITION, step)
            device.replay(graph)
            assert_same(outputs(chain, None), expected)


def test_a_graph_takes_the_position_of_its_replay(single: Chain) -> None:
    graph = single.device.capture("pdl", [SLIDING_NVFP4])
    for position in (0, POSITION):
        step = make_step(single, SLIDING_NVFP4, position)
        put(single, SLIDING_NVFP4, position, step)
        single.device.run_layer(SLIDING_NVFP4)
        expected = outputs(single, SLIDING_NVFP4 + 1)
        put(single, SLIDING_NVFP4, position, step)
        single.device.replay(graph)
        assert_same(outputs(single, SLIDING_NVFP4 + 1), expected)


def test_times_of_graphs(single: Chain) -> None:
    put(single, 0, POSITION, make_step(single, 0, POSITION))
    graphs = [single.device.capture(mode, [0, 1, 2, 3]) for mode in ("graph", "pdl")]
    samples = single.device.time_graphs(graphs, rounds=3)
    assert [len(times) for times in samples] == [6, 6]
    assert all(0 < ms < 1000 for times in samples for ms in times)


def test_kernels_of_a_layer(single: Chain, chain: Chain) -> None:
    assert single.device.kernels_per_layer == 15
    assert chain.device.kernels_per_layer == (17 if chain.tp > 1 else 15)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 2}, "one rank at a time"),
        ({"head_dim": 128}, "head_dim must be 64"),
        ({"capacity": 150}, "capacity must be a multiple of 32"),
        ({"blocks": 0}, "blocks must be"),
        ({"ranks": 9}, "ranks must be"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(
    cuda: ModuleType, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.BaselineChain(shape(preset("mini"), 1, 132) | changes)


def test_wrong_requests_are_refused(cuda: ModuleType, single: Chain) -> None:
    empty = cuda.BaselineChain(shape(preset("mini"), 1, 132))
    with pytest.raises(ValueError, match="layer has no 'o'"):
        empty.set_layer(0, {})
    with pytest.raises(ValueError, match="rotary table is not set"):
        empty.run_entry()
    with pytest.raises(ValueError, match="there is no layer 8 among 8"):
        single.device.run_layer(8)
    with pytest.raises(ValueError, match="choose graph or pdl"):
        single.device.capture("eager", [0])
    with pytest.raises(ValueError, match="needs layers"):
        single.device.capture("graph", [])
    with pytest.raises(ValueError, match="there is no graph 1000"):
        single.device.replay(1000)
    with pytest.raises(ValueError, match="leaves no room"):
        single.device.set_position(CAPACITY - TOKENS + 1)
    with pytest.raises(ValueError, match="q must have the shape"):
        single.device.set_projection(np.zeros((16, 3), np.uint16), np.zeros((16, 3), np.uint16))
    single.device.poison(0)
    with pytest.raises(RuntimeError, match="run the last layer first"):
        single.device.run_head()
