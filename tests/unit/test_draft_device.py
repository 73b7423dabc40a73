"""Draft, tree, verify and accept on the CPU device: against the torch reference, and as whole steps."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from musetrace.errors import DeviceError, UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import TOKENS, CpuDevice
from musetrace.muse.draft.config import draft_of
from musetrace.muse.draft.reference import DraftResult, add_context, guess
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.reference import verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.speculative.accept import accept
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import TokenTree, best_first, candidates_of, chain
from musetrace.muse.weights import ModelWeights, synthesize
from musetrace.muse.whole_steps import FROM_STATE

CAPACITY = 160
# Above the windows of 64, so that both cut.
POSITION = 90
# Context rows that a step adds, and the rows of the last pass that they stand in.
PATH = [0, 2, 5, 9]
ROOT = 17

TARGET = replace(preset("mini"), num_hidden_layers=3)
DRAFT = replace(draft_of(preset("mini")), num_hidden_layers=2, target_layer_ids=(0, 1))

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@cache
def weights() -> tuple[ModelWeights, DraftWeights]:
    return synthesize(TARGET, seed=3), synthesize_draft(DRAFT, seed=3)


def device_with(tp: int, blocks: int) -> CpuDevice:
    model, draft = weights()
    device = CpuDevice(model, tp=tp, blocks=blocks, capacity=CAPACITY, draft=DRAFT)
    device.load_draft(draft)
    return device


def features() -> np.ndarray:
    made = np.random.default_rng(6).normal(size=(POSITION + TOKENS, DRAFT.feature_width))
    return torch.from_numpy(made).bfloat16().float().numpy()


def drafted(tp: int) -> tuple[DraftResult, KvCache, torch.Tensor]:
    """The reference: context up to the path's rows, then those, then a pass."""
    model, draft = weights()
    kv = KvCache.empty(DRAFT, CAPACITY)
    start = POSITION - len(PATH)
    rows = torch.from_numpy(features())
    add_context(draft, rows[:start], 0, kv, Rounding.BF16, tp)
    before = torch.stack((torch.stack(kv.k), torch.stack(kv.v)))
    add_context(draft, rows[POSITION:][PATH], start, kv, Rounding.BF16, tp)
    return guess(draft, TARGET, model.head, ROOT, POSITION, kv, Rounding.BF16, tp), kv, before


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


def heads_of(tensor: torch.Tensor, rank: int, tp: int, dim: int) -> np.ndarray:
    return tensor.chunk(tp, dim=dim)[rank].numpy()


def begin(device: CpuDevice, before: torch.Tensor) -> None:
    """The state before a draft pass: context without the rows of the path."""
    device.set_step(
        position=POSITION, kept=len(PATH), path=PATH + [0] * 12, tokens=[ROOT] + [0] * 15, top_k=8
    )
    for rank in range(device.tp):
        device.set_features(rank, features()[POSITION:])
        for layer in range(DRAFT.num_hidden_layers):
            k, v = (heads_of(part[layer].nan_to_num(), rank, device.tp, 0) for part in before)
            device.set_draft_kv(rank, layer, k, v)


def check_projection(device: CpuDevice, expected: DraftResult, layer: int) -> None:
    """q, k and v of the pass that a launch left for a draft layer."""
    states = expected.layers[layer]
    for rank in range(device.tp):
        k, v = (part[:, POSITION : POSITION + TOKENS] for part in device.draft_kv(rank, layer))
        pairs = [
            (device.draft_q(rank), states.q),
            (k.swapaxes(0, 1), states.k),
            (v.swapaxes(0, 1), states.v),
        ]
        for got, whole in pairs:
            want = heads_of(whole, rank, device.tp, 1)
            assert relative_error(got.reshape(want.shape), want) < 5e-3, f"layer {layer} rank {rank}"


@pytest.mark.parametrize(("tp", "blocks"), [(1, 3), (2, 2), (4, 1)])
def test_context_and_each_draft_layer_equal_the_reference(tp: int, blocks: int) -> None:
    expected, kv, before = drafted(tp)
    device = device_with(tp, blocks)
    begin(device, before)
    device.wait(device.launch("draft_context", 0, FROM_STATE))
    for rank in range(tp):
        for layer in range(DRAFT.num_hidden_layers):
            for got, whole in zip(device.draft_kv(rank, layer), (kv.k[layer], kv.v[layer]), strict=True):
                want = heads_of(whole, rank, tp, 0)[:, POSITION - len(PATH) : POSITION]
                assert relative_error(got[:, POSITION - len(PATH) : POSITION], want) < 5e-3
    check_projection(device, expected, 0)
    for layer in range(DRAFT.num_hidden_layers):
        device.set_residual(expected.hidden_states[layer].numpy())
        put_projection(device, expected, layer)
        device.wait(device.launch("draft_layer", layer, FROM_STATE))
        for rank in range(tp):
            got = device.residual(rank)
            assert relative_error(got, expected.hidden_states[layer + 1].numpy()) < 2e-3, f"layer {layer}"
            np.testing.assert_array_equal(got, device.residual(0), err_msg="ranks disagree")
        if layer + 1 < DRAFT.num_hidden_layers:
            check_projection(device, expected, layer + 1)
    device.set_residual(expected.hidden_states[-1].numpy())
    device.wait(device.launch("draft_head", 0, FROM_STATE))
    assert relative_error(device.logits()[1:], expected.logits.numpy()) < 2e-3


