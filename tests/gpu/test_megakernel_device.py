"""The layer kernel on a real GPU against the torch reference, layer by layer, on a synthetic `mini` model."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from musetrace.muse.attention import Projected
from musetrace.muse.moe import select
from musetrace.muse.reference import KvCache, Rounding, head_logits
from tests.gpu import layer_case
from tests.gpu.layer_case import (
    CAPACITY,
    KINDS,
    NO_BLOCK,
    TOKENS,
    Request,
    Setup,
    Setups,
    Step,
    check_launch,
    layer_request,
    make_setup,
    put,
    random_step,
    residual_of,
    run,
)

pytestmark = pytest.mark.gpu

# The window of 64 cuts, and neither its begin nor that of the tokens is a multiple of the 32 keys of a run.
POSITION = 300
LOGIT_TOLERANCE = 1e-3
# TP, blocks of a rank, stop 4.
GRIDS = [
    (1, 4, "sumsq"),
    (1, 33, "gather"),
    (1, 132, "sumsq"),
    (2, 8, "gather"),
    (2, 66, "sumsq"),
    (2, 66, "gather"),
    (4, 4, "gather"),
    (4, 8, "sumsq"),
    (4, 33, "sumsq"),
    (4, 33, "gather"),
]
REPEATED = [(1, 132, "sumsq", 1), (2, 66, "gather", 0), (2, 8, "sumsq", 3), (4, 33, "sumsq", 2)]
BUILDS = ["off", "register", "store", "delays", "absent"]


@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("grid", GRIDS)
def test_a_layer_equals_the_reference(layer_setups: Setups, grid: tuple[int, int, str], layer: int) -> None:
    setup = layer_setups(*grid)
    for seed in (GRIDS.index(grid), 100 + GRIDS.index(grid)):
        check_launch(setup, random_step(setup.weights, layer, POSITION, seed))


@pytest.mark.parametrize("position", [0, 16, 37, 65, POSITION, CAPACITY - TOKENS])
@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("grid", [(1, 132, "sumsq"), (2, 8, "gather"), (4, 33, "sumsq")])
def test_every_position(layer_setups: Setups, grid: tuple[int, int, str], layer: int, position: int) -> None:
    setup = layer_setups(*grid)
    check_launch(setup, random_step(setup.weights, layer, position, seed=200), build="register")


def test_the_window_cuts(layer_setups: Setups) -> None:
    """What lies in front of the window changes a global layer and not a sliding one."""
    setup = layer_setups(2, 66, "sumsq")
    for layer, changes in ((1, False), (3, True)):
        step = random_step(setup.weights, layer, POSITION, seed=300)
        put(setup, step)
        run(setup, [layer_request(layer)])
        before = residual_of(setup)
        for values in (step.cache.k[layer], step.cache.v[layer]):
            values[:, : POSITION - setup.config.sliding_window + 1] = 1.0
        check_launch(setup, step)
        assert (residual_of(setup) != before).any() == changes


# Routing


def biased_setup(cuda: ModuleType, grid: tuple[int, int, str], layer: int, bias: Tensor) -> Setup:
    tp, blocks, stop4 = grid
    return make_setup(cuda, tp, blocks, {layer: bias}, stop4=stop4)


def loads(setup: Setup, step: Step) -> list[int]:
    """Tokens of each expert that has some, most first."""
    experts = layer_case.expected_states(setup, step).moe.experts
    return sorted((len(expert.tokens) for expert in experts), reverse=True)


@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("grid", [(1, 132, "sumsq"), (2, 8, "gather"), (4, 33, "sumsq")])
@pytest.mark.parametrize("favoured", [1, 4, 6])
def test_experts_with_up_to_sixteen_tokens(
    cuda: ModuleType, grid: tuple[int, int, str], layer: int, favoured: int
) -> None:
    """One expert that all tokens take, four of them (every expert is two items), or four of six."""
    bias = torch.zeros(16)
    bias[torch.tensor([15, 0, 7, 8, 3, 12])[:favoured]] = 2.0
    setup = biased_setup(cuda, grid, layer, bias)
    step = random_step(setup.weights, layer, POSITION, seed=400)
    of_expert = loads(setup, step)
    assert of_expert[0] > 8
    assert favoured != 1 or of_expert[0] == TOKENS
    assert favoured != 4 or of_expert == [TOKENS] * 4
    assert favoured != 6 or len(of_expert) <= 6
    check_launch(setup, step)


@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("grid", [(1, 33, "sumsq"), (4, 33, "gather")])
def test_tokens_spread_over_all_experts(cuda: ModuleType, grid: tuple[int, int, str], layer: int) -> None:
    setup = biased_setup(cuda, grid, layer, torch.zeros(16))
    step = random_step(setup.weights, layer, POSITION, seed=500)
    scores = layer_case.expected_states(setup, step).moe.routing.scores
    bias = torch.zeros(16)
    for _ in range(200):
        chosen = select(scores, bias, setup.config)[0].flatten().bincount(minlength=16)
        bias -= 0.01 * (chosen - 4.0)
    setup = biased_setup(cuda, grid, layer, bias)
    of_expert = loads(setup, step)
    assert len(of_expert) == 16
    assert of_expert[0] <= 8
    check_launch(setup, step)


# Whole passes


def as_the_device_has_it(setup: Setup, layer: int, x: Tensor) -> Step:
    """The next launch's input, read back."""
    q, gate = layer_case.projection_of(setup)
    projected = Projected(normed=torch.full_like(x, torch.nan), q=q, k=q[:0], v=q[:0], gate=gate)
    cache = KvCache.empty(setup.config, CAPACITY)
    cache.k[layer], cache.v[layer] = layer_case.cache_of(setup, layer)
    return Step(layer, POSITION, x, projected, cache)


