"""Speculative decoding in plain torch gives the tokens of plain decoding, and those of ``transformers``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from musetrace.errors import UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.reference import verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.speculative.reference import ReferenceDecoder, plain_tokens
from musetrace.muse.speculative.sampling import Sampling
from musetrace.muse.speculative.tree import NODES, TokenTree, chain
from musetrace.muse.weights import ModelWeights, synthesize
from tests.unit.test_muse_oracle import public_model

CAPACITY = 128
TARGET = replace(
    preset("mini"),
    name="small",
    vocab_size=64,
    hidden_size=128,
    num_hidden_layers=4,
    moe_hidden_size=64,
    moe_intermediate_size=64,
    num_local_experts=4,
    num_experts_per_tok=2,
    sliding_window=20,
)
DRAFT = DraftConfig(
    name="small-draft",
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=32,
    intermediate_size=64,
    sliding_window=24,
    max_position_embeddings=512,
    target_layer_ids=(0, 3),
    mask_token_id=63,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def model() -> ModelWeights:
    return synthesize(TARGET, seed=6)


@pytest.fixture(scope="module")
def draft() -> DraftWeights:
    return synthesize_draft(DRAFT, seed=6)


def prompt(seed: int, length: int, config: MuseConfig = TARGET) -> np.ndarray:
    return np.random.default_rng(seed).integers(config.vocab_size, size=length)


def tree_around(tokens: list[int], seed: int) -> TokenTree:
    """Right guesses for 5 tokens behind the first, wrong ones at random places beside them."""
    rng = np.random.default_rng(seed)
    made, parents, right = [tokens[0]], [-1], [0]
    while len(made) < NODES:
        if len(right) <= 5 and (rng.random() < 0.5 or NODES - len(made) <= 6 - len(right)):
            made.append(tokens[len(right)])
            parents.append(right[-1])
            right.append(len(made) - 1)
            continue
        parent, token = int(rng.integers(len(made))), int(rng.integers(TARGET.vocab_size))
        taken = {made[node] for node in range(len(made)) if parents[node] == parent}
        next_right = tokens[right.index(parent) + 1] if parent in right else -1
        if token not in taken | {next_right}:
            made.append(token)
            parents.append(parent)
    return TokenTree(np.array(made), np.array(parents))


@pytest.mark.parametrize("top_k", [1, 8])
@pytest.mark.parametrize("sampling", [None, Sampling(0.7, 3)])
def test_steps_on_the_drafts_tree_give_the_tokens_of_plain_decoding(
    model: ModelWeights, draft: DraftWeights, top_k: int, sampling: Sampling | None
) -> None:
    for seed, length in ((1, 1), (2, 37)):
        ids = prompt(seed, length)
        decoder = ReferenceDecoder(model, draft, ids, CAPACITY, top_k=top_k, sampling=sampling)
        want = plain_tokens(model, ids, 14, CAPACITY, sampling=sampling)
        assert decoder.generate(14) == want


@pytest.mark.parametrize("tp", [1, 2])
def test_right_guesses_are_accepted_and_change_no_token(
    model: ModelWeights, draft: DraftWeights, tp: int
) -> None:
    ids = prompt(3, 30)
    want = plain_tokens(model, ids, 60, CAPACITY, tp=tp)
    decoder = ReferenceDecoder(model, draft, ids, CAPACITY, tp=tp)
    got = [decoder.root]
    for step in range(4):
        right = want[len(got) - 1 :]
        tree = tree_around(right, step) if step % 2 else chain(np.array(right[:NODES]))
        accepted = decoder.step(tree)
        assert len(accepted.path) == (6 if step % 2 else NODES)
        got += accepted.tokens.tolist()
    assert got == want[: 1 + 2 * (6 + NODES)]


def test_rows_of_accepted_tokens_are_those_of_a_pass_without_a_tree(
    model: ModelWeights, draft: DraftWeights
) -> None:
    ids = prompt(4, 30)
    want = plain_tokens(model, ids, 8, CAPACITY)
    decoder = ReferenceDecoder(model, draft, ids, CAPACITY)
    kept = len(decoder.step(tree_around(want, 1)).path)
    assert kept == 6
    cache = KvCache.empty(TARGET, CAPACITY)
    verify(model, torch.tensor([*ids, *want[:kept]]), 0, cache, Rounding.BF16)
    for layer in range(TARGET.num_hidden_layers):
        pairs = zip(decoder._cache.read(layer, 30 + kept), cache.read(layer, 30 + kept), strict=True)
        for got, expected in pairs:
            torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02)


def test_greedy_tokens_are_those_of_transformers() -> None:
    config = replace(preset("mini"), num_hidden_layers=4)
    model = synthesize(config, seed=2)
    draft_config = replace(DRAFT, hidden_size=config.hidden_size, intermediate_size=64)
    ids = prompt(8, 70, config)
    public = public_model(model)
    public.generation_config.eos_token_id = None
    with torch.no_grad():
        made = public.generate(
            input_ids=torch.from_numpy(ids)[None], max_new_tokens=16, do_sample=False, pad_token_id=0
        )
    decoder = ReferenceDecoder(model, synthesize_draft(draft_config, 1), ids, CAPACITY, Rounding.NONE)
    assert decoder.generate(16) == made[0, len(ids) :].tolist()


def test_a_step_without_room_is_refused(model: ModelWeights, draft: DraftWeights) -> None:
    decoder = ReferenceDecoder(model, draft, prompt(1, 20), 35)
    with pytest.raises(UsageError, match="a step behind 20 tokens does not fit a cache of 35"):
        decoder.step()
