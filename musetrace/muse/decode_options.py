"""What recorded decode steps are told, and what they tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeOptions:
    """What to run; None leaves the choice to the device and the model.

    ``model`` is a preset, ``device``, ``tp``, ``blocks``, ``layers``, ``stop4``, ``launches`` and ``guesses``
    are as in ``EngineOptions``. ``context`` is for a model that decodes no text (``decodes_text``): positions
    in front of those that it verifies (4096). ``weights`` is a folder as ``EngineOptions.checkpoint`` has it;
    where a tokenizer is in it, the steps decode text behind ``prompt``. ``temperature`` draws tokens, by
    ``seed``; None for the most probable ones; whole steps. ``batch`` is how many sequences are decoded at
    once: above 1 the ordinary chain of kernels decodes them (``musetrace.muse.batch``).
    """

    device: str = "auto"
    model: str = "mini"
    steps: int = 20
    tp: int | None = None
    blocks: int | None = None
    seed: int = 0
    layers: int | None = None
    context: int | None = None
    stop4: str | None = None
    launches: str | None = None
    guesses: str | None = None
    weights: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    batch: int = 1


@dataclass(frozen=True)
class Decoded:
    """What recorded steps decoded.

    Attributes:
        tokens: how many, over all steps and sequences; None for steps that decode none.
        prompt, text: what stood in front of them and what they say, of a batch its first sequence; None
            without a tokenizer.
    """

    tokens: int | None = None
    prompt: str | None = None
    text: str | None = None