@pytest.mark.parametrize("grid", [(1, 132, "sumsq"), (2, 8, "gather"), (2, 66, "sumsq"), (4, 33, "gather")])
def test_a_verify_pass_equals_the_reference_launch_by_launch(
    layer_setups: Setups, grid: tuple[int, int, str]
) -> None:
    """Each launch on what the device itself left, so that no error is carried on."""
    setup = layer_setups(*grid)
    put_past(setup)
    first = random_step(setup.weights, 0, POSITION, seed=600)
    layer_case.put_input(setup, first)
    run(setup, [("entry", 0, 0, 0)])
    x = residual_of(setup)
    assert x.equal(first.x)
    layer_case.check_projection(setup, 0, POSITION, x)
    for layer in range(setup.config.num_hidden_layers):
        step = as_the_device_has_it(setup, layer, x)
        run(setup, [layer_request(layer)])
        x = residual_of(setup)
        layer_case.check_layer(setup, step, x)
        if layer + 1 < setup.config.num_hidden_layers:
            layer_case.check_projection(setup, layer + 1, POSITION, x)
    run(setup, [("head", 0, 0, 0)])
    logits = torch.cat([torch.from_numpy(setup.device.values("logits", rank)) for rank in range(setup.tp)], 1)
    expected = head_logits(setup.config, setup.weights.head, x, Rounding.BF16)
    layer_case.assert_close(logits, expected, "logits", LOGIT_TOLERANCE)


def put_past(setup: Setup) -> None:
    """A random past in every layer's cache, and poison in all that a launch writes."""
    setup.device.poison()
    for layer in range(setup.config.num_hidden_layers):
        past = random_step(setup.weights, layer, POSITION, seed=700).cache
        for rank in range(setup.tp):
            layer_case.put_cache(setup, rank, layer, past.k[layer], past.v[layer])


