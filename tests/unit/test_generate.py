"""The engine's ``generate``: its tokens are those of plain decoding, whatever guesses are verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from musetrace.errors import DeviceError, UsageError
from musetrace.muse.engine import Engine
from musetrace.muse.generation import Generation
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import NODES
from musetrace.muse.whole_steps import FROM_STATE
from tests.unit.test_speculative_reference import DRAFT, TARGET, tree_around

CAPACITY = 256
COUNT = 14

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def engine_with(tp: int, guesses: str) -> Engine:
    options = {"tp": tp, "blocks": 1 if tp == 4 else 2, "capacity": CAPACITY, "seed": 6}
    return Engine(TARGET, guesses=guesses, draft=DRAFT, **options)


@pytest.fixture(scope="module", params=[1, 2, 4])
def tp(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def by_tree(tp: int) -> Engine:
    return engine_with(tp, "tree")


@pytest.fixture(scope="module")
def by_chain(tp: int) -> Engine:
    return engine_with(tp, "chain")


def prompt_of(length: int) -> list[int]:
    return np.random.default_rng(length).integers(TARGET.vocab_size, size=length).tolist()


def plain(engine: Engine, prompt: Sequence[int], count: int, sampling: Sampling | None = None) -> list[int]:
    """One token a pass: verify passes over chains whose guesses nobody looks at."""
    steps = engine.whole_steps()
    tokens = [steps.prefill(np.array(prompt), sampling)]
    device = engine.device
    while len(tokens) < count:
        position = len(prompt) + len(tokens) - 1
        chain = {"tokens": [tokens[-1]] + [0] * (NODES - 1), "parents": [0, *range(NODES - 1)]}
        device.set_step(position=position, kept=0, **chain)  # type: ignore[attr-defined]
        for passes in (steps._verify, steps._head):
            passes.run(FROM_STATE, None, None)
        tokens.append(int(choose(device.logits()[:1], np.array([position + 1]), sampling)[0]))
    return tokens


def guided_step(engine: Engine, right: list[int], seed: int) -> list[int]:
    """A whole step whose tree, behind the draft's, is one with ``right`` in it, from the root on."""
    device, plan = engine.device, engine.whole_steps().plan
    tree = tree_around(right, seed)
    for planned in plan:
        if planned.kind == "entry":
            parents = [0, *tree.parents[1:].tolist()]
            device.set_step(tokens=tree.tokens.tolist(), parents=parents)  # type: ignore[attr-defined]
        device.wait(device.launch(planned.device_kind, planned.device_layer, FROM_STATE))
    return list(device.step()["chosen"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("length", "sampling"), [(1, None), (45, None), (16, Sampling(0.8, 5))])
def test_tokens_are_those_of_plain_decoding(
    by_tree: Engine, by_chain: Engine, length: int, sampling: Sampling | None
) -> None:
    prompt = prompt_of(length)
    want = plain(by_tree, prompt, COUNT, sampling)
    assert by_tree.generate(prompt, COUNT, sampling) == want
    assert by_chain.generate(prompt, COUNT, sampling) == want
    # Passes that begin elsewhere in the text go on alike; so does the noise of a draw.
    assert by_tree.generate(prompt + want[:7], 3, sampling) == want[7:10]


def test_right_guesses_are_accepted_and_change_no_token(by_tree: Engine) -> None:
    prompt = prompt_of(20)
    right = plain(by_tree, prompt, 24)
    got = [by_tree.whole_steps().prefill(np.array(prompt), None)]
    for step in range(3):
        made = guided_step(by_tree, right[len(got) - 1 :], step)
        assert len(made) == 6
        got += made
    assert got == right[: len(got)]


def test_a_generation_goes_on_behind_the_prompt_when_the_cache_is_full() -> None:
    engine = Engine(TARGET, draft=DRAFT, tp=1, blocks=1, capacity=64, seed=6)
    generation = Generation(engine, prompt_of(40), 1)
    first = generation.step()
    while generation._position + NODES <= 64:
        generation.step()
    assert generation.step() == first


@pytest.mark.parametrize(
    ("prompt", "count", "message"),
    [
        ([], 5, "the prompt is empty"),
        ([[]], 5, "the prompt is empty"),
        (["a"], 5, "a prompt is a list of token ids"),
        ([3, 64], 5, "token id 64 is outside the vocabulary of model small, 0 to 63"),
        ([-1], 5, "token id -1 is outside"),
        ([2**70], 5, "a prompt is a list of token ids"),
        (
            [1] * 200,
            43,
            "a prompt of 200 tokens and 43 new ones need a cache of 257 positions, and it has 256",
        ),
        ([1] * 241, 1, "need a cache of 257 positions"),
        ([1], 0, "at least one new token"),
    ],
)
def test_what_cannot_be_generated_is_refused_before_a_launch(
    by_tree: Engine, prompt: list[int], count: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_tree.device, "launch", None)
    with pytest.raises(UsageError, match=message) as caught:
        by_tree.generate(prompt, count)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_draft_says_so() -> None:
    engine = Engine(TARGET, tp=1, blocks=1, capacity=32)
    with pytest.raises(DeviceError, match="this device has no draft for model small"):
        engine.generate([1], 2)
    with pytest.raises(UsageError, match="intermediate_size 96 cannot be shared by 4 ranks"):
        Engine(TARGET, draft=replace(DRAFT, intermediate_size=96), tp=4, blocks=1)


@pytest.mark.parametrize("capacity", [15, 513, 1 << 40])
def test_a_cache_that_the_model_has_no_positions_for_is_refused(capacity: int) -> None:
    with pytest.raises(UsageError, match=f"model small takes a capacity of 16 to 512, not {capacity}"):
        Engine(TARGET, draft=DRAFT, tp=1, blocks=1, capacity=capacity)
    engine = Engine(TARGET, draft=DRAFT, tp=1, blocks=1, capacity=16)
    with pytest.raises(UsageError, match="need a cache of 17 positions, and it has 16"):
        engine.generate([1], 2)
