"""Recorded steps of a batch: their tokens and the host's times, for the ordinary chain has no stamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import musetrace
from musetrace.errors import UsageError
from musetrace.muse.batch.generation import BatchGeneration
from musetrace.muse.batch.opening import open_chain
from musetrace.muse.batch.ordinary_chain import MOST_SEQUENCES
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import clock_ns
from musetrace.muse.decode_options import Decoded, DecodeOptions
from musetrace.muse.opening import EngineOptions, chosen_device
from musetrace.muse.prompt import Prompt
from musetrace.muse.speculative.sampling import Sampling
from musetrace.step_output import output_of

if TYPE_CHECKING:
    from musetrace.record.recorder import Recorder

# What the megakernel alone knows.
_OF_THE_MEGAKERNEL = ("blocks", "layers", "context", "stop4", "launches", "guesses")


def record_batch(recorder: Recorder, options: DecodeOptions, progress: Callable[[int, int], None]) -> Decoded:
    """Record decode steps of several sequences, one token of each a step.

    Sequence i has the prompt that seed + i makes, and draws by seed + i; a text is the prompt of all.

    Args:
        progress: called with (steps done, steps in all).

    Raises:
        UsageError: the options do not fit each other.
        DeviceError: the device cannot run it.
    """
    config = preset(options.model)
    _check(options, chosen_device(config, options.device))
    seeds = [options.seed + number for number in range(options.batch)]
    prompts = [Prompt.of(config, options.weights, options.prompt, seed) for seed in seeds]
    samplings = [
        None if options.temperature is None else Sampling(options.temperature, abs(seed)) for seed in seeds
    ]
    told = EngineOptions(options.device, options.tp, seed=options.seed, checkpoint=options.weights)
    opened = open_chain(config, told, options.batch)
    opened.build["musetrace"] = musetrace.__version__
    generation = BatchGeneration(
        opened.chain, [prompt.ids.tolist() for prompt in prompts], samplings=samplings
    )
    collector = recorder.attach(opened.source())
    collector.report({"kernel": "", "text": opened.note})
    made = [generation.first_tokens[0]]
    progress(0, options.steps)
    for step in range(options.steps):
        begin_ns = clock_ns()
        tokens = generation.step()
        end_ns = clock_ns()
        made.append(tokens[0])
        output = output_of(generation.logits)
        collector.step(step, begin_ns, end_ns, len(tokens), "" if output is None else output.digest())
        progress(step + 1, options.steps)
    return Decoded(options.batch * options.steps, prompts[0].text, prompts[0].says(made))


def _check(options: DecodeOptions, device: str) -> None:
    """Refuse what the ordinary chain does not know. Raises UsageError."""
    if not 1 <= options.batch <= MOST_SEQUENCES:
        raise UsageError(f"--batch must be 1 to {MOST_SEQUENCES}, not {options.batch}")
    for name in _OF_THE_MEGAKERNEL:
        if getattr(options, name) not in (None, "none"):
            told = f"--{options.launches}" if name == "launches" else f"--{name}"
            raise UsageError(
                f"{told} is for the megakernel, and --batch {options.batch} runs on the ordinary chain of "
                "kernels; leave one of them out"
            )
    if device == "cuda" and options.tp not in (None, 1):
        raise UsageError(
            f"on a GPU the ordinary chain of kernels is one rank, not {options.tp}; leave --tp or --batch out"
        )
