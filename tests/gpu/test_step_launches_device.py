"""Tree, embedding, accepting and kept rows on a real GPU, launch by launch, against the rules in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from musetrace.job_table import JobTable
from musetrace.muse.reference import embed
from musetrace.muse.speculative.accept import accept
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import TokenTree, best_first, candidates_of
from tests.gpu import draft_case
from tests.gpu.draft_case import DraftSetup, DraftSetups
from tests.gpu.layer_case import CAPACITY, TOKENS, assert_close

pytestmark = pytest.mark.gpu

POSITION = 300
GRIDS = [(1, 4), (1, 132), (2, 66), (4, 33)]
BUILDS = ["off", "register", "store", "absent"]
Logits = NDArray[np.float32]


def put_logits(setup: DraftSetup, logits: Logits) -> None:
    for rank, part in enumerate(np.split(logits, setup.tp, axis=1)):
        setup.device.set_values("logits", rank, 0, np.ascontiguousarray(part))


def random_logits(setup: DraftSetup, seed: int, steps: int | None = None) -> Logits:
    """Normal ones, a few times as wide; with ``steps``, so many to a unit: many are equal."""
    shape = (TOKENS, setup.target.config.vocab_size)
    logits = 3 * np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return logits if steps is None else np.round(logits * steps) / np.float32(steps)


def random_tree(seed: int, tokens: int) -> TokenTree:
    """Any tree of 16 different tokens, of those below ``tokens``."""
    rng = np.random.default_rng(seed)
    parents = np.array([-1, *(rng.integers(node) for node in range(1, TOKENS))])
    return TokenTree(rng.permutation(tokens)[:TOKENS], parents)


def put_tree(setup: DraftSetup, tree: TokenTree, **state: Any) -> None:
    setup.device.set_step(
        {"position": POSITION, "tokens": tree.tokens.tolist(), "parents": tree.parents.clip(0).tolist()}
        | state
    )


@pytest.mark.parametrize("steps", [None, 1])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_tree_is_that_of_the_rule(
    draft_setups: DraftSetups, grid: tuple[int, int], steps: int | None
) -> None:
    """With many equal scores in a row and between rows, as without."""
    setup = draft_setups(*grid)
    for top_k in (1, 2, 8):
        logits = random_logits(setup, 10 + top_k, steps)
        put_logits(setup, logits)
        expected = best_first(17, *candidates_of(logits[1:], top_k))
        for build in BUILDS:
            put_tree(setup, random_tree(0, 16), top_k=top_k)
            setup.device.set_step({"tokens": [17, *range(15)]})
            setup.run(("draft_tree", 0, 0, 0), build=build)
            step = setup.device.step()
            assert step["tokens"] == expected.tokens.tolist(), (top_k, build)
            assert step["parents"] == expected.parents.clip(0).tolist(), (top_k, build)
            assert (step["position"], step["top_k"]) == (POSITION, top_k)


@pytest.mark.parametrize("grid", GRIDS)
def test_trees_tokens_are_embedded(draft_setups: DraftSetups, grid: tuple[int, int]) -> None:
    setup = draft_setups(*grid)
    tree = random_tree(1, setup.target.config.vocab_size)
    put_tree(setup, tree)
    setup.run(("embed", 0, 0, 0))
    expected = embed(setup.target.config, setup.target.weights.head, torch.from_numpy(tree.tokens))
    for rank in range(setup.tp):
        got = torch.from_numpy(setup.device.values("residual", rank))
        assert_close(got, expected, "the embedded rows", 1e-6)


def followed(logits: Logits, tree: TokenTree, seed: int) -> Logits:
    """The logits, with the highest at one of a node's children, or, one time in four, elsewhere."""
    rng = np.random.default_rng(seed)
    for node in range(TOKENS):
        children = np.flatnonzero(tree.parents == node)
        if len(children) and rng.random() < 0.75:
            logits[node, tree.tokens[rng.choice(children)]] = 20.0
    return logits


@pytest.mark.parametrize("sampling", [None, Sampling(0.7, 11), Sampling(1.3, (1 << 63) + 5)])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_accepted_path_is_that_of_the_rule(
    draft_setups: DraftSetups, grid: tuple[int, int], sampling: Sampling | None
) -> None:
    setup = draft_setups(*grid)
    drawn = {"temperature": 0.0, "seed": 0}
    if sampling is not None:
        drawn = {"temperature": sampling.temperature, "seed": sampling.seed}
    lengths = set()
    for case in range(12):
        tree = random_tree(case, setup.target.config.vocab_size)
        logits = followed(random_logits(setup, case, 4 if case % 2 else None), tree, case)
        put_logits(setup, logits)
        put_tree(setup, tree, **drawn)
        setup.run(("accept", 0, 0, 0), build=BUILDS[case % len(BUILDS)])
        expected = accept(tree, choose(logits, POSITION + tree.depths + 1, sampling))
        step = setup.device.step()
        assert step["path"] == expected.path.tolist(), case
        assert step["chosen"] == expected.tokens.tolist(), case
        assert step["position"] == POSITION + len(expected.path)
        assert step["tokens"][0] == expected.tokens[-1]
        lengths.add(len(expected.path))
    assert len(lengths) > 2, "a test of one length alone"


