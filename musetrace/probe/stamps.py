"""What a stamp costs a kernel that streams, in each way of keeping it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.facts import Experiment, Fact, Findings, exact, fact
from musetrace.probe.gpu import Gpu

LAUNCHES = 40
_ROUNDS = 30
_MEANINGS = {
    "off": "stamps switched off: the code of a source without them",
    "read": "clocks are read and kept in registers, but no slot is stored",
    "store": "8 bytes stored for each stamp",
    "register": "kept in registers, stored once for each warp",
}


def extra_us(us: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What each case adds to the first [cases - 1, rounds], from times [cases, 2 rounds].

    A round has every case twice, forward and backward; the mean of the two is free of a steady drift.
    """
    rounds = us.astype(np.float64).reshape(len(us), -1, 2).mean(axis=2)
    return np.asarray(rounds[1:] - rounds[0], dtype=np.float64)


def cost_facts(us: npt.NDArray[Any], cases: tuple[str, ...], stamps: int, setting: str) -> list[Fact]:
    """The launch without stamps, and what each way of keeping them adds."""
    launch = fact("launch", "us", us[0], case=f"{cases[0]}, {setting}")
    facts = [launch]
    for name, extra in zip(cases[1:], extra_us(us), strict=True):
        added = fact("added", "us", extra, case=f"{name}, {setting}")
        share, each_ns = 100 * added.median / launch.median, 1000 * added.median / stamps
        note = f"{share:+.2f} % of a launch, {each_ns:+.1f} ns a stamp"
        facts.append(fact("added", "us", extra, case=f"{name}, {setting}", note=note))
    return facts


def stamp_cost(gpu: Gpu) -> Findings:
    """Graphs of a stream of 173 MB (132 SMs), with and without programmatic launch and output of its own."""
    module = gpu.module
    facts = [exact("stamps", "", module.STAMPS_PER_BLOCK, note="of a block and launch, by nine warps")]
    for launch_name, programmatic in (("plain", False), ("PDL", True)):
        for output_name, writes_output in (("no output", False), ("output", True)):
            us = module.stamp_costs(LAUNCHES, gpu.few(_ROUNDS), programmatic, writes_output)
            setting = f"{launch_name}, {output_name}"
            facts += cost_facts(us, module.STAMP_CASES, module.STAMPS_PER_BLOCK, setting)
    notes = [f"{name}: {meaning}" for name, meaning in _MEANINGS.items()]
    notes.append(
        f"graphs of {LAUNCHES} launches, cases by turns forward and backward; a kernel without output waits "
        "for the last stamp's way to memory, one with output waits there anyway"
    )
    return Findings(facts, notes)


EXPERIMENTS = (Experiment("stamp_cost", "what a stamp costs, by the way it is kept", stamp_cost),)