def put_projection(device: CpuDevice, expected: DraftResult, layer: int) -> None:
    states = expected.layers[layer]
    for rank in range(device.tp):
        device.set_draft_q(rank, heads_of(states.q, rank, device.tp, 1).reshape(TOKENS, -1))


def step_launches(device: CpuDevice) -> list[tuple[str, int]]:
    draft = [("draft_layer", layer) for layer in range(DRAFT.num_hidden_layers)]
    layers = [("layer", layer) for layer in range(TARGET.num_hidden_layers)]
    first, last = [("draft_context", 0), *draft], [("entry", 0), *layers]
    return [*first, ("draft_head", 0), ("draft_tree", 0), *last, ("head", 3), ("accept", 0)]


def run(device: CpuDevice, launches: list[tuple[str, int]], stamps: str = "off", address: int = 0) -> None:
    tickets = [device.launch(kind, layer, FROM_STATE, stamps, address, 1) for kind, layer in launches]
    device.wait(tickets[-1])


def tree_of(state: dict[str, list[int]]) -> TokenTree:
    return TokenTree(np.array(state["tokens"]), np.array([-1, *state["parents"][1:]]))


@pytest.mark.parametrize(("tp", "blocks", "top_k"), [(1, 2, 8), (4, 1, 3), (2, 2, 1)])
def test_the_tree_is_the_one_of_the_devices_own_scores(tp: int, blocks: int, top_k: int) -> None:
    device = device_with(tp, blocks)
    begin(device, drafted(tp)[2])
    device.set_step(top_k=top_k)
    run(device, step_launches(device)[: DRAFT.num_hidden_layers + 3])
    expected = best_first(ROOT, *candidates_of(device.logits()[1:], top_k))
    for rank in range(tp):
        got = tree_of(device.step(rank))
        np.testing.assert_array_equal(got.tokens, expected.tokens)
        np.testing.assert_array_equal(got.parents, expected.parents)


def some_tree(tokens: list[int], seed: int) -> TokenTree:
    """``tokens`` from the root on along nodes 0, 2, 5, 9, ...; other guesses beside them."""
    rng = np.random.default_rng(seed)
    parents, made, right = [-1], [tokens[0]], 0
    for node in range(1, TOKENS):
        on_path = node in PATH[1:]
        parents.append(right if on_path else int(rng.integers(node)))
        made.append(tokens[PATH.index(node)] if on_path else 1000 - node)
        right = node if on_path else right
    return TokenTree(np.array(made), np.array(parents))


def verified(device: CpuDevice, position: int, tree: TokenTree) -> np.ndarray:
    """Logits of a pass over a tree behind ``position``; nothing is accepted."""
    parents = [0, *tree.parents[1:].tolist()]
    device.set_step(position=position, tokens=tree.tokens.tolist(), parents=parents)
    run(device, [launch for launch in step_launches(device) if launch[0] in ("entry", "layer", "head")])
    return device.logits()


def prompt(length: int) -> np.ndarray:
    return np.random.default_rng(2).integers(TARGET.vocab_size, size=length)


def test_a_token_gets_the_same_logits_to_the_bit_in_every_tree_and_pass() -> None:
    device = device_with(2, 2)
    tokens = prompt(TOKENS * 6)
    for start in range(0, TOKENS * 6, TOKENS):
        of_chain = verified(device, start, chain(tokens[start : start + TOKENS]))
    right = tokens[TOKENS * 5 :].tolist()
    tree = some_tree(right, 1)
    np.testing.assert_array_equal(verified(device, TOKENS * 5, tree)[PATH], of_chain[: len(PATH)])
    # The same positions in passes that begin elsewhere.
    for start in range(TOKENS * 4 + 3, TOKENS * 5, TOKENS):
        verified(device, start, chain(tokens[start : start + TOKENS]))
    moved = verified(device, TOKENS * 5 + 3 - TOKENS, chain(tokens[TOKENS * 4 + 3 : TOKENS * 5 + 3]))
    np.testing.assert_array_equal(moved[-3:], of_chain[:3])