@pytest.mark.parametrize("build", ["off", "register", "store"])
@pytest.mark.parametrize("layers", [7, 8])
def test_graphs_equal_launches(layer_setups: Setups, layers: int, build: str) -> None:
    """An even and an odd number of launches with the entry; twice in a row, on what the first pass left."""
    setup = layer_setups(2, 66, "sumsq")
    requests: list[Request] = [("entry", 0, 0, 0), *(layer_request(layer) for layer in range(layers))]
    requests.append(("head", 0, 0, 0))
    graph = setup.device.capture(requests, build)
    step = random_step(setup.weights, 0, POSITION, seed=800)

    def left_by(once: Callable[[], None]) -> list[dict[str, str]]:
        put_past(setup)
        layer_case.put_input(setup, step)
        left = []
        for _ in range(2):
            once()
            left.append(left_by_pass(setup))
        return left

    def one_by_one() -> None:
        for request in requests:
            run(setup, [request], build)

    expected = left_by(one_by_one)
    assert expected[0] != expected[1]
    assert left_by(lambda: run(setup, requests, build)) == expected
    for _ in range(3):
        assert left_by(lambda: setup.device.replay(graph)) == expected


def left_by_pass(setup: Setup) -> dict[str, str]:
    layers = range(setup.config.num_hidden_layers)
    caches = [(name, layer) for name in ("k", "v") for layer in layers]
    return layer_case.digests(setup, [("residual", 0), ("q", 0), ("gate", 0), ("logits", 0), *caches])


def test_a_graph_takes_the_position_of_its_replay(layer_setups: Setups) -> None:
    setup = layer_setups(4, 33, "sumsq")
    graph = setup.device.capture([layer_request(1)], "off")
    for position in (0, 101, POSITION):
        step = random_step(setup.weights, 1, position, seed=900)
        check_launch(setup, step)
        expected = layer_case.output_digests(setup, 1)
        put(setup, step)
        setup.device.replay(graph)
        assert layer_case.output_digests(setup, 1) == expected


# Determinism


@pytest.mark.parametrize(("tp", "blocks", "stop4", "layer"), REPEATED)
def test_100_repeats_of_every_build_are_bit_identical(
    layer_setups: Setups, tp: int, blocks: int, stop4: str, layer: int
) -> None:
    """The debug build sleeps somewhere else each time; only every tenth time is the exchange made empty."""
    setup = layer_setups(tp, blocks, stop4)
    step = random_step(setup.weights, layer, POSITION, seed=1000)
    stamps = layer_case.stamp_region(setup, slot_bytes=8)
    check_launch(setup, step)
    expected = layer_case.output_digests(setup, layer)
    for build in BUILDS:
        for turn in range(100):
            if turn % 10 == 0:
                put(setup, step)
            else:
                layer_case.put_input(setup, step)
            setup.device.set_delay_seed(1 + turn)
            address = stamps.data_ptr() if build in ("register", "store") else 0
            run(setup, [("layer", layer, address, turn)], build)
            assert layer_case.output_digests(setup, layer) == expected, (build, turn)


@pytest.mark.parametrize(
    "options", [{"programmatic": False}, {"in_flight_bytes": 0}, {"in_flight_bytes": 2**32 - 1}]
)
def test_how_launches_and_loads_overlap_changes_nothing(
    cuda: ModuleType, layer_setups: Setups, options: dict[str, int]
) -> None:
    usual, other = layer_setups(2, 66, "sumsq"), make_setup(cuda, 2, 66, **options)
    step = random_step(usual.weights, 1, POSITION, seed=1100)
    left = []
    for setup in (usual, other):
        put_past(setup)
        layer_case.put_input(setup, step)
        run(setup, [layer_request(1), layer_request(2), layer_request(3), ("head", 0, 0, 0)])
        left.append(left_by_pass(setup))
    assert left[0] == left[1]


# Faults


