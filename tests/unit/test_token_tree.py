"""Trees, accepting and sampling, each against a slow oracle."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.errors import UsageError
from musetrace.muse.speculative.accept import accept
from musetrace.muse.speculative.sampling import Sampling, choose, perturbed, uniform
from musetrace.muse.speculative.tree import NODES, TokenTree, best_first, candidates_of, chain


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@st.composite
def trees(draw: st.DrawFn, vocabulary: int = 3) -> TokenTree:
    """Few tokens, so that guesses are often right."""
    tokens, parents = [draw(st.integers(0, vocabulary - 1))], [-1]
    taken: set[tuple[int, int]] = set()
    for _ in range(draw(st.integers(0, NODES - 1))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, vocabulary - 1))
        if (parent, token) not in taken:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)
    return TokenTree(ids(*tokens), ids(*parents))


def path_to(tree: TokenTree, node: int) -> list[int]:
    path = [node]
    while tree.parents[path[0]] >= 0:
        path.insert(0, int(tree.parents[path[0]]))
    return path


@given(trees(), st.lists(st.integers(0, 2), min_size=NODES, max_size=NODES))
def test_accepting_finds_the_longest_path_that_matches(tree: TokenTree, chosen: list[int]) -> None:
    choices = ids(*chosen[: len(tree.tokens)])
    paths = [path_to(tree, node) for node in range(len(tree.tokens))]
    right = [path for path in paths if all(tree.tokens[b] == choices[a] for a, b in itertools.pairwise(path))]
    accepted = accept(tree, choices)
    assert accepted.path.tolist() == max(right, key=len)
    assert accepted.tokens.tolist() == [choices[node] for node in accepted.path]


@given(trees())
def test_depths_and_ancestors_are_those_of_a_walk_up(tree: TokenTree) -> None:
    for node in range(len(tree.tokens)):
        path = path_to(tree, node)
        assert tree.depths[node] == len(path) - 1
        assert np.flatnonzero(tree.ancestors[node]).tolist() == path


def test_a_chain_sees_what_is_before_it() -> None:
    tree = chain(ids(5, 5, 7, 5))
    np.testing.assert_array_equal(tree.ancestors, np.tril(np.ones((4, 4), dtype=bool)))
    assert accept(tree, ids(5, 7, 1, 0)).tokens.tolist() == [5, 7, 1]


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ((1, 2), (-1,), "as many parents as tokens"),
        ((), (), "at least the root"),
        ((1, 2), (-1, 1), "every parent stands before its child"),
        ((1, 2), (-1, -1), "one root"),
        ((1, 2, 2), (-1, 0, 0), "have the same token"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: tuple[int, ...], parents: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenTree(ids(*tokens), ids(*parents))


def all_prefixes(probabilities: np.ndarray, most: int) -> list[tuple[float, tuple[int, ...]]]:
    """Every prefix of up to ``most`` tokens, given as places among the candidates, with its probability."""
    found = []
    for length in range(1, most + 1):
        for places in itertools.product(range(probabilities.shape[1]), repeat=length):
            found.append((math.prod(probabilities[d, place] for d, place in enumerate(places)), places))
    return found


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_tree_holds_the_most_probable_prefixes(seed: int, top_k: int) -> None:
    rng = np.random.default_rng(seed)
    depths = 5 if top_k > 1 else 15
    logits = rng.normal(size=(15, 12), scale=2).astype(np.float32)
    # Improbable from depth 6 on, so that all prefixes that may be taken can be listed.
    candidates, scores = candidates_of(logits, top_k)
    if top_k > 1:
        scores[depths:] -= 1000
    tree = best_first(3, candidates, scores)
    places = [
        tuple(
            int(np.flatnonzero(candidates[depth] == tree.tokens[node])[0]) for depth, node in enumerate(path)
        )
        for path in (path_to(tree, node)[1:] for node in range(1, NODES))
    ]
    best = sorted(all_prefixes(np.exp(scores[:depths].astype(np.float64)), depths), reverse=True)[: NODES - 1]
    assert tree.tokens[0] == 3
    assert set(places) == {prefix for _, prefix in best}


def test_one_candidate_makes_a_chain_of_the_best_tokens() -> None:
    logits = np.random.default_rng(1).normal(size=(15, 30)).astype(np.float32)
    tree = best_first(9, *candidates_of(logits, 1))
    np.testing.assert_array_equal(tree.tokens, [9, *logits.argmax(axis=1)])
    np.testing.assert_array_equal(tree.parents, np.arange(NODES) - 1)


def test_candidates_are_the_best_tokens_with_their_log_probabilities() -> None:
    logits = np.array([[1.0, 3.0, 3.0, -2.0]], dtype=np.float32)
    candidates, scores = candidates_of(logits, 3)
    whole = sum(math.exp(value) for value in (1, 3, 3, -2))
    assert candidates.tolist() == [[1, 2, 0]]
    np.testing.assert_allclose(
        np.exp(scores[0]), [math.exp(3) / whole, math.exp(3) / whole, math.exp(1) / whole], rtol=1e-6
    )


def chi_square(counts: Counter[object], expected: dict[object, float]) -> tuple[float, float]:
    """The statistic, and what it exceeds by chance once in about a million times (Wilson and Hilferty)."""
    assert set(counts) <= set(expected)
    statistic = sum((counts[key] - want) ** 2 / want for key, want in expected.items())
    free = len(expected) - 1
    spread = 2 / (9 * free)
    return statistic, free * (1 - spread + 4.75 * math.sqrt(spread)) ** 3


def softmax(row: np.ndarray, temperature: float) -> np.ndarray:
    weights = np.exp(row.astype(np.float64) / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_steps_have_the_targets_distribution(temperature: float) -> None:
    """Three tokens of a target whose next token depends on the last; a tree that guesses most of them."""
    vocabulary, seeds = 4, 6000
    target = np.random.default_rng(2).normal(size=(vocabulary, vocabulary)).astype(np.float32)
    tree = TokenTree(ids(0, 1, 2, 3, 0, 1, 2), ids(-1, 0, 0, 1, 1, 2, 3))
    counts: Counter[object] = Counter()
    accepted = 0
    for seed in range(seeds):
        sampling = Sampling(temperature, seed)
        tokens = [0]
        while len(tokens) < 4:
            # The tree of the first step; behind it a tree of the root alone.
            of_step = tree if len(tokens) == 1 else chain(ids(tokens[-1]))
            positions = len(tokens) + of_step.depths
            step = accept(of_step, choose(target[of_step.tokens], positions, sampling))
            accepted += len(step.path) - 1
            tokens += step.tokens.tolist()
        counts[tuple(tokens[1:4])] += 1
    rows = [softmax(row, temperature) for row in target]
    expected: dict[object, float] = {
        (a, b, c): seeds * rows[0][a] * rows[a][b] * rows[b][c]
        for a, b, c in itertools.product(range(vocabulary), repeat=3)
    }
    statistic, limit = chi_square(counts, expected)
    assert statistic < limit
    assert accepted > seeds / 3


def test_a_wrong_rule_fails_the_distribution_test() -> None:
    """Guesses taken with the draft's probability instead: the test above can fail."""
    expected: dict[object, float] = {0: 3000 * 0.5, 1: 3000 * 0.3, 2: 3000 * 0.2}
    draws = np.random.default_rng(1).choice(3, size=3000, p=[0.4, 0.36, 0.24])
    statistic, limit = chi_square(Counter(draws.tolist()), expected)
    assert statistic > limit


