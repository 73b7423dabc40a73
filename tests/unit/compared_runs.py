"""Runs for ``musetrace compare``, whose lengths are known to 10 ns, and a way to call it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli import main
from tests.builders import JournalBuilder, launches_from_text, small_table

STEPS = 10
LAUNCHES = 2
BLOCKS = 2


def text_of(norm: int, wait: int, seed: int, steps: int = STEPS, kind: str = "sliding") -> str:
    """Steps of two launches; each block waits, then computes; lengths differ by 10 ns at most."""
    rng = random.Random(seed)
    lines = []
    for step in range(steps):
        for launch in range(LAUNCHES):
            begin = 1_000_000 * (step + 1) + 100_000 * launch
            for block in range(BLOCKS):
                middle = begin + wait + rng.randint(-10, 10)
                end = middle + norm + rng.randint(-10, 10)
                where = f"r0 s{step} l{launch} layer={launch} {kind} b{block}"
                lines += [f"{where} w1 gemm_wait {begin} {middle}", f"{where} w1 norm {middle} {end}"]
    return "\n".join(lines)


def build(folder: Path, norm: int = 20_000, wait: int = 8000, seed: int = 0, **options: Any) -> Path:
    """A complete run; ``output`` gives the hash of a step's output, ``stamps`` False turns stamps off."""
    text = text_of(norm, wait, seed, options.pop("steps", STEPS), options.pop("kind", "sliding"))
    output, ends = options.pop("output", None), options.pop("end", True)
    stamps, loses = options.pop("stamps", True), options.pop("loses", 0)
    builder = JournalBuilder(folder, small_table(), BLOCKS, slot_bytes=8 if stamps else 0, **options)
    launches = launches_from_text(text, small_table(), BLOCKS)[0]
    for step in dict.fromkeys(launch.step for launch in launches):
        mine = [launch for launch in launches if launch.step == step]
        infos = [launch.info() for launch in mine]
        for launch in mine:
            builder.launch(launch)
        more = {} if output is None else {"output": output(step)}
        builder.step(step, infos[0]["submit_ns"], infos[-1]["done_ns"], 1, **more)
    if loses:
        builder.loss(0, LAUNCHES, loses)
    if ends:
        builder.end()
    else:
        builder.close()
    return folder


def compare(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> str:
    """What is printed, of a comparison that must end with ``code``."""
    assert main(["compare", *options]) == code
    return capsys.readouterr().out
