"""What a verify pass proves: the longest path of guesses that the target chose too, and one token more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from musetrace.muse.speculative.tree import Ids, TokenTree


@dataclass(frozen=True)
class Accepted:
    """The outcome of a step.

    Attributes:
        path: int64[n], the accepted nodes from the root on, ascending. Cache row ``P + path[i]`` becomes row
            ``P + i``, and n more positions are in the target's cache.
        tokens: int64[n], the tokens behind each of them; the last is the bonus token, the next root.
    """

    path: Ids
    tokens: Ids


def accept(tree: TokenTree, choices: Ids) -> Accepted:
    """Walk from the root to the child whose token is what the target chose, as long as there is one.

    Args:
        choices: int64[n], what the target chose behind each node (``sampling.choose``).
    """
    path = [0]
    for node in range(1, len(tree.tokens)):
        last = path[-1]
        if tree.parents[node] == last and tree.tokens[node] == choices[last]:
            path.append(node)
    nodes = np.array(path, dtype=np.int64)
    return Accepted(nodes, choices[nodes])
