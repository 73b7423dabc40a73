"""The layer kernel on a real GPU with the rows of a token tree, against the torch reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from musetrace.muse.speculative.tree import TokenTree
from tests.gpu import layer_case
from tests.gpu.layer_case import KINDS, TOKENS, Setups, check_launch, random_step

pytestmark = pytest.mark.gpu

POSITION = 300


@pytest.mark.parametrize("position", [0, 16, 37, 65, POSITION])
@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("grid", [(1, 132, "sumsq"), (2, 8, "gather"), (4, 33, "sumsq")])
def test_rows_of_a_tree(layer_setups: Setups, grid: tuple[int, int, str], layer: int, position: int) -> None:
    """A row stands at its depth and sees its ancestors; row 15 of the second tree is a child of the root."""
    setup = layer_setups(*grid)
    rng = np.random.default_rng(position)
    parents = [-1, *(int(rng.integers(node)) for node in range(1, TOKENS))]
    for tree in (parents, [-1, 0, 1, 1, 2, 2, 4, 6, 7, 3, 9, 5, 8, 12, 13, 0]):
        check_launch(setup, random_step(setup.weights, layer, position, 210, token_tree(tree)), "register")


def test_a_tree_that_is_a_chain_is_a_chain(layer_setups: Setups) -> None:
    setup = layer_setups(2, 66, "sumsq")
    for layer in KINDS:
        chain = random_step(setup.weights, layer, POSITION, seed=220)
        check_launch(setup, chain)
        expected = layer_case.output_digests(setup, layer)
        check_launch(setup, replace(chain, tree=token_tree(list(range(-1, TOKENS - 1)))))
        assert layer_case.output_digests(setup, layer) == expected


def token_tree(parents: list[int]) -> TokenTree:
    return TokenTree(np.arange(TOKENS), np.array(parents))
