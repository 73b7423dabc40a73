"""The layer kernel at full size: one rank of eight in loopback, op by op against a torch reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace import _core
from musetrace.muse.attention import Projected
from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.config import preset
from musetrace.muse.cuda_weights import addresses, rope_table
from musetrace.muse.device import shape_of
from musetrace.muse.slice_weights import DEFAULT_POOL, random_head, random_layer
from tests.gpu.layer_case import ABSENT_KEY, ABSENT_VALUE, Request, assert_close
from tests.gpu.slice_reference import Slice, SliceStates, clear_tokens, layer_states, logits_of, project

pytestmark = pytest.mark.gpu

CONFIG = preset("muse-spark-open-tp8-slice")
TP, TOKENS = 8, 16
POSITION, CAPACITY = 4096, 4096 + 32
SLIDING_BF16, GLOBAL_NVFP4, SLIDING_NVFP4 = 0, 1, 2
LAYERS = [SLIDING_BF16, GLOBAL_NVFP4, SLIDING_NVFP4]
GRIDS = [(132, "sumsq"), (132, "gather"), (128, "sumsq"), (66, "sumsq"), (66, "gather")]
KV_HEADS = CONFIG.num_key_value_heads // TP
BUDGET_NS = 500_000_000
CHUNK_COLUMNS = 32

# Of the rms, from the input of the launch to this value. A value near a bf16 edge may be rounded the other
# way, by 2**-8 of it; a product makes of that an error of all its sums, which puts more over an edge. With
# fp32 sums the reference itself is off by a fourth to a third of this.
TOLERANCES = {
    "heads": 1e-3,
    "x1": 6e-4,  # a branch weighs an eighth
    "pooled": 2e-3,
    "expert_x": 2e-3,
    "features": 4e-3,  # a product of two
    "outputs": 5e-3,
    "combined": 6e-3,
}
LOGITS_TOLERANCE = 5e-4
OUTPUT_TOLERANCE = 1.5e-3
PROJECTION_TOLERANCE = 1e-3
# Scores are off by 2e-5 at most.
ROUTING_MARGIN = 1e-4
CLEAR_TOKENS = 12


@dataclass(frozen=True)
class Weights:
    """All that is held, on the GPU."""

    slices: list[Slice]
    head: dict[str, Tensor]
    rope: Tensor


@dataclass(frozen=True)
class Step:
    """What a launch of a layer finds; fp32 on the GPU, caches [kv heads, CAPACITY, head_dim]."""

    layer: int
    x: Tensor
    projected: Projected
    kv: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Setup:
    device: Any
    blocks: int
    stop4: str


Setups = Callable[[int, str], Setup]


@pytest.fixture(scope="module")
def weights(cuda: ModuleType) -> Weights:
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device for the weights")
    gpu = torch.device("cuda")
    slices = [Slice(CONFIG, TP, layer, random_layer(CONFIG, TP, layer, 11, gpu)) for layer in LAYERS]
    for slice_ in slices:
        # What stop4="gather" reads and "sumsq" does not must show.
        slice_.tensors["post_expert_norm"][slice_.moe_columns :] *= 1.5
    return Weights(slices, random_head(CONFIG, TP, 11, gpu), rope_table(CONFIG, CAPACITY, gpu))


@pytest.fixture(scope="module")
def setups(cuda: ModuleType, weights: Weights) -> Iterator[Setups]:
    """`setups(blocks, stop4)`, each made once."""
    made: dict[tuple[int, str], Setup] = {}

    def get(blocks: int, stop4: str) -> Setup:
        if (blocks, stop4) not in made:
            made[blocks, stop4] = make_setup(cuda, weights, blocks, stop4)
        return made[blocks, stop4]

    yield get
    made.clear()


def make_setup(cuda: ModuleType, weights: Weights, blocks: int, stop4: str) -> Setup:
    shape = shape_of(CONFIG, TP, blocks, CAPACITY, len(LAYERS))
    device = cuda.MuseDevice(shape, stop4=stop4, loopback=True, budget_ns=BUDGET_NS)
    for layer, slice_ in enumerate(weights.slices):
        is_bf16 = CONFIG.expert_format(layer) == "bf16"
        device.set_layer(0, layer, addresses(slice_.tensors), CONFIG.is_global(layer), is_bf16)
    device.set_head(0, addresses(weights.head))
    device.set_rope(weights.rope.data_ptr())
    torch.cuda.synchronize()
    return Setup(device, blocks, stop4)


@pytest.fixture(scope="module")
def expected(weights: Weights) -> Callable[[int, str], tuple[Step, SliceStates]]:
    """`expected(layer, stop4)`: a random step, the same for every grid, and what comes of it."""
    steps = [random_step(slice_, seed=20 + slice_.layer) for slice_ in weights.slices]
    made: dict[tuple[int, str], SliceStates] = {}

    def get(layer: int, stop4: str) -> tuple[Step, SliceStates]:
        if (layer, stop4) not in made:
            made[layer, stop4] = states_of(weights.slices[layer], steps[layer], stop4)
        return steps[layer], made[layer, stop4]

    return get


def random_step(slice_: Slice, seed: int) -> Step:
    gpu = slice_.tensors["o"].device
    normal = partial(torch.randn, generator=torch.Generator(gpu).manual_seed(seed), device=gpu)
    x = normal(TOKENS, CONFIG.hidden_size)
    projected = project(slice_, x, POSITION)
    k, v = (normal(KV_HEADS, CAPACITY, CONFIG.head_dim).bfloat16().float() for _ in range(2))
    for cache, of_tokens in ((k, projected.k), (v, projected.v)):
        cache[:, POSITION : POSITION + TOKENS] = of_tokens.transpose(0, 1)
        cache[:, POSITION + TOKENS :] = torch.nan
    return Step(slice_.layer, x, projected, (k, v))


def states_of(slice_: Slice, step: Step, stop4: str) -> SliceStates:
    kv = [part[:, : POSITION + TOKENS] for part in step.kv]
    return layer_states(slice_, step.x, step.projected, kv, stop4)


def put(setup: Setup, step: Step) -> None:
    """Everything that a launch of the step's layer finds; all that it writes is poisoned."""
    setup.device.poison()
    setup.device.set_values("residual", 0, 0, step.x.cpu().numpy())
    for name in ("q", "gate"):
        setup.device.set_values(
            name, 0, 0, to_bf16_bits(getattr(step.projected, name).flatten(1).cpu().numpy())
        )
    put_cache(setup, step.layer, *(part.cpu() for part in step.kv))
    setup.device.set_state(POSITION)


