"""Whole steps of `mini` and all that they leave, for tests that hold its ranks in two ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from musetrace.muse.config import preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.cuda_model import UploadedShares
from musetrace.muse.device import FROM_STATE
from musetrace.muse.draft.config import draft_of
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.launch_plan import PlannedLaunch, gpu_step_plan
from musetrace.muse.passes import Passes, Recording
from musetrace.muse.sharding import WholeShares
from musetrace.muse.speculative.sampling import Sampling
from musetrace.muse.weights import ModelWeights, synthesize
from musetrace.muse.whole_steps import WholeSteps
from tests.unit.test_speculative_reference import tree_around

CONFIG = preset("mini")
DRAFT = draft_of(CONFIG)
PLAN = gpu_step_plan(CONFIG, DRAFT)
# A hundred steps, however long their paths are.
CAPACITY = 2048
BUDGET_NS = 2_000_000_000
PROMPT_TOKENS = 40

Join = Callable[[Passes], Passes]


@dataclass(frozen=True)
class Grid:
    """How the ranks are dealt: the same blocks for a rank wherever it is, for the same sums."""

    tp: int
    blocks: int

    def numbers(self, budget_ns: int = BUDGET_NS) -> dict[str, Any]:
        return {
            "tp": self.tp,
            "blocks": self.blocks,
            "capacity": CAPACITY,
            "layers": CONFIG.num_hidden_layers,
            "budget_ns": budget_ns,
        }


@cache
def model() -> ModelWeights:
    return synthesize(CONFIG, seed=3)


@cache
def draft() -> DraftWeights:
    return synthesize_draft(DRAFT, seed=5)


class Uploaded(UploadedShares):
    """Weights that stay on the GPU, for all devices of a process."""

    layer = cache(UploadedShares.layer)
    head = cache(UploadedShares.head)
    embedding = cache(UploadedShares.embedding)


@cache
def weights(tp: int, gpu: torch.device) -> Uploaded:
    return Uploaded(WholeShares(model()), tp, gpu)


def prompt(seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(CONFIG.vocab_size, size=PROMPT_TOKENS)


class BuildPasses:
    """Whole steps of a build, as launches or a graph; ``before`` is called with the kind of each launch."""

    def __init__(
        self,
        device: Any,
        build: str = "off",
        launches: str = "eager",
        before: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self.plan: tuple[PlannedLaunch, ...] = PLAN
        self._device, self._build, self._before = device, build, before
        self._graph: int | None = None
        self._launches = launches

    def prepare(self, stamps: str) -> None:
        """See :meth:`Passes.prepare`."""

    def run(self, position: int, recording: Recording | None, step: int | None) -> None:
        """See :meth:`Passes.run`."""
        assert position == FROM_STATE
        if self._launches == "graph":
            if self._graph is None:
                requests = [(one.device_kind, one.device_layer, 0, number) for number, one in enumerate(PLAN)]
                self._graph = self._device.capture(requests, self._build)
            self._device.wait(self._device.replay(self._graph, position, 0))
            return
        for planned in PLAN:
            self._before(planned.kind)
            ticket = self._device.launch(planned.device_kind, planned.device_layer, position, self._build)
        self._device.wait(ticket)


def as_they_are(passes: Passes) -> Passes:
    """What joins passes where all ranks are in one process."""
    return passes


def whole_steps(device: Any, guesses: str, passes: Passes, joined: Join = as_they_are) -> WholeSteps:
    """Steps of a device that has its draft."""
    return WholeSteps(device, guesses, lambda: None, PLAN, passes, joined)


@dataclass(frozen=True)
class Trace:
    """What steps left: their tokens, a hash of the state behind each, and of its logits."""

    tokens: list[int]
    states: list[str]
    logits: list[str]


def run_steps(
    device: Any,
    steps: WholeSteps,
    prompts: int,
    of_prompt: int,
    sampling: Sampling | None = None,
    before: Callable[[int], None] = lambda number: None,
) -> Trace:
    """So many steps behind each of some prompts. ``before`` is called with a step's number."""
    trace = Trace([], [], [])
    for seed in range(prompts):
        trace.tokens.append(steps.prefill(prompt(seed), sampling))
        for number in range(of_prompt):
            before(seed * of_prompt + number)
            trace.tokens.extend(steps.run(None, None))
            trace.states.append(repr(sorted(device.step().items())))
            trace.logits.append(sha256(device.logits().tobytes()).hexdigest())
    return trace


def guided(device: Any, right: list[int], number: int) -> Callable[[str], None]:
    """For ``BuildPasses``: the tree of a step becomes one with the right guesses in it."""
    tree = tree_around(right, number)

    def before(kind: str) -> None:
        if kind == "embed":
            device.set_step(tokens=tree.tokens.tolist(), parents=[0, *tree.parents[1:].tolist()])

    return before


def run_guided_steps(
    device: Any, right: list[int], build: str, joined: Join = as_they_are, steps: int = 5
) -> list[int]:
    """Steps that accept five guesses each, ``right`` of them being known; returns their tokens."""
    got: list[int] = []
    for number in range(steps):
        before = guided(device, right[max(0, len(got) - 1) :], number)
        step = whole_steps(device, "tree", BuildPasses(device, build, before=before), joined)
        got = got or [step.prefill(prompt(0), None)]
        got += step.run(None, None)
    return got


def caches_of(device: CudaDevice, first_rank: int) -> dict[str, str]:
    """Hashes of residual stream, keys and values of model and draft, by rank of the model."""
    digests = {}
    for rank in range(device.ranks):
        parts = [device.residual(rank)]
        for layer in range(device.layers):
            parts += device.kv(rank, layer)
        for layer in range(DRAFT.num_hidden_layers):
            parts += [device._device.draft_values(name, rank, layer) for name in "kv"]
        digest = sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        digests[str(first_rank + rank)] = digest.hexdigest()
    return digests
