"""The draft's launches on a real GPU against the torch reference, launch by launch, on `mini`'s draft."""

from __future__ import annotations

import pytest
import torch

from musetrace.job_table import JobTable
from musetrace.muse.draft import reference
from musetrace.muse.reference import logits_of
from tests.gpu import draft_case, layer_case
from tests.gpu.draft_case import ROUNDED, TOLERANCE, DraftSetup, DraftSetups, random_draft_step
from tests.gpu.layer_case import CAPACITY, TOKENS, Request, assert_close

pytestmark = pytest.mark.gpu

# The window of 64 cuts, and its begin is not a multiple of the 32 keys of a run.
POSITION = 300
LAYERS = range(5)
GRIDS = [(1, 4), (1, 33), (1, 132), (2, 8), (2, 66), (4, 4), (4, 33)]
BUILDS = ["off", "register", "store", "delays", "absent"]
PASS: list[Request] = [
    ("draft_context", 0, 0, 0),
    *(("draft_layer", layer, 0, 0) for layer in LAYERS),
    ("draft_head", 0, 0, 0),
]


@pytest.mark.parametrize("grid", GRIDS)
def test_a_context_launch_equals_the_reference(draft_setups: DraftSetups, grid: tuple[int, int]) -> None:
    setup = draft_setups(*grid)
    for path in ([0, 1, 3, 7, 15], [0], list(range(TOKENS)), []):
        step = random_draft_step(setup, POSITION, path, seed=GRIDS.index(grid))
        draft_case.put_step(setup, step)
        setup.run(PASS[0])
        draft_case.check_context(setup, step)


@pytest.mark.parametrize("layer", [0, 2, 4])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_layer_equals_the_reference(draft_setups: DraftSetups, grid: tuple[int, int], layer: int) -> None:
    check_layer(draft_setups(*grid), layer, POSITION, seed=10 + GRIDS.index(grid))


@pytest.mark.parametrize("position", [0, 16, 37, 65, POSITION, CAPACITY - TOKENS])
@pytest.mark.parametrize("grid", [(1, 132), (2, 8), (4, 33)])
def test_every_position(draft_setups: DraftSetups, grid: tuple[int, int], position: int) -> None:
    check_layer(draft_setups(*grid), 1, position, seed=20, build="register")


def check_layer(setup: DraftSetup, layer: int, position: int, seed: int, build: str = "off") -> None:
    """A layer's launch on random input, from poisoned outputs and exchange, and all that it leaves."""
    step = random_draft_step(setup, position, [], seed)
    draft_case.put_step(setup, step)
    kv = draft_case.copy_of(step.cache)
    states = draft_case.layer_states(setup, layer, step.x, kv, position)
    draft_case.put_layer_input(setup, layer, step.x, states.q, kv)
    setup.run(("draft_layer", layer, 0, 0), build=build)
    x = draft_case.residual_of(setup)
    assert_close(x, states.output, f"the residual stream behind layer {layer}", TOLERANCE)
    if layer + 1 < len(LAYERS):
        draft_case.check_projection(setup, layer + 1, x, position)
    else:
        draft_case.check_normed(setup, x)


@pytest.mark.parametrize("grid", [(1, 132), (2, 66), (4, 33), (2, 8)])
def test_a_pass_guesses_as_the_reference_does(draft_setups: DraftSetups, grid: tuple[int, int]) -> None:
    """Launch by launch on what the device itself left; then the logits, of the device's own rows."""
    setup = draft_setups(*grid)
    step = random_draft_step(setup, POSITION, [0, 2, 5], seed=30)
    draft_case.put_step(setup, step)
    setup.run(PASS[0])
    x = draft_case.residual_of(setup)
    for layer in LAYERS:
        kv = draft_case.copy_of(step.cache)
        kv.k[layer], kv.v[layer] = draft_case.cache_of(setup, layer)
        own_q = draft_case.q_of(setup)
        setup.run(PASS[1 + layer])
        expected = layer_output(setup, layer, x, own_q, kv, step.position)
        x = draft_case.residual_of(setup)
        assert_close(x, expected, f"the residual stream behind layer {layer}", TOLERANCE)
    setup.run(PASS[-1])
    logits = torch.cat([torch.from_numpy(setup.device.values("logits", rank)) for rank in range(setup.tp)], 1)
    normed = draft_case.rows_of(setup, "normed")
    expected = logits_of(setup.target.config, setup.target.weights.head, normed)
    assert_close(logits[1:], expected[1:], "logits", TOLERANCE)


