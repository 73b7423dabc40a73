"""The tree of tokens that a verify pass runs through the target.

Node 0 is the *root*: the last known token, at position P, which has not been through the target. A node of
depth d guesses the token of position P + d behind the tokens of its ancestors. Parents stand before their
children. In a verify pass node i is row i: its rotary position is P + depth, its k and v lie in cache row
P + i, and it sees the cache rows below P and those of its ancestors and itself, all within the window of its
layer (by positions, not by rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError

Ids = npt.NDArray[np.int64]

# Rows of a verify pass: the root and 15 guesses.
NODES = 16
# The best tokens of each row of a draft pass are the candidates of its depth.
TOP_K = 8


@dataclass(frozen=True)
class TokenTree:
    """A tree of n tokens.

    Attributes:
        tokens: int64[n].
        parents: int64[n], node numbers; -1 for the root, which is node 0 and the only one.

    Raises:
        UsageError: a parent does not stand before its child, or two children of one have the same token.
    """

    tokens: Ids
    parents: Ids

    def __post_init__(self) -> None:
        """Refuse what is no tree of guesses."""
        numbers = np.arange(len(self.tokens))
        if self.tokens.shape != self.parents.shape or self.tokens.ndim != 1 or not len(numbers):
            raise UsageError("a token tree needs as many parents as tokens, and at least the root")
        if self.parents[0] != -1 or (self.parents[1:] < 0).any() or (self.parents >= numbers).any():
            raise UsageError("a token tree has one root, node 0, and every parent stands before its child")
        if len(set(zip(self.parents.tolist(), self.tokens.tolist(), strict=True))) < len(numbers):
            raise UsageError("two children of one node of a token tree have the same token")

    @cached_property
    def depths(self) -> Ids:
        """int64[n], 0 for the root."""
        depths = np.zeros_like(self.parents)
        for node in range(1, len(depths)):
            depths[node] = depths[self.parents[node]] + 1
        return depths

    @cached_property
    def ancestors(self) -> npt.NDArray[np.bool_]:
        """bool[n, n]: whether node ``row`` sees node ``column``: an ancestor, or itself."""
        seen = np.eye(len(self.parents), dtype=np.bool_)
        for node in range(1, len(seen)):
            seen[node] |= seen[self.parents[node]]
        return seen


def chain(tokens: Ids) -> TokenTree:
    """Tokens int64[n] one behind the other; the first is the root."""
    return TokenTree(tokens, np.arange(len(tokens), dtype=np.int64) - 1)


def best_first(root: int, candidates: Ids, scores: npt.NDArray[np.float32]) -> TokenTree:
    """The tree of the most probable prefixes, each row's tokens taken as independent of the others.

    The joint score of a node is its parent's plus its own, in fp32. The root opens its first child. The open
    candidate with the highest joint score is taken as the next node, until there are 16; each one taken opens
    its first child and, behind that, its parent's next child. Of equal scores the one that was opened first
    is taken. Since no score is above 0, these are the 15 most probable prefixes (DDTree, arXiv 2604.12989).
    With one candidate a depth the tree is a chain.

    Args:
        root: the known token.
        candidates: int64[15, k], different tokens for each depth from 1 on, by descending score.
        scores: float32[15, k], their log-probabilities.
    """
    depths, most = candidates.shape
    tokens, parents, joints, node_depths = [root], [-1], [np.float32(0)], [0]
    open_nodes = [(scores[0, 0], 0, 0)]  # joint score, parent, place among the candidates of its depth

    def offer(parent: int, place: int) -> None:
        depth = node_depths[parent]
        if depth < depths and place < most:
            open_nodes.append((np.float32(joints[parent] + scores[depth, place]), parent, place))

    while len(tokens) < NODES:
        best = max(range(len(open_nodes)), key=lambda at: (open_nodes[at][0], -at))
        joint, parent, place = open_nodes.pop(best)
        tokens.append(int(candidates[node_depths[parent], place]))
        parents.append(parent)
        joints.append(joint)
        node_depths.append(node_depths[parent] + 1)
        offer(len(tokens) - 1, 0)
        offer(parent, place + 1)
    return TokenTree(np.array(tokens, dtype=np.int64), np.array(parents, dtype=np.int64))


def candidates_of(logits: npt.NDArray[np.float32], top_k: int) -> tuple[Ids, npt.NDArray[np.float32]]:
    """The best tokens of each row of draft logits, ties to the lower token, and their log-probabilities.

    Args:
        logits: float32[rows, vocab].
        top_k: how many of each; 1 makes a chain.

    Returns:
        Tokens int64[rows, top_k] by descending logit, and float32 of the same shape: logit - logsumexp.
    """
    order = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    top = logits.max(axis=1, keepdims=True).astype(np.float64)
    normaliser = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    chosen = np.take_along_axis(logits, order, axis=1)
    return order.astype(np.int64), (chosen - normaliser).astype(np.float32)
