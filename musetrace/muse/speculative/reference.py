"""Whole decode steps in plain torch: draft, tree, verify, accept. What a device's steps are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.draft.reference import add_context, features_of, guess
from musetrace.muse.draft.weights import DraftWeights
from musetrace.muse.reference import VerifyResult, verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.speculative.accept import Accepted, accept
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import NODES, TOP_K, Ids, TokenTree, best_first, candidates_of
from musetrace.muse.weights import ModelWeights


@dataclass
class ReferenceDecoder:
    """A target, its draft and one sequence of tokens.

    Attributes:
        prompt: int64 token ids, at least one; run through the target when the decoder is made.
        capacity: positions of the caches; a step needs 16 of them free.
        top_k: candidates a depth of the tree; 1 makes a chain.
        sampling: None for greedy tokens.
        position: tokens in the target's cache.
        root: the token behind them.
    """

    model: ModelWeights
    draft: DraftWeights
    prompt: Ids
    capacity: int
    rounding: Rounding = Rounding.BF16
    tp: int = 1
    top_k: int = TOP_K
    sampling: Sampling | None = None
    position: int = field(init=False)
    root: int = field(init=False)

    def __post_init__(self) -> None:
        """Prefill."""
        self._cache = KvCache.empty(self.model.config, self.capacity)
        self._draft_cache = KvCache.empty(self.draft.config, self.capacity)
        result = self._verify(torch.from_numpy(self.prompt), 0)
        self.position = len(self.prompt)
        self._features = self._features_of(result)
        self._features_start = 0
        after = np.array([self.position])
        self.root = int(choose(result.logits[-1:].numpy(), after, self.sampling)[0])

    def tree(self) -> TokenTree:
        """The draft's tree behind the root; adds the context of the last step first."""
        start, rounding = self._features_start, self.rounding
        add_context(self.draft, self._features, start, self._draft_cache, rounding, self.tp)
        result = guess(
            self.draft,
            self.model.config,
            self.model.head,
            self.root,
            self.position,
            self._draft_cache,
            rounding,
            self.tp,
        )
        return best_first(self.root, *candidates_of(result.logits.numpy(), self.top_k))

    def step(self, tree: TokenTree | None = None) -> Accepted:
        """One step; on the draft's tree unless another one with the root is given.

        Raises:
            UsageError: the cache has no room for 16 more tokens.
        """
        if self.position + NODES > self.capacity:
            raise UsageError(f"a step behind {self.position} tokens does not fit a cache of {self.capacity}")
        drafted = self.tree()
        tree = drafted if tree is None else tree
        result = self._verify(torch.from_numpy(tree.tokens), self.position, tree)
        positions = self.position + tree.depths + 1
        accepted = accept(tree, choose(result.logits.numpy(), positions, self.sampling))
        path = torch.from_numpy(accepted.path)
        self._cache.keep(self.position, path)
        self._features, self._features_start = self._features_of(result)[path], self.position
        self.position += len(path)
        self.root = int(accepted.tokens[-1])
        return accepted

    def generate(self, count: int) -> list[int]:
        """The next ``count`` tokens, of as many steps as they take."""
        tokens = [self.root]
        while len(tokens) < count:
            tokens += self.step().tokens.tolist()
        return tokens[:count]

    def _features_of(self, result: VerifyResult) -> Tensor:
        return features_of(self.draft.config, result.hidden_states, self.rounding)

    def _verify(self, ids: Tensor, start: int, tree: TokenTree | None = None) -> VerifyResult:
        return verify(self.model, ids, start, self._cache, self.rounding, self.tp, tree)


def plain_tokens(
    model: ModelWeights,
    prompt: Ids,
    count: int,
    capacity: int,
    rounding: Rounding = Rounding.BF16,
    tp: int = 1,
    sampling: Sampling | None = None,
) -> list[int]:
    """``count`` tokens behind the prompt, one a pass, without a draft; arguments as in the decoder."""
    cache = KvCache.empty(model.config, capacity)
    tokens: list[int] = []
    ids, start = torch.from_numpy(prompt), 0
    while len(tokens) < count:
        logits = verify(model, ids, start, cache, rounding, tp).logits[-1:].numpy()
        start += len(ids)
        tokens.append(int(choose(logits, np.array([start]), sampling)[0]))
        ids = torch.tensor(tokens[-1:])
    return tokens
