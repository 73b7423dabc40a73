"""Whole steps with the ranks on two devices of one GPU, against all of them on one device.

The devices send each other what GPUs send.
Nothing is mapped here and no link is crossed (``test_real_ranks_device.py`` has that); the kernels, the slots
and their turns are those of real ranks.
"""

from __future__ import annotations

from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from musetrace.errors import DeviceError
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import FROM_STATE, LaunchTimeoutError
from musetrace.muse.peer_requirements import RankShare
from musetrace.muse.speculative.sampling import Sampling
from tests.gpu.step_case import (
    CONFIG,
    DRAFT,
    PLAN,
    BuildPasses,
    Grid,
    Trace,
    caches_of,
    draft,
    prompt,
    run_guided_steps,
    run_steps,
    weights,
    whole_steps,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread")]

GPU = torch.device("cuda")
GRIDS = [Grid(2, 33), Grid(4, 16)]
SHORT_BUDGET_NS = 200_000_000
STEPS = 10
WAYS = ["eager off", "eager register", "eager delays", "graph off", "graph register"]


class Joined:
    """Two devices as one; what is asked of it is asked of both, launch by launch."""

    def __init__(self, devices: list[CudaDevice]) -> None:
        self.devices = devices
        self.config, self.draft = devices[0].config, devices[0].draft
        self.launches_in_flight = devices[0].launches_in_flight

    def launch(self, kind: str, layer: int, position: int, stamps: str = "off", *lease: int) -> int:
        return [device.launch(kind, layer, position, stamps) for device in self.devices][0]

    def capture(self, requests: Any, stamps: str) -> int:
        return [device.capture(requests, stamps) for device in self.devices][0]

    def replay(self, graph: int, position: int, epoch: int) -> int:
        return [device.replay(graph, position, epoch) for device in self.devices][0]

    def wait(self, ticket: int) -> None:
        for device in self.devices:
            device.wait(ticket)

    def set_step(self, **step: Any) -> None:
        for device in self.devices:
            device.set_step(**step)

    def step(self) -> dict[str, Any]:
        first, second = (device.step() for device in self.devices)
        assert first == second, "the devices have different states"
        return first

    def logits(self) -> Any:
        return np.concatenate([device.logits() for device in self.devices], axis=1)


def without_overlap(cuda: ModuleType) -> Any:
    """A launch that waits for its turn takes up SMs, which the other device's launch may need."""
    device = partial(cuda.MuseDevice, programmatic=False)
    return SimpleNamespace(**{**vars(cuda), "MuseDevice": device})


def joined_devices(cuda: ModuleType, grid: Grid, **numbers: Any) -> Joined:
    held = grid.tp // 2
    devices = []
    for first in (0, held):
        share = RankShare(first, held)
        options = grid.numbers() | numbers
        devices.append(CudaDevice(without_overlap(cuda), CONFIG, share=share, draft=DRAFT, **options))
        devices[-1].load(weights(grid.tp, GPU))
        devices[-1].load_draft(draft())
    for device, other in (devices, devices[::-1]):
        device._device.connect_here([other._device])
    return Joined(devices)


def one_device(cuda: ModuleType, grid: Grid) -> CudaDevice:
    device = CudaDevice(cuda, CONFIG, draft=DRAFT, **grid.numbers())
    device.load(weights(grid.tp, GPU))
    device.load_draft(draft())
    return device


@cache
def expected(
    cuda: ModuleType, grid: Grid, guesses: str, sampling: Sampling | None = None
) -> tuple[Trace, dict[str, str]]:
    device = one_device(cuda, grid)
    made = run_steps(device, whole_steps(device, guesses, BuildPasses(device)), 2, STEPS, sampling)
    return made, caches_of(device, 0)


def caches(joined: Joined) -> dict[str, str]:
    first, second = joined.devices
    return caches_of(first, 0) | caches_of(second, first.ranks)


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("guesses", ["tree", "chain"])
@pytest.mark.parametrize("grid", GRIDS)
def test_steps_equal_those_of_one_device_bit_for_bit(
    cuda: ModuleType, grid: Grid, guesses: str, ways: str
) -> None:
    """Tokens, logits and state of 20 steps; residual stream, keys and values of model and draft."""
    launches, build = ways.split()
    joined = joined_devices(cuda, grid)
    passes = BuildPasses(joined, build, launches)

    def before(number: int) -> None:
        for device in joined.devices:
            device._device.set_delay_seed(1 + number)

    made = run_steps(joined, whole_steps(joined, guesses, passes), 2, STEPS, before=before)
    reference, reference_caches = expected(cuda, grid, guesses)
    assert made == reference
    assert caches(joined) == reference_caches


@pytest.mark.parametrize("grid", GRIDS)
def test_drawn_tokens_are_those_of_one_device(cuda: ModuleType, grid: Grid) -> None:
    joined, sampling = joined_devices(cuda, grid), Sampling(0.8, 11)
    passes = BuildPasses(joined, "off", "graph")
    assert (
        run_steps(joined, whole_steps(joined, "tree", passes), 2, STEPS, sampling)
        == (expected(cuda, grid, "tree", sampling)[0])
    )


@pytest.mark.parametrize("grid", GRIDS)
def test_accepted_paths_are_kept_on_both(cuda: ModuleType, grid: Grid) -> None:
    """Steps that accept five guesses each."""
    alone, joined = one_device(cuda, grid), joined_devices(cuda, grid)
    made = []
    for device in (alone, joined):
        right = run_steps(device, whole_steps(device, "tree", BuildPasses(device)), 1, 40).tokens
        made.append(run_guided_steps(device, right, "register"))
        assert made[-1] == right[: 1 + 5 * 6]
    assert made[0] == made[1]
    assert caches(joined) == caches_of(alone, 0)


def test_parts_that_do_not_come_are_named_and_the_step_can_be_run_again(cuda: ModuleType) -> None:
    """One device's launches end in front of the tree: the other waits for its parts, and keeps its state."""
    grid = GRIDS[0]
    joined = joined_devices(cuda, grid, budget_ns=SHORT_BUDGET_NS)
    steps = whole_steps(joined, "tree", BuildPasses(joined))
    first = [steps.prefill(prompt(0), None), *steps.run(None, None)]
    begun = joined.step()
    tree = [planned.kind for planned in PLAN].index("draft_tree")
    for planned in PLAN[:tree]:
        joined.launch(planned.device_kind, planned.device_layer, FROM_STATE)
    waiting, other = joined.devices
    ticket = waiting.launch("draft_tree", 0, FROM_STATE)
    with pytest.raises(LaunchTimeoutError, match=r"rank 0 block 0 warp \d+ waited .* in tree_wait_ranks"):
        waiting.wait(ticket)
    other.wait(other._launched)
    with pytest.raises(DeviceError, match="reset"):
        waiting.launch("draft_context", 0, FROM_STATE)
    for device in joined.devices:
        device._device.reset()
    kept = ("position", "kept", "path")
    assert [waiting.step()[name] for name in kept] == [begun[name] for name in kept]
    joined.set_step(tokens=begun["tokens"], parents=begun["parents"])
    again = steps.run(None, None)
    reference = expected(cuda, grid, "tree")[0].tokens
    assert [*first, again[0]] == reference[: len(first) + 1]


def test_a_launch_before_the_draft_is_connected_is_refused(cuda: ModuleType) -> None:
    grid = GRIDS[0]
    share = RankShare(0, 1)
    device = CudaDevice(without_overlap(cuda), CONFIG, share=share, draft=DRAFT, **grid.numbers())
    device.load(weights(grid.tp, GPU))
    device.load_draft(draft())
    for kind in ("draft_context", "draft_tree", "accept", "entry"):
        with pytest.raises(DeviceError, match="ranks of other processes are not connected"):
            device.launch(kind, 0, FROM_STATE)


def test_devices_that_do_not_hold_all_ranks_are_refused(cuda: ModuleType) -> None:
    module, numbers = without_overlap(cuda), Grid(4, 16).numbers()
    first, second = (CudaDevice(module, CONFIG, share=RankShare(n, 1), **numbers) for n in (0, 1))
    with pytest.raises(ValueError, match="do not hold all ranks"):
        first._device.connect_here([second._device])
    with pytest.raises(ValueError, match="two devices hold a rank"):
        first._device.connect_here([first._device])
