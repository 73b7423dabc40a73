"""Layers of `mini` on virtual ranks of one GPU: set-up, random input, what came out, what the reference says.

Tolerances are in units of the expected values' rms. Kernel and reference round to bf16 at the same places, so
what is left is the order of fp32 sums and the values that it pushes over a bf16 edge (2**-9 of a value each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.job_table import JobTable
from musetrace.muse.attention import Projected, project_qkv
from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_weights import addresses, rope_table, upload_head, upload_layer
from musetrace.muse.device import shape_of
from musetrace.muse.moe import Routing
from musetrace.muse.reference import KvCache, LayerStates, Rounding, layer_body
from musetrace.muse.sharding import shard_head, shard_layer
from musetrace.muse.speculative.tree import TokenTree
from musetrace.muse.weights import ModelWeights, synthesize

TOKENS = 16
CAPACITY = 512
BUDGET_NS = 200_000_000
SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16 = 0, 1, 3, 7
KINDS = [SLIDING_BF16, SLIDING_NVFP4, GLOBAL_NVFP4, GLOBAL_BF16]

# A branch weighs an eighth in the residual stream. Projections are compared for the residual stream that the
# kernel has. With fp32 sums the reference itself is off by a third of this.
RESIDUAL_TOLERANCE = 1e-3
PROJECTION_TOLERANCE = 1e-3
# Of a single value: so many tolerances, and two bf16 steps of its own.
LARGEST_ERROR = 20
BF16_STEPS = 2 * 2.0**-7
# Scores nearer than this may be ordered either way.
ROUTING_MARGIN = 5e-4
CLEAR_TOKENS = 12

GPU = torch.device("cuda")
NO_BLOCK = 0xFFFFFFFF
POISON = 0xA5
# In the cache where no token is: keys that are no numbers, and values that show in any sum. The weight of a
# value there is 0, so it must be finite.
ABSENT_KEY, ABSENT_VALUE = np.uint16(0x7FFF), 1e30

Request = tuple[str, int, int, int]


@cache
def model() -> ModelWeights:
    """`mini`: layers of both kinds, with experts of both formats."""
    return synthesize(preset("mini"), seed=3)


@cache
def uploaded(tp: int) -> list[list[dict[str, Tensor]]]:
    """Packed weights [rank][layer] on the GPU, and behind a rank's layers its head."""
    weights = model()
    return [
        [
            *(upload_layer(shard_layer(layer, weights.config, rank, tp), GPU) for layer in weights.layers),
            upload_head(shard_head(weights.head, weights.config, rank, tp), GPU),
        ]
        for rank in range(tp)
    ]


