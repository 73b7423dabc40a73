"""Decode steps of the built-in model: guess 15 tokens, verify 16 in one pass, keep those that match.

A device with a draft runs whole steps (``whole_steps``). On another one the guesses are what the pass before
predicted for these positions (Jacobi decoding). Acceptance is real either way, and on synthetic weights it is
near one token a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError
from musetrace.muse.batch.record import record_batch
from musetrace.muse.config import DEFAULT_CONTEXT, MuseConfig, preset
from musetrace.muse.cpu_device import clock_ns
from musetrace.muse.decode_options import Decoded as Decoded
from musetrace.muse.decode_options import DecodeOptions as DecodeOptions
from musetrace.muse.device import TOKENS
from musetrace.muse.engine import Engine
from musetrace.muse.generation import Generation
from musetrace.muse.opening import decodes_text, default_capacity
from musetrace.muse.prompt import Prompt
from musetrace.muse.slice_steps import SliceSteps, SliceWholeSteps
from musetrace.muse.speculative.sampling import Sampling

if TYPE_CHECKING:
    from musetrace.record.recorder import Recorder


class Decoder:
    """Greedy decoding behind a prompt by verify passes alone.

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
        self.first_token = int(predicted[-1])

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


def record_decode(
    recorder: Recorder, options: DecodeOptions, progress: Callable[[int, int], None]
) -> Decoded:
    """Record decode steps of the built-in model.

    Args:
        progress: called with (steps done, steps in all).

    Returns:
        What they decoded.

    Raises:
        UsageError: the options do not fit each other.
        DeviceError: the device cannot run it.
    """
    if options.steps < 1:
        raise UsageError(f"--steps must be at least 1, not {options.steps}")
    if options.batch != 1:
        return record_batch(recorder, options, progress)
    config = preset(options.model)
    context = checked_context(config, options.context, options.weights)
    prompt = Prompt.of(config, options.weights, options.prompt, options.seed)
    sampling = None if options.temperature is None else Sampling(options.temperature, abs(options.seed))
    engine = Engine(
        config,
        device=options.device,
        tp=options.tp,
        blocks=options.blocks,
        seed=options.seed,
        capacity=default_capacity(config, context),
        layers=options.layers,
        stop4=options.stop4,
        launches=options.launches,
        guesses=options.guesses,
        checkpoint=options.weights,
    )
    if sampling is not None and engine.steps is None:
        raise UsageError("--temperature is for whole steps, and these are verify passes alone; leave it out")
    # Steps without text warm up as they are recorded. What is wrong with a prompt or a draft shows before
    # there is a run.
    decodes = context is None
    if not decodes:
        engine.attach(recorder, context)
    run_step, made = _steps_of(engine, context, prompt.ids, options.seed, sampling)
    if decodes:
        engine.attach(recorder)
    progress(0, options.steps)
    first = len(made)
    for step in range(options.steps):
        engine.wait_for_room()
        begin_ns = clock_ns()
        tokens = run_step(step)
        engine.finish_step(step, begin_ns, clock_ns(), len(tokens))
        made += tokens
        progress(step + 1, options.steps)
    if not decodes:
        return Decoded()
    return Decoded(len(made) - first, prompt.text, prompt.says(made))


def checked_context(config: MuseConfig, context: int | None, weights: str | None = None) -> int | None:
    """Positions in front of each step of a model that decodes no text; None for one with a prompt there.

    Raises:
        UsageError: a context in place of a prompt, or one that the model cannot have.
    """
    if decodes_text(config, weights):
        if context is not None:
            raise UsageError(f"--context is for a slice; model {config.name} decodes behind a prompt")
        return None
    most = config.max_position_embeddings - TOKENS
    chosen = min(DEFAULT_CONTEXT, most) if context is None else context
    if not 0 <= chosen <= most:
        raise UsageError(f"--context must be 0 to {most} for model {config.name}, not {chosen}")
    return chosen


def _steps_of(
    engine: Engine,
    context: int | None,
    prompt: npt.NDArray[np.int64],
    seed: int,
    sampling: Sampling | None,
) -> tuple[Callable[[int], list[int]], list[int]]:
    """What runs a step and gives the tokens that it decoded, and those that are known before the first."""
    if context is not None:
        made = SliceSteps if engine.steps is None else SliceWholeSteps
        steps = made(engine, context, seed)
        return (lambda step: [0] * steps.step(step)), []
    if engine.steps is not None:
        generation = Generation(engine, prompt.tolist(), sampling=sampling)
        return generation.step, [generation.first_token]
    # A pass takes 16 tokens.
    decoder = Decoder(engine, prompt[len(prompt) % TOKENS :])
    return decoder.step, [decoder.first_token]
