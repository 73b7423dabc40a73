"""How many experts a pass needs when each token draws its own at random: what a synthetic router does.

The pool of a slice (``slice_weights.DEFAULT_POOL``) is drawn from so. On an H200, over 62 layers with a pool
of 53, 44 to 53 experts were in use, 48.8 in the mean; the draws below give 49.1, and 44 to 53 in 99 of 100
launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

# Tokens of an expert in one work item of the kernel; its weights are streamed once for each item.
ITEM_TOKENS = 8
# Of the launches, outside of the range on either side.
_TAIL = 0.005


@dataclass(frozen=True)
class Draws:
    """``tokens`` tokens that each take ``top_k`` different ones of ``pool`` experts, all equally likely."""

    pool: int
    tokens: int
    top_k: int

    @cached_property
    def chances(self) -> list[float]:
        """The chance of each number of distinct experts, float64[pool + 1].

        Token after token: with d experts in use, n of the k new draws fall outside of them with the
        hypergeometric chance C(d, k - n) C(pool - d, n) / C(pool, k).
        """
        ways = comb(self.pool, self.top_k)
        chances = [1.0] + [0.0] * self.pool
        for _ in range(self.tokens):
            after = [0.0] * (self.pool + 1)
            for used, chance in enumerate(chances):
                for new in range(min(self.top_k, self.pool - used) + 1):
                    of_new = comb(used, self.top_k - new) * comb(self.pool - used, new)
                    after[used + new] += chance * of_new / ways
            chances = after
        return chances

    @property
    def distinct(self) -> float:
        """Experts in use, in the mean."""
        return sum(number * chance for number, chance in enumerate(self.chances))

    @property
    def items(self) -> float:
        """Work items in the mean: an expert with more than :data:`ITEM_TOKENS` tokens is two or more."""
        share = self.top_k / self.pool
        more = sum(
            (-(-n // ITEM_TOKENS) - 1) * comb(self.tokens, n) * share**n * (1 - share) ** (self.tokens - n)
            for n in range(ITEM_TOKENS + 1, self.tokens + 1)
        )
        return self.distinct + self.pool * more

    @property
    def distinct_range(self) -> tuple[int, int]:
        """Work items in at least 99 % of launches: the experts in use, and one more above.

        That an expert has a second item is rare (0.9 % of launches with a pool of 53), so one is room enough.
        """
        low, below = 0, 0.0
        while below + self.chances[low] <= _TAIL:
            below += self.chances[low]
            low += 1
        high, above = self.pool, 0.0
        while above + self.chances[high] <= _TAIL:
            above += self.chances[high]
            high -= 1
        return low, high + 1
