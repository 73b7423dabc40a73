"""Tokens behind several prompts at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.batch.ordinary_chain import OrdinaryChain, PassRows
from musetrace.muse.device import TOKENS
from musetrace.muse.generation import checked_prompt
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.speculative.tree import Ids


class BatchGeneration:
    """Prompts and the tokens behind them. The prompts go through the model when this is made.

    Args:
        chain: for as many sequences; one generation at a time.
        prompts: token ids, at least one in each.
        max_new_tokens: how many :meth:`tokens` makes of each; :meth:`step` goes on without an end.
        samplings: of each sequence; None for greedy tokens.

    Raises:
        UsageError: a prompt is empty or has an id outside the vocabulary, or the caches are too small.
        DeviceError: the device failed.
    """

    def __init__(
        self,
        chain: OrdinaryChain,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = 1,
        samplings: Sequence[Sampling | None] | None = None,
    ) -> None:
        if len(prompts) != chain.sequences:
            raise UsageError(f"the chain is for {chain.sequences} sequences, and there are {len(prompts)}")
        self._chain, self._most = chain, max_new_tokens
        self._samplings = samplings or [None] * len(prompts)
        self._prompts = [
            _checked(chain, number, prompt, max_new_tokens) for number, prompt in enumerate(prompts)
        ]
        self._begin()

    def _begin(self) -> None:
        """All prompts, one behind the other, 16 tokens a pass."""
        lengths = [len(prompt) for prompt in self._prompts]
        rows = PassRows(
            np.concatenate(self._prompts),
            np.repeat(np.arange(len(lengths)), lengths),
            np.concatenate([np.arange(length) for length in lengths]),
        )
        self._next_positions = np.array(lengths, dtype=np.int64)
        ends = np.cumsum(lengths) - 1
        last: dict[int, npt.NDArray[np.float32]] = {}
        for start in range(0, len(rows.ids), TOKENS):
            part = slice(start, start + TOKENS)
            logits = self._chain.run(PassRows(rows.ids[part], rows.sequences[part], rows.positions[part]))
            last |= {end: logits[end - start] for end in ends if start <= end < start + TOKENS}
        self.logits = np.stack([last[end] for end in ends])
        self._tokens = self._chosen()
        self.first_tokens = self._tokens.tolist()

    def _chosen(self) -> Ids:
        """The token behind each sequence, by its logits and where it will stand."""
        return np.array(
            [
                choose(logits[None], position[None], sampling)[0]
                for logits, position, sampling in zip(
                    self.logits, self._next_positions, self._samplings, strict=True
                )
            ]
        )

    logits: npt.NDArray[np.float32]
    """float32[sequences, vocab] of the last step."""

    def step(self) -> list[int]:
        """One pass: the token of each sequence behind those so far.

        When a cache is full, decoding begins again behind the prompts.
        """
        if self._next_positions.max() >= self._chain.capacity:
            self._begin()
        sequences = np.arange(len(self._prompts))
        self.logits = self._chain.run(PassRows(self._tokens, sequences, self._next_positions))
        self._next_positions = self._next_positions + 1
        self._tokens = self._chosen()
        return [int(token) for token in self._tokens]

    def tokens(self) -> list[list[int]]:
        """``max_new_tokens`` tokens of each sequence."""
        made = [self.first_tokens]
        while len(made) < self._most:
            made.append(self.step())
        return [list(of_sequence) for of_sequence in zip(*made, strict=True)]


def is_batch(prompt: object) -> bool:
    """Whether it has prompts in it, and not tokens."""
    return _is_list(prompt) and any(map(_is_list, prompt))  # type: ignore[call-overload]


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str)


def _checked(chain: OrdinaryChain, number: int, prompt: Sequence[int], new_tokens: int) -> Ids:
    """Prompt ``number`` as int64. Raises UsageError when the chain cannot take it."""
    try:
        ids = checked_prompt(chain.config, prompt)
    except UsageError as error:
        raise UsageError(f"prompt {number} of the batch: {error}") from None
    if new_tokens < 1:
        raise UsageError(f"at least one new token must be asked for, not {new_tokens}")
    # The last token is not run.
    needed = len(ids) + new_tokens - 1
    if needed > chain.capacity:
        raise UsageError(
            f"prompt {number} of the batch: {len(ids)} tokens and {new_tokens} new ones need a cache of "
            f"{needed} positions, and it has {chain.capacity}; ask for fewer, or for a larger capacity"
        )
    return ids