@pytest.mark.parametrize("grid", GRIDS)
def test_rows_of_the_path_are_kept(draft_setups: DraftSetups, grid: tuple[int, int]) -> None:
    """Keys and values of all layers; every other row stays as it was."""
    setup = draft_setups(*grid)
    layers = range(setup.target.config.num_hidden_layers)
    places = [(name, rank, layer) for name in "kv" for rank in range(setup.tp) for layer in layers]
    rng = np.random.default_rng(3)
    for path in ([0, 3, 4, 9, 15], [0], [0, 1, 2], [0, 2], list(range(TOKENS))):
        before = {}
        for place in places:
            shape = setup.device.values(*place).shape
            before[place] = rng.integers(1 << 16, size=shape, dtype=np.uint16)
            setup.device.set_values(*place, before[place])
        kept = len(path)
        setup.device.set_step({"position": POSITION + kept, "kept": kept, "path": path + [0] * (16 - kept)})
        setup.run(("keep_kv", 0, 0, 0))
        for place in places:
            expected = before[place].swapaxes(1, 2).copy() if place[0] == "v" else before[place].copy()
            expected[:, POSITION : POSITION + kept] = expected[:, [POSITION + row for row in path]]
            got = setup.device.values(*place)
            got = got.swapaxes(1, 2) if place[0] == "v" else got
            np.testing.assert_array_equal(got, expected, err_msg=f"{place}, path {path}")


def test_no_launch_takes_the_parts_of_another(draft_setups: DraftSetups) -> None:
    """A hundred trees in one stream, and trees and paths of different logits in turn."""
    setup = draft_setups(1, 132)
    logits = random_logits(setup, 5)
    put_logits(setup, logits)
    put_tree(setup, random_tree(0, 16), top_k=8)
    root = setup.device.step()["tokens"][0]
    setup.run(*[("draft_tree", 0, 0, 0)] * 100)
    expected = best_first(root, *candidates_of(logits[1:], 8))
    assert setup.device.step()["tokens"] == expected.tokens.tolist()
    assert CAPACITY > POSITION + TOKENS
    for case in range(20):
        logits = random_logits(setup, 100 + case)
        put_logits(setup, logits)
        put_tree(setup, random_tree(case, 100), top_k=1 + case % 8, temperature=0.0, seed=0)
        root = setup.device.step()["tokens"][0]
        if case % 3:
            setup.run(("draft_tree", 0, 0, 0))
            made = best_first(root, *candidates_of(logits[1:], 1 + case % 8))
            assert setup.device.step()["tokens"] == made.tokens.tolist(), case
        else:
            setup.run(("accept", 0, 0, 0))
            assert setup.device.step()["chosen"][0] == logits[0].argmax(), case


@pytest.mark.parametrize("grid", GRIDS)
def test_logits_that_are_no_numbers_give_tokens_of_the_vocabulary(
    draft_setups: DraftSetups, grid: tuple[int, int]
) -> None:
    """Their embeddings are read: tokens outside would end the process."""
    setup = draft_setups(*grid)
    vocab = setup.target.config.vocab_size
    put_logits(setup, np.full((TOKENS, vocab), np.nan, dtype=np.float32))
    put_tree(setup, random_tree(0, 100), top_k=8)
    setup.run(("draft_tree", 0, 0, 0), ("embed", 0, 0, 0), ("accept", 0, 0, 0))
    step = setup.device.step()
    assert all(token < vocab for token in [*step["tokens"], *step["chosen"]])


@pytest.mark.parametrize("slot_bytes", [4, 8])
@pytest.mark.parametrize("grid", [(1, 4), (2, 66)])
def test_launches_stamp_their_jobs(draft_setups: DraftSetups, grid: tuple[int, int], slot_bytes: int) -> None:
    setup = draft_setups(*grid)
    table = JobTable.built_in("muse_step")
    put_logits(setup, random_logits(setup, 8))
    names = {
        "draft_tree": {"tree_topk", "tree_send", "tree_wait_ranks", "tree_merge", "tree_build"},
        "embed": {"embed_rows"},
        "accept": {
            *("accept_argmax", "accept_send", "accept_wait_ranks"),
            *("accept_choose", "accept_walk"),
        },
        "keep_kv": {"accept_keep_kv"},
    }
    for kind, expected in names.items():
        put_tree(setup, random_tree(2, 100), top_k=8, kept=0)
        assert draft_case.stamped_jobs(setup, table, kind, slot_bytes) == expected, kind


def test_a_step_that_does_not_fit_is_refused(draft_setups: DraftSetups) -> None:
    setup = draft_setups(1, 4)
    for wrong in ({"position": CAPACITY - TOKENS + 1}, {"top_k": 9}, {"parents": [0] + [15] * 15}):
        with pytest.raises(ValueError, match=r".+"):
            setup.device.set_step(wrong)
    with pytest.raises(ValueError, match="out of range"):
        setup.device.set_step({"tokens": [setup.target.config.vocab_size] + [0] * 15})