@dataclass(frozen=True)
class Setup:
    """A device with all weights of a model, and what keeps them alive."""

    device: Any
    weights: ModelWeights
    tp: int
    blocks: int
    kept: list[Tensor]

    @property
    def config(self) -> MuseConfig:
        return self.weights.config

    def share(self, heads: int, rank: int) -> slice:
        """The rank's of that many heads."""
        return slice(rank * heads // self.tp, (rank + 1) * heads // self.tp)


# Of (tp, blocks, stop4).
Setups = Callable[[int, int, str], Setup]


def mini_shape(tp: int, blocks: int) -> dict[str, float]:
    config = preset("mini")
    return shape_of(config, tp, blocks, CAPACITY, config.num_hidden_layers)


def make_setup(
    cuda: ModuleType, tp: int, blocks: int, biases: dict[int, Tensor] | None = None, **options: Any
) -> Setup:
    """``biases``: other router biases, by layer. ``options``: those of MuseDevice."""
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device for the weights")
    device = cuda.MuseDevice(mini_shape(tp, blocks), **({"budget_ns": BUDGET_NS} | options))
    weights, config = model(), model().config
    changed = {layer: bias.to(GPU) for layer, bias in (biases or {}).items()}
    kept = [rope_table(config, CAPACITY, GPU), *changed.values()]
    for rank, (*layers, head) in enumerate(uploaded(tp)):
        for number, tensors in enumerate(layers):
            own = tensors | ({"router_bias": changed[number]} if number in changed else {})
            is_bf16 = config.expert_format(number) == "bf16"
            device.set_layer(rank, number, addresses(own), config.is_global(number), is_bf16)
        device.set_head(rank, addresses(head))
    device.set_rope(kept[0].data_ptr())
    torch.cuda.synchronize()
    layers_of_model = tuple(
        replace(layer, router_bias=(biases or {}).get(layer.layer, layer.router_bias))
        for layer in weights.layers
    )
    return Setup(device, replace(weights, layers=layers_of_model), tp, blocks, kept)


@dataclass(frozen=True)
class Step:
    """What a launch of a layer finds; without a tree its tokens are a chain."""

    layer: int
    position: int
    x: Tensor
    projected: Projected
    cache: KvCache
    tree: TokenTree | None = None


def random_step(
    weights: ModelWeights, layer: int, position: int, seed: int, tree: TokenTree | None = None
) -> Step:
    """Random residual stream, and a random past of the layer."""
    config = weights.config
    generator = torch.Generator().manual_seed(seed * 10_000 + layer * 1000 + position)
    x = torch.randn(TOKENS, config.hidden_size, generator=generator)
    projected = project_qkv(config, weights.layers[layer], x, position, Rounding.BF16, tree)
    cache = KvCache.empty(config, CAPACITY)
    shape = (position, config.num_key_value_heads, config.head_dim)
    k, v = (torch.randn(shape, generator=generator).bfloat16().float() for _ in range(2))
    cache.write(layer, 0, k, v)
    cache.write(layer, position, projected.k, projected.v)
    return Step(layer, position, x, projected, cache, tree)


def expected_states(setup: Setup, step: Step) -> LayerStates:
    weights = setup.weights.layers[step.layer]
    cached, start = step.cache, step.position
    return layer_body(
        setup.config, weights, step.x, step.projected, cached, start, Rounding.BF16, setup.tp, step.tree
    )


def put(setup: Setup, step: Step) -> None:
    """Everything that a launch of the step's layer finds; all that it writes is poisoned."""
    setup.device.poison()
    put_input(setup, step)
    for rank in range(setup.tp):
        put_cache(setup, rank, step.layer, step.cache.k[step.layer], step.cache.v[step.layer])
        if step.layer + 1 < setup.config.num_hidden_layers:
            absent = torch.full_like(step.cache.k[step.layer], torch.nan)
            put_cache(setup, rank, step.layer + 1, absent, absent)


def put_input(setup: Setup, step: Step) -> None:
    """What the launch before would have left, but for the cache."""
    device, mine = setup.device, setup.config.num_attention_heads
    for rank in range(setup.tp):
        device.set_values("residual", rank, 0, step.x.numpy())
        for name in ("q", "gate"):
            heads = getattr(step.projected, name)[:, setup.share(mine, rank)]
            device.set_values(name, rank, 0, to_bf16_bits(heads.flatten(1).numpy()))
    if step.tree is None:
        device.set_state(step.position)
    else:
        device.set_step({"position": step.position, "parents": step.tree.parents.clip(0).tolist()})


def put_cache(setup: Setup, rank: int, layer: int, k: Tensor, v: Tensor) -> None:
    """Keys and values [kv heads, capacity, head_dim] of all ranks; what is NaN is absent."""
    mine = setup.share(setup.config.num_key_value_heads, rank)
    keys = to_bf16_bits(k[mine].numpy())
    keys[np.isnan(k[mine].numpy())] = ABSENT_KEY
    setup.device.set_values("k", rank, layer, keys)
    values = v[mine].nan_to_num(nan=ABSENT_VALUE).transpose(1, 2).contiguous()
    setup.device.set_values("v", rank, layer, to_bf16_bits(values.numpy()))


def run(setup: Setup, requests: Sequence[Request], build: str = "off") -> None:
    for request in requests:
        setup.device.launch(request, build)
    setup.device.synchronize()


def layer_request(layer: int) -> Request:
    return ("layer", layer, 0, 0)


def residual_of(setup: Setup) -> Tensor:
    """The residual stream, which is the same on all ranks."""
    first, *others = (setup.device.values("residual", rank) for rank in range(setup.tp))
    assert not (first.view(np.uint8) == POISON).reshape(*first.shape, 4).all(axis=-1).any(), "unwritten"
    assert all(other.tobytes() == first.tobytes() for other in others), "ranks differ"
    return torch.from_numpy(first)


def projection_of(setup: Setup) -> tuple[Tensor, Tensor]:
    """q and gate [tokens, heads, head_dim] of all ranks."""

    def gathered(name: str) -> Tensor:
        parts = [from_bf16_bits(setup.device.values(name, rank)) for rank in range(setup.tp)]
        return torch.from_numpy(np.concatenate(parts, axis=1)).reshape(TOKENS, -1, setup.config.head_dim)

    return gathered("q"), gathered("gate")


def cache_of(setup: Setup, layer: int) -> tuple[Tensor, Tensor]:
    """k and v [kv heads, capacity, head_dim] of all ranks."""

    def gathered(name: str) -> Tensor:
        parts = [from_bf16_bits(setup.device.values(name, rank, layer)) for rank in range(setup.tp)]
        return torch.from_numpy(np.concatenate(parts))

    return gathered("k"), gathered("v").transpose(1, 2)


def output_digests(setup: Setup, layer: int) -> dict[str, str]:
    """All that a launch of the layer left: residual stream, the next layer's projections, keys and values."""
    names = [("residual", 0), ("q", 0), ("gate", 0), ("k", layer + 1), ("v", layer + 1)]
    projects = layer + 1 < setup.config.num_hidden_layers
    return digests(setup, names if projects else names[:1])


def digests(setup: Setup, names: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Of the bytes of each of these values (name, layer), on every rank."""
    return {
        f"{name} of rank {rank}, layer {layer}": sha256(setup.device.values(name, rank, layer)).hexdigest()
        for rank in range(setup.tp)
        for name, layer in names
    }


def clear_tokens(setup: Setup, layer: int, routing: Routing) -> Tensor:
    """Bool [tokens]: whose choice of experts does not hang on the last bits of its scores."""
    chosen = setup.config.num_experts_per_tok
    biased = routing.scores + setup.weights.layers[layer].router_bias
    top = biased.sort(dim=-1, descending=True).values
    clear = top[:, chosen - 1] - top[:, chosen] > ROUTING_MARGIN
    assert int(clear.sum()) >= CLEAR_TOKENS, "a test of near ties alone"
    return clear


def assert_close(got: Tensor, expected: Tensor, what: str, tolerance: float) -> None:
    assert got.shape == expected.shape, what
    rms = expected.double().square().mean().sqrt()
    difference = (got - expected).double()
    error = float(difference.square().mean().sqrt() / rms)
    assert error <= tolerance, f"{what} is off by {error:.2e} of its rms"
    bound = LARGEST_ERROR * tolerance * rms + BF16_STEPS * expected.double().abs()
    largest = float((difference.abs() / bound).max())
    assert largest <= 1, f"a value of {what} is off by {largest:.1f} times what one may be"


def check_projection(
    setup: Setup, layer: int, position: int, x: Tensor, tree: TokenTree | None = None
) -> None:
    """The layer's projections of the residual stream x, in its cache too."""
    weights = setup.weights.layers[layer]
    expected = project_qkv(setup.config, weights, x, position, Rounding.BF16, tree)
    q, gate = projection_of(setup)
    assert_close(q, expected.q, "q", PROJECTION_TOLERANCE)
    assert_close(gate, expected.gate, "gate", PROJECTION_TOLERANCE)
    k, v = cache_of(setup, layer)
    written = slice(position, position + TOKENS)
    assert_close(k[:, written], expected.k.transpose(0, 1), "k", PROJECTION_TOLERANCE)
    assert_close(v[:, written], expected.v.transpose(0, 1), "v", PROJECTION_TOLERANCE)


def check_layer(setup: Setup, step: Step, got: Tensor) -> LayerStates:
    """The residual stream behind the step's layer."""
    states = expected_states(setup, step)
    clear = clear_tokens(setup, step.layer, states.moe.routing)
    assert_close(got[clear], states.output[clear], "the residual stream", RESIDUAL_TOLERANCE)
    return states


def check_rest_of_cache(setup: Setup, layer: int, position: int) -> None:
    """A cache that was absent before the launch has the tokens' rows and no others."""
    k, v = cache_of(setup, layer)
    others = torch.ones(CAPACITY, dtype=torch.bool)
    others[position : position + TOKENS] = False
    assert bool(k[:, others].isnan().all()), "a key of another position was written"
    assert bool((v[:, others] == torch.tensor(ABSENT_VALUE).bfloat16().float()).all()), "a value was"


def check_launch(setup: Setup, step: Step, build: str = "off") -> None:
    """A layer's launch, from poisoned outputs and exchange, and all that it leaves."""
    put(setup, step)
    run(setup, [layer_request(step.layer)], build)
    residual = residual_of(setup)
    check_layer(setup, step, residual)
    if step.layer + 1 < setup.config.num_hidden_layers:
        check_projection(setup, step.layer + 1, step.position, residual, step.tree)
        check_rest_of_cache(setup, step.layer + 1, step.position)


def job_table() -> JobTable:
    return JobTable.built_in("muse_hopper")


def layout_of(setup: Setup, slot_bytes: int) -> StampLayout:
    """Of one rank's stamps."""
    return StampLayout(setup.blocks, job_table().slots, slot_bytes)


def stamp_region(setup: Setup, slot_bytes: int) -> Tensor:
    """Cleared memory for the stamps of one launch on all ranks."""
    size_bytes = setup.tp * layout_of(setup, slot_bytes).region_bytes
    region = torch.zeros(size_bytes, dtype=torch.uint8, device=GPU)
    torch.cuda.synchronize()
    return region