def test_a_draw_depends_on_seed_position_and_token_alone() -> None:
    logits = np.random.default_rng(5).normal(size=(3, 50)).astype(np.float32)
    sampling = Sampling(0.8, 11)
    whole = perturbed(logits, ids(4, 9, 4), sampling)
    np.testing.assert_array_equal(whole[0] - whole[2] > 0, logits[0] - logits[2] > 0)
    np.testing.assert_array_equal(perturbed(logits[1:, 20:], ids(9, 4), sampling, 20), whole[1:, 20:])
    assert not np.array_equal(whole, perturbed(logits, ids(4, 9, 4), Sampling(0.8, 12)))
    assert not np.array_equal(whole[0], perturbed(logits[:1], ids(5), sampling)[0])


def test_uniform_numbers_are_those_of_split_mix() -> None:
    """SplitMix64 in plain Python integers, seeded with what SplitMix64 makes of the position."""

    def split_mix(state: int) -> int:
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    step = 0x9E3779B97F4A7C15
    # The first number of the generator seeded with 0 is known (Vigna, splitmix64.c).
    assert split_mix(step) == 0xE220A8397B1DCDAF
    for seed, position, token in ((0, 0, 0), (3, 1, 2), (2**64 - 1, 511, 1023)):
        state = split_mix((seed + step * (position + 1)) % 2**64)
        word = split_mix((state + step * (token + 1)) % 2**64)
        got = uniform(seed, np.array([position], dtype=np.uint64), np.array([token], dtype=np.uint64))
        assert got[0] == ((word >> 11) + 0.5) / 2**53


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": math.nan}, {"seed": -1}, {"seed": 2**64}]
)
def test_what_cannot_be_drawn_with_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        Sampling(**options)  # type: ignore[arg-type]