def put_cache(setup: Setup, layer: int, k: Tensor, v: Tensor) -> None:
    keys = to_bf16_bits(k.numpy())
    keys[k.isnan().numpy()] = ABSENT_KEY
    setup.device.set_values("k", 0, layer, keys)
    values = v.nan_to_num(nan=ABSENT_VALUE).transpose(1, 2).contiguous()
    setup.device.set_values("v", 0, layer, to_bf16_bits(values.numpy()))


def run(setup: Setup, requests: Sequence[Request], build: str = "off") -> None:
    for request in requests:
        setup.device.launch(request, build)
    setup.device.synchronize()


# Reading what a launch left


def values_of(setup: Setup, name: str, layer: int = 0) -> Tensor:
    values: NDArray[Any] = setup.device.values(name, 0, layer)
    return torch.from_numpy(from_bf16_bits(values) if values.dtype == np.uint16 else values)


def exchange_of(setup: Setup) -> dict[str, Tensor]:
    """The values of TOLERANCES, the router's logits among them, from the exchange that the launch left."""
    shape = shape_of(CONFIG, TP, setup.blocks, CAPACITY, len(LAYERS))
    offsets = _core.megakernel.exchange(shape, setup.stop4)
    raw: NDArray[np.uint8] = setup.device.values("exchange").view(np.uint8)

    def at(name: str, rows: int, columns: int, by_columns: bool = False) -> Tensor:
        begin = int(offsets[name])
        words = raw[begin : begin + rows * columns * 2].view(np.uint16)
        return from_chunks(words, rows, columns, by_columns)

    moe, own, pairs = (
        CONFIG.moe_hidden_size,
        CONFIG.moe_hidden_size // TP,
        TOKENS * CONFIG.num_experts_per_tok,
    )
    logits_at, logits_bytes = int(offsets["logits"]), TOKENS * CONFIG.num_local_experts * 4
    outputs = at("outputs", pairs, moe if setup.stop4 == "gather" else own)
    assert outputs.reshape(pairs, -1, own).eq(outputs[:, None, :own]).all(), "repeats differ"
    return {
        "heads": at("heads", TOKENS, CONFIG.num_attention_heads // TP * CONFIG.head_dim, by_columns=True),
        "x1": at("x1", TOKENS, CONFIG.hidden_size, by_columns=True),
        "logits": torch.from_numpy(
            raw[logits_at : logits_at + logits_bytes].view(np.float32).reshape(TOKENS, -1)
        ),
        "pooled": at("pooled", TOKENS, moe),
        "expert_x": at("expert_x", TOKENS, moe),
        "features": at("features", pairs, CONFIG.moe_intermediate_size),
        "outputs": outputs[:, :own],
        "combined": at("combined", TOKENS, own, by_columns=True),
    }


def from_chunks(words: NDArray[np.uint16], rows: int, columns: int, by_columns: bool) -> Tensor:
    """bf16 [rows, columns] of chunks of 32 columns.

    A lane t of four has, in a row, the B fragments of two matrix instructions: columns 2 t, 2 t + 8, 2 t + 16
    and 2 t + 24, each with its neighbour.
    """
    order = [4 * (pair % 4) + pair // 4 for pair in range(CHUNK_COLUMNS // 2)]
    chunks = columns // CHUNK_COLUMNS
    shape = (chunks, rows) if by_columns else (rows, chunks)
    pairs = words.reshape(*shape, CHUNK_COLUMNS // 2, 2)[:, :, order]
    pairs = pairs.swapaxes(0, 1) if by_columns else pairs
    return torch.from_numpy(from_bf16_bits(np.ascontiguousarray(pairs)).reshape(rows, columns))


def check_ops(setup: Setup, slice_: Slice, states: SliceStates) -> None:
    """Every value in the exchange, and the residual stream.

    Rows of pairs are a token's experts by ascending id, so that equal features are equal experts. Tokens with
    a near tie are left out.
    """
    got = exchange_of(setup)
    assert_close(got["logits"], states.routing.logits.cpu(), "logits", LOGITS_TOLERANCE)
    clear = clear_tokens(slice_, states.routing, ROUTING_MARGIN).cpu()
    assert int(clear.sum()) >= CLEAR_TOKENS
    rows = {
        TOKENS: clear,
        TOKENS * CONFIG.num_experts_per_tok: clear.repeat_interleave(CONFIG.num_experts_per_tok),
    }
    for name, tolerance in TOLERANCES.items():
        value = getattr(states, name).cpu()
        kept = rows[len(value)]
        assert_close(got[name][kept], value[kept], name, tolerance)
    assert_close(
        values_of(setup, "residual")[clear],
        states.output.cpu()[clear],
        "the residual stream",
        OUTPUT_TOLERANCE,
    )


def check_projection(setup: Setup, slice_: Slice) -> None:
    """The slice's projections of the residual stream that the device has, in its cache too."""
    x = values_of(setup, "residual").to(slice_.tensors["o"].device)
    projected = project(slice_, x, POSITION)
    for name in ("q", "gate"):
        expected = getattr(projected, name).flatten(1).cpu()
        assert_close(values_of(setup, name), expected, name, PROJECTION_TOLERANCE)
    written = slice(POSITION, POSITION + TOKENS)
    k, v = values_of(setup, "k", slice_.layer)[:, written], values_of(setup, "v", slice_.layer)[:, :, written]
    assert_close(k, projected.k.transpose(0, 1).cpu(), "k", PROJECTION_TOLERANCE)
    assert_close(v, projected.v.permute(1, 2, 0).cpu(), "v", PROJECTION_TOLERANCE)


# Tests


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("grid", GRIDS)
def test_a_layer_equals_the_reference_op_by_op(
    setups: Setups,
    weights: Weights,
    expected: Callable[[int, str], tuple[Step, SliceStates]],
    grid: tuple[int, str],
    layer: int,
) -> None:
    setup, (step, states) = setups(*grid), expected(layer, grid[1])
    put(setup, step)
    run(setup, [("layer", layer, 0, 0)])
    check_ops(setup, weights.slices[layer], states)
    if layer + 1 < len(LAYERS):
        check_projection(setup, weights.slices[layer + 1])


def test_the_steps_touch_the_experts_of_the_pool(
    weights: Weights, expected: Callable[[int, str], tuple[Step, SliceStates]]
) -> None:
    for slice_ in weights.slices:
        experts = expected(slice_.layer, "sumsq")[1].routing.experts.unique()
        assert 20 < len(experts) <= DEFAULT_POOL
        assert bool((slice_.tensors["router_bias"][experts] == 1).all())


def test_a_pass_equals_the_reference_launch_by_launch(setups: Setups, weights: Weights) -> None:
    """Each launch on what the device itself left, so that no error is carried on."""
    setup = setups(132, "sumsq")
    put_first(setup, weights)
    run(setup, [("entry", 0, 0, 0)])
    check_projection(setup, weights.slices[0])
    for slice_ in weights.slices:
        step = as_the_device_has_it(setup, slice_)
        run(setup, [("layer", slice_.layer, 0, 0)], "register")
        check_ops(setup, slice_, states_of(slice_, step, setup.stop4))
        if slice_.layer + 1 < len(LAYERS):
            check_projection(setup, weights.slices[slice_.layer + 1])
    run(setup, [("head", 0, 0, 0)])
    x = values_of(setup, "residual").to(weights.rope.device)
    logits = logits_of(CONFIG, TP, weights.head, x).cpu()
    assert_close(values_of(setup, "logits"), logits, "logits", PROJECTION_TOLERANCE)


def put_first(setup: Setup, weights: Weights) -> None:
    """A random past in all layers, and the input of the first launch."""
    for slice_ in reversed(weights.slices):
        put(setup, random_step(slice_, seed=30 + slice_.layer))


def as_the_device_has_it(setup: Setup, slice_: Slice) -> Step:
    gpu = slice_.tensors["o"].device
    x, q, gate = (values_of(setup, name).to(gpu) for name in ("residual", "q", "gate"))
    q, gate = (part.reshape(TOKENS, -1, CONFIG.head_dim) for part in (q, gate))
    k, v = (values_of(setup, name, slice_.layer).to(gpu) for name in ("k", "v"))
    return Step(slice_.layer, x, Projected(x, q, q[:0], q[:0], gate), (k, v.transpose(1, 2)))


@pytest.mark.parametrize("grid", GRIDS)
def test_repeats_builds_and_graphs_are_bit_identical(
    setups: Setups, weights: Weights, grid: tuple[int, str]
) -> None:
    setup = setups(*grid)
    requests: list[Request] = [
        ("entry", 0, 0, 0),
        *(("layer", layer, 0, 0) for layer in LAYERS),
        ("head", 0, 0, 0),
    ]
    graph = setup.device.capture(requests, "register")
    put_first(setup, weights)
    residual = setup.device.values("residual")
    expected: dict[str, str] = {}
    for build in ("off", "register", "store", "delays", "absent", "graph"):
        for turn in range(20):
            setup.device.set_values("residual", 0, 0, residual)
            setup.device.set_delay_seed(1 + turn)
            if build == "graph":
                setup.device.replay(graph)
            else:
                run(setup, requests, build)
            got = digests(setup)
            expected = expected or got
            assert got == expected, (build, turn)


def digests(setup: Setup) -> dict[str, str]:
    names = [("residual", 0), ("logits", 0), *((name, layer) for name in ("k", "v") for layer in LAYERS)]
    return {
        f"{name}, layer {layer}": sha256(setup.device.values(name, 0, layer)).hexdigest()
        for name, layer in names
    }
