"""Tokens behind a prompt, by whole decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.device import TOKENS, Device
from musetrace.muse.speculative.sampling import Sampling
from musetrace.muse.speculative.tree import Ids
from musetrace.muse.whole_steps import WholeSteps


class Decodes(Protocol):
    """What a generation needs of an engine."""

    config: MuseConfig

    @property
    def device(self) -> Device:
        """Where it runs."""

    def whole_steps(self) -> WholeSteps:
        """What prefills and runs the steps."""

    def decode_step(self, step: int | None = None) -> list[int]:
        """One whole step."""


class Generation:
    """One prompt and the tokens behind it. The prompt goes through the model when this is made.

    Args:
        engine: what runs the steps; one generation at a time.
        prompt: token ids, at least one.
        max_new_tokens: how many tokens :meth:`tokens` makes; :meth:`step` goes on without an end.
        sampling: None for greedy tokens.

    Raises:
        UsageError: an empty prompt, an id outside the vocabulary, or more tokens than the cache holds.
        DeviceError: the device runs verify passes alone.
    """

    def __init__(
        self,
        engine: Decodes,
        prompt: Sequence[int],
        max_new_tokens: int = 1,
        sampling: Sampling | None = None,
    ) -> None:
        self._engine, self._most = engine, max_new_tokens
        self._prompt = checked_prompt(engine.config, prompt)
        _check_room(len(self._prompt), max_new_tokens, engine.device.capacity)
        self._sampling = sampling
        self._begin()

    def _begin(self) -> None:
        self.first_token = self._engine.whole_steps().prefill(self._prompt, self._sampling)
        self._position = len(self._prompt)

    def step(self, step: int | None = None) -> list[int]:
        """One whole step: the 1 to 16 tokens behind those so far, and behind :attr:`first_token`.

        When the cache is full, decoding begins again behind the prompt.

        Args:
            step: the number under which a recorder files it.
        """
        if self._position + TOKENS > self._engine.device.capacity:
            self._begin()
        tokens = self._engine.decode_step(step)
        self._position += len(tokens)
        return tokens

    def tokens(self) -> list[int]:
        """``max_new_tokens`` tokens."""
        made = [self.first_token]
        while len(made) < self._most:
            made += self.step()
        return made[: self._most]


def checked_prompt(config: MuseConfig, prompt: Sequence[int]) -> Ids:
    """The prompt as int64. Raises UsageError when a model cannot take it."""
    try:
        ids = np.asarray(prompt, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise UsageError("a prompt is a list of token ids, whole numbers") from None
    if ids.ndim != 1:
        raise UsageError("a prompt is a list of token ids, whole numbers")
    if not ids.size:
        raise UsageError("the prompt is empty; give at least one token id")
    outside = ids[(ids < 0) | (ids >= config.vocab_size)]
    if outside.size:
        raise UsageError(
            f"token id {outside[0]} is outside the vocabulary of model {config.name}, 0 to "
            f"{config.vocab_size - 1}"
        )
    return ids


def _check_room(prompt: int, new_tokens: int, capacity: int) -> None:
    if new_tokens < 1:
        raise UsageError(f"at least one new token must be asked for, not {new_tokens}")
    # The last step begins behind all tokens but the last two.
    needed = max(prompt + new_tokens - 2, prompt) + TOKENS
    if needed > capacity:
        raise UsageError(
            f"a prompt of {prompt} tokens and {new_tokens} new ones need a cache of {needed} positions, and "
            f"it has {capacity}; ask for fewer, or open the model with a larger capacity"
        )
