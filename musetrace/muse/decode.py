"""Decode steps of the built-in model: guess 15 tokens, verify 16 in one pass, keep those that match.

There is no draft model here yet. The guesses are what the pass before predicted for these positions (Jacobi
decoding), so acceptance is real, and on synthetic weights it is near one token a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from musetrace.errors import DeviceError, UsageError
from musetrace.muse.cpu_device import TOKENS, clock_ns
from musetrace.muse.engine import Engine

if TYPE_CHECKING:
    from musetrace.record.recorder import Recorder

# Tokens of the synthetic prompt; longer than mini's sliding window, so that the window matters.
PROMPT_TOKENS = 96


@dataclass(frozen=True)
class DecodeOptions:
    """What to run: ``device`` auto, cpu or cuda, ``model`` a preset, ``tp`` ranks of ``blocks`` blocks."""

    device: str = "auto"
    model: str = "mini"
    steps: int = 20
    tp: int = 2
    blocks: int = 2
    seed: int = 0


class Decoder:
    """Greedy speculative decoding behind a prompt.

    Args:
        engine: what runs the passes.
        prompt: int64 token ids; a multiple of 16 of them, at least 16.
    """

    def __init__(self, engine: Engine, prompt: npt.NDArray[np.int64]) -> None:
        if prompt.size == 0 or prompt.size % TOKENS:
            raise UsageError(f"a prompt must have a multiple of {TOKENS} tokens, not {prompt.size}")
        self._engine = engine
        self._prompt = prompt
        self._prefill()

    def _prefill(self) -> None:
        """The prompt into the cache, 16 tokens a pass; its last prediction is the first token to verify."""
        for start in range(0, self._prompt.size, TOKENS):
            logits = self._engine.verify(self._prompt[start : start + TOKENS], start)
        predicted = logits.argmax(axis=1)
        self._position = self._prompt.size
        self._next = np.full(TOKENS, predicted[-1], dtype=np.int64)

    def step(self, step: int) -> list[int]:
        """One verify pass. Returns the 1 to 16 tokens that it decoded.

        When the cache is full, decoding begins again behind the prompt.
        """
        if self._position + TOKENS > self._engine.device.capacity:
            self._prefill()
        predicted = self._engine.verify(self._next, self._position, step).argmax(axis=1)
        kept = accepted_tokens(self._next, predicted)
        guesses = np.append(predicted[kept:], np.repeat(predicted[-1], kept - 1))
        self._position += kept
        self._next = np.append(predicted[kept - 1], guesses[: TOKENS - 1])
        return [int(token) for token in predicted[:kept]]


def accepted_tokens(verified: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]) -> int:
    """How many of the predicted tokens count: the first, and one more for each guess in a row that was right.

    ``verified`` [n] went in, ``predicted`` [n] came out; guess ``verified[i + 1]`` is right when it is
    ``predicted[i]``.
    """
    right = verified[1:] == predicted[:-1]
    return 1 + (len(right) if right.all() else int(right.argmin()))


def record_decode(recorder: Recorder, options: DecodeOptions, progress: Callable[[int, int], None]) -> None:
    """Record decode steps of the built-in model.

    Args:
        progress: called with (steps done, steps in all).

    Raises:
        UsageError: the options do not fit each other.
        DeviceError: the device cannot run it.
    """
    if options.device == "cuda":
        raise DeviceError(
            "there is no CUDA megakernel in this build; use --device cpu, or record your own program with "
            "'musetrace record -o RUN -- COMMAND'"
        )
    if options.steps < 1:
        raise UsageError(f"--steps must be at least 1, not {options.steps}")
    engine = Engine(options.model, tp=options.tp, blocks=options.blocks, seed=options.seed)
    decoder = Decoder(engine, synthetic_prompt(engine.config.vocab_size, options.seed))
    engine.attach(recorder)
    progress(0, options.steps)
    for step in range(options.steps):
        begin_ns = clock_ns()
        tokens = decoder.step(step)
        engine.finish_step(step, begin_ns, clock_ns(), len(tokens))
        progress(step + 1, options.steps)


def synthetic_prompt(vocab_size: int, seed: int) -> npt.NDArray[np.int64]:
    """Seeded random token ids, int64[PROMPT_TOKENS]."""
    return np.random.default_rng(seed).integers(vocab_size, size=PROMPT_TOKENS, dtype=np.int64)