@pytest.mark.parametrize("grid", [(1, 132), (2, 8), (4, 33)])
@pytest.mark.parametrize("build", BUILDS)
def test_a_lost_arrival_is_named_within_its_budget_and_the_device_survives(
    cuda: ModuleType, grid: tuple[int, int], build: str
) -> None:
    budget_ns, lost = 50_000_000, 3
    setup = make_setup(cuda, *grid, budget_ns=budget_ns)
    step = random_step(setup.weights, 1, POSITION, seed=1200)
    check_launch(setup, step)
    expected = layer_case.output_digests(setup, 1)
    setup.device.set_lost_block(lost)
    put(setup, step)
    start = time.monotonic()
    with pytest.raises(cuda.LaunchFailed) as failed:
        run(setup, [layer_request(1), layer_request(2)], build)
    assert time.monotonic() - start < 10
    report = failed.value.args[0]
    assert layer_case.job_table().job_name(report["site"]) == "stop1_wait_ranks"
    assert report["block"] == lost  # it waits for itself; on other ranks, its like
    assert 0 <= report["rank"] < setup.tp
    assert 4 <= report["warp"] < 12
    assert report["got"] < report["want"]
    assert budget_ns <= report["waited_ns"] < 2 * budget_ns
    setup.device.set_lost_block(NO_BLOCK)
    setup.device.synchronize()
    for turn in range(3):
        if turn == 0:
            put(setup, step)
        else:
            layer_case.put_input(setup, step)
        run(setup, [layer_request(1)])
        assert layer_case.output_digests(setup, 1) == expected


# Refusals


@pytest.mark.parametrize(("tp", "blocks"), [(1, 133), (2, 67), (4, 34)])
def test_blocks_that_cannot_run_together_are_refused(cuda: ModuleType, tp: int, blocks: int) -> None:
    with pytest.raises(
        ValueError, match=f"{tp * blocks} blocks do not fit this GPU, which holds 132 at once"
    ):
        cuda.MuseDevice(layer_case.mini_shape(tp, blocks))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 128}, "head_dim must be 64"),
        ({"hidden": 768}, "hidden must be a multiple of 512"),
        ({"q_heads": 17}, "at most 16 query heads"),
        ({"moe_hidden": 384 + 32}, "pooled rows must be a multiple of 64"),
        ({"intermediate": 80}, "features must be a multiple of 32"),
        ({"intermediate": 4096 + 128}, "at most 4096"),
        ({"top_k": 6}, "top_k must be 4 or 8"),
        ({"experts": 260}, "experts must be a multiple of 8 and at most 256"),
        ({"capacity": 500}, "capacity must be a multiple of 32"),
        ({"hidden": 8192, "blocks": 16}, "too few blocks"),
        ({"ranks": 16, "moe_hidden": 1024, "intermediate": 512}, "at most 8 ranks, not 16"),
    ],
)
def test_sizes_that_the_kernel_cannot_run_are_refused(
    cuda: ModuleType, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.MuseDevice(layer_case.mini_shape(1, 8) | changes)


def test_wrong_requests_are_refused_and_leave_the_device_usable(
    cuda: ModuleType, layer_setups: Setups
) -> None:
    with pytest.raises(ValueError, match="stop4 is gather or sumsq"):
        cuda.MuseDevice(layer_case.mini_shape(1, 8), stop4="none")
    empty = cuda.MuseDevice(layer_case.mini_shape(1, 8))
    with pytest.raises(ValueError, match="is missing"):
        empty.set_layer(0, 0, {}, False, False)
    with pytest.raises(ValueError, match="layer 0 has no weights yet"):
        empty.launch(layer_request(0), "off")
    setup = layer_setups(2, 8, "gather")
    for request, build in ((("layer", 8, 0, 0), "off"), (("tail", 0, 0, 0), "off"), (layer_request(0), "on")):
        with pytest.raises(ValueError, match=r"no such layer|no launch is called tail|no build is called on"):
            setup.device.launch(request, build)
    with pytest.raises(ValueError, match=r"KV cache is full: position 497 \+ 16 tokens > 512"):
        setup.device.set_state(CAPACITY - TOKENS + 1)
    with pytest.raises(ValueError, match="wrong shape"):
        setup.device.set_values("residual", 0, 0, torch.zeros(16, 8).numpy())
    with pytest.raises(ValueError, match="wrong type"):
        setup.device.set_values("q", 0, 0, torch.zeros(16, 256).numpy())
    with pytest.raises(RuntimeError, match="no such layer"):
        setup.device.capture([layer_request(0), layer_request(8)], "off")
    check_launch(setup, random_step(setup.weights, 0, POSITION, seed=1300))