def test_a_tree_pass_equals_the_reference() -> None:
    model, _ = weights()
    device, kv = device_with(2, 1), KvCache.empty(TARGET, CAPACITY)
    ids = prompt(TOKENS * 6)
    for start in range(0, TOKENS * 5, TOKENS):
        verified(device, start, chain(ids[start : start + TOKENS]))
    tree = some_tree(ids[TOKENS * 5 :].tolist(), 4)
    got = verified(device, TOKENS * 5, tree)
    verify(model, torch.from_numpy(ids[: TOKENS * 5]), 0, kv, Rounding.BF16, 2)
    want = verify(model, torch.from_numpy(tree.tokens), TOKENS * 5, kv, Rounding.BF16, 2, tree)
    assert relative_error(got, want.logits.numpy()) < 0.05


@pytest.mark.parametrize("sampling", [None, Sampling(0.7, 12345678901234567890)])
@pytest.mark.parametrize(("tp", "blocks"), [(1, 2), (4, 1)])
def test_accepting_is_that_of_the_devices_own_logits(tp: int, blocks: int, sampling: Sampling | None) -> None:
    device = device_with(tp, blocks)
    if sampling is not None:
        device.set_step(temperature=sampling.temperature, seed=sampling.seed)
    ids = prompt(TOKENS)
    verified(device, 0, chain(ids))
    # A tree with the tokens that follow, found one by one.
    tokens = [ROOT]
    while len(tokens) < len(PATH):
        logits = verified(device, TOKENS, chain(np.array(tokens + [0] * (TOKENS - len(tokens)))))
        at = len(tokens) - 1
        tokens.append(int(choose(logits[at : at + 1], np.array([TOKENS + at + 1]), sampling)[0]))
    tree = some_tree(tokens, 5)
    logits = verified(device, TOKENS, tree)
    before = [device.kv(tp - 1, layer) for layer in range(TARGET.num_hidden_layers)]
    expected = accept(tree, choose(logits, TOKENS + tree.depths + 1, sampling))
    assert expected.path.tolist() == PATH
    run(device, [("accept", 0)])
    for rank in range(tp):
        state = device.step(rank)
        assert (state["path"], state["chosen"]) == (PATH, expected.tokens.tolist())
        assert (state["position"], state["kept"]) == (TOKENS + len(PATH), len(PATH))
        assert state["tokens"][0] == expected.tokens[-1]
    for layer, rows in enumerate(before):
        for got, old in zip(device.kv(tp - 1, layer), rows, strict=True):
            end = TOKENS + len(PATH)
            np.testing.assert_array_equal(got[:, TOKENS:end], old[:, TOKENS + np.array(PATH)])
            np.testing.assert_array_equal(got[:, :TOKENS], old[:, :TOKENS])


def test_whole_steps_and_all_stamp_builds_are_bit_identical() -> None:
    device = device_with(2, 2)
    buffer = np.zeros(1 << 18, dtype=np.uint8)
    address = buffer.ctypes.data + -buffer.ctypes.data % 128
    outcomes = set()
    for stamps in ("off", "store", "register", "off"):
        device.set_step(position=3, kept=0, tokens=[ROOT] + [0] * 15, parents=[0] * 16)
        for _ in range(2):
            run(device, step_launches(device), stamps, 0 if stamps == "off" else address)
        outcomes.add((str(device.step(0)), str(device.step(1)), device.logits().tobytes()))
    assert len({outcome[2] for outcome in outcomes}) == 1
    assert len(outcomes) == 1
    assert buffer.any()


def test_what_a_step_cannot_start_from_is_refused() -> None:
    device = device_with(1, 1)
    for step, message in (
        ({"tokens": [1024] * 16}, "tokens is out of range"),
        ({"parents": [0, 1, *[0] * 14]}, "a parent must stand before its child"),
        ({"tokens": [1]}, "tokens must have 16 entries"),
        ({"top_k": 9}, "kept or top_k is out of range"),
        ({"position": 3, "kept": 4}, "kept or top_k is out of range"),
    ):
        with pytest.raises(UsageError, match=message):
            device.set_step(**step)
    device.set_step(position=CAPACITY - 15, kept=0)
    with pytest.raises(DeviceError, match="the KV cache is full: position 145"):
        run(device, step_launches(device))
    with pytest.raises(DeviceError, match="takes its position from the step's state"):
        device.launch("accept", 0, 0)
    device.set_step(position=0, kept=0)
    run(device, step_launches(device))
    with pytest.raises(DeviceError, match="the device has no draft"):
        CpuDevice(weights()[0], tp=1, blocks=1, capacity=16).launch("draft_context", 0, FROM_STATE)
    empty = CpuDevice(weights()[0], tp=1, blocks=1, capacity=CAPACITY, draft=DRAFT)
    with pytest.raises(DeviceError, match="the draft has no weights yet"):
        empty.launch("draft_context", 0, FROM_STATE)
    with pytest.raises(UsageError, match="made for another draft than mini-draft"):
        empty.load_draft(replace(weights()[1], config=replace(DRAFT, sliding_window=32)))