def layer_output(  # type: ignore[no-untyped-def]
    setup: DraftSetup, layer: int, x: torch.Tensor, q: torch.Tensor, kv, position: int
) -> torch.Tensor:
    """A layer from its attention on, over q and a cache that are given."""
    config, weights = setup.config, setup.weights.layers[layer]
    attended = reference._attend(config, q, *kv.read(layer, position + TOKENS)).flatten(1)
    x = x + reference.linear_over_ranks(ROUNDED.to_bf16(attended), weights.o_proj, setup.tp, ROUNDED)
    b = ROUNDED.to_bf16(reference.rms_norm(x, config.rms_norm_eps) * weights.mlp_norm)
    gate, up = reference.linear(b, weights.gate_proj), reference.linear(b, weights.up_proj)
    activated = ROUNDED.to_bf16(torch.nn.functional.silu(gate) * up)
    return x + reference.linear_over_ranks(activated, weights.down_proj, setup.tp, ROUNDED)


@pytest.mark.parametrize("grid", [(1, 132), (2, 8), (4, 33)])
def test_repeats_builds_and_graphs_are_bit_identical(
    draft_setups: DraftSetups, grid: tuple[int, int]
) -> None:
    """The exchange is made empty every fifth time only; the debug build sleeps somewhere else each time."""
    setup = draft_setups(*grid)
    step = random_draft_step(setup, POSITION, [0, 1, 4], seed=40)
    draft_case.put_step(setup, step)
    setup.run(*PASS)
    expected = left_by_pass(setup)
    graphs = {build: setup.device.capture(PASS, build) for build in ("off", "register")}
    odd = setup.device.capture(PASS[:1], "off")  # leaves the other copy of the exchange to begin with
    for build in BUILDS:
        for turn in range(10):
            if turn % 5 == 0:
                draft_case.put_step(setup, step)
            setup.device.set_delay_seed(1 + turn)
            setup.run(*PASS, build=build)
            assert left_by_pass(setup) == expected, (build, turn)
    for graph in graphs.values():
        for _ in range(3):
            setup.device.replay(graph)
            assert left_by_pass(setup) == expected
            setup.device.replay(odd)
            setup.device.synchronize()
            setup.device.replay(graph)
            assert left_by_pass(setup) == expected
            setup.run(PASS[0])


def left_by_pass(setup: DraftSetup) -> dict[str, str]:
    return draft_case.digests(setup) | layer_case.digests(setup.target, [("logits", 0)])


@pytest.mark.parametrize("slot_bytes", [4, 8])
@pytest.mark.parametrize("grid", [(1, 4), (2, 66)])
def test_launches_stamp_their_jobs(draft_setups: DraftSetups, grid: tuple[int, int], slot_bytes: int) -> None:
    setup = draft_setups(*grid)
    table = JobTable.built_in("muse_draft")
    step = random_draft_step(setup, POSITION, [0, 1], seed=50)
    draft_case.put_step(setup, step)
    of_context = {job.name for job in table.jobs if job.op in ("exchange", "embed", "fc", "context", "qkv")}
    of_layer = {job.name for job in table.jobs if job.op not in ("embed", "fc", "context")}
    names = {
        "draft_context": of_context - {"qkv_wait_input"},
        "draft_layer": of_layer - {"first_wait_input"},
    }
    for kind, expected in names.items():
        assert draft_case.stamped_jobs(setup, table, kind, slot_bytes) == expected, kind
