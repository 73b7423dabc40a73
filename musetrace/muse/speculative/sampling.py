"""Which token follows: the most probable one, or one that is drawn.

A draw is the Gumbel-max rule: the token with the highest ``logit / temperature - log(-log(u))``, where u is
uniform and depends on (seed, position, token) alone. That token has the softmax's distribution. So the token
of a position does not depend on the tree that it is found by: speculative decoding samples the very tokens
that plain decoding samples with this seed, each from the target's own distribution. Given a tree that does
not depend on the draws, as here, no other rule accepts more: a child is accepted with the target's
probability of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.speculative.tree import Ids

Words = npt.NDArray[np.uint64]

# The step and the two factors of SplitMix64 (Steele, Lea and Flood 2014).
_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD = 1 << 64


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: above 0; logits are divided by it.
        seed: 0 to 2**64 - 1.

    Raises:
        UsageError: one of them is something else.
    """

    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn with."""
        if not 0 < self.temperature < math.inf:
            raise UsageError(
                f"temperature must be above 0, not {self.temperature}; leave sampling out for greedy tokens"
            )
        if not 0 <= self.seed < _WORD:
            raise UsageError(f"the seed of sampling must be 0 to 2**64 - 1, not {self.seed}")


def choose(logits: npt.NDArray[np.float32], positions: Ids, sampling: Sampling | None) -> Ids:
    """The token of each row, int64[rows]; ties go to the lower token.

    Args:
        logits: float32[rows, vocab].
        positions: int64[rows], of the tokens that are chosen.
        sampling: None for the most probable token.
    """
    scores = logits if sampling is None else perturbed(logits, positions, sampling)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def perturbed(
    logits: npt.NDArray[np.float32], positions: Ids, sampling: Sampling, first_token: int = 0
) -> npt.NDArray[np.float32]:
    """What is compared, float32 like ``logits``, whose first column is ``first_token``; summed in fp64."""
    tokens = np.arange(first_token, first_token + logits.shape[1], dtype=np.uint64)
    noise = gumbel(uniform(sampling.seed, positions.astype(np.uint64)[:, None], tokens))
    return (logits.astype(np.float64) / sampling.temperature + noise).astype(np.float32)


def gumbel(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel numbers of uniform ones between 0 and 1."""
    return np.asarray(-np.log(-np.log(uniform)))


def uniform(seed: int, positions: Words, tokens: Words) -> npt.NDArray[np.float64]:
    """Uniform between 0 and 1, both excluded, in steps of 2**-53; the shapes are broadcast."""
    with np.errstate(over="ignore"):
        of_position = _mixed(np.uint64(seed) + np.uint64(_STEP) * (positions + np.uint64(1)))
        word = _mixed(of_position + np.uint64(_STEP) * (tokens + np.uint64(1)))
    return ((word >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(word: Words) -> Words:
    word = (word ^ word >> np.uint64(30)) * np.uint64(_FACTORS[0])
    word = (word ^ word >> np.uint64(27)) * np.uint64(_FACTORS[1])
    return np.asarray(word ^ word >> np.uint64(31))
