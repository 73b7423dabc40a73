"""The instruction cache: straight-line bodies of known size, alone and one right after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.clocks import to_ns
from musetrace.probe.facts import Experiment, Fact, Findings, fact
from musetrace.probe.gpu import Gpu

WARPS = (1, 12)
ALONE = "alone"
STITCHED = "stitched"
_INSTRUCTION_BYTES = 16
_PASSES = 20
_LAUNCHES = 3
# The first passes bring the code; from the third on a body that fits is there.
_FIRST_PASSES = 2


def warps_case(warps: int) -> str:
    """How many warps run the body, in words."""
    return f"{warps} warp{'s' * (warps != 1)}"


def body_facts(
    bodies_kib: tuple[int, int], warps: int, cycles: npt.NDArray[Any], clocks: npt.NDArray[Any]
) -> list[Fact]:
    """The facts of one body or of two in a row; ``cycles`` is [launches, blocks, passes, 2]."""
    first, second = bodies_kib
    both = cycles.astype(np.int64)
    warm = both[..., _FIRST_PASSES:, :]
    size, case = first + second, warps_case(warps)
    instructions = size * 1024 // _INSTRUCTION_BYTES
    at: dict[str, Any] = {"at": size, "at_unit": "KiB of code"}
    how = STITCHED if second else ALONE
    facts = [
        fact("cycles_per_instruction", "", warm.sum(axis=-1) / instructions, case=f"{how}, {case}", **at)
    ]
    of = f"of {first} + {second} KiB"
    parts = (f"first {of}", f"second {of}") if second else (f"{first} KiB alone",)
    for part, name in enumerate(parts):
        us = to_ns(warm[..., part], clocks) / 1000
        facts.append(fact("pass", "us", us, case=f"{name}, {case}", **at))
    cold = to_ns(both[..., :1, :].sum(axis=-1), clocks) / 1000
    facts.append(fact("first_pass", "us", cold, case=f"{how}, {case}", note="after 512 MB through L2", **at))
    return facts


def instruction_cache(gpu: Gpu) -> Findings:
    """FFMA with an immediate, 16 bytes each, on all SMs."""
    facts: list[Fact] = []
    for warps in WARPS:
        for body, sizes in enumerate(gpu.module.BODIES_KIB):
            measured = gpu.module.body_cycles(body, warps, _PASSES, gpu.few(_LAUNCHES))
            facts += body_facts(sizes, warps, *measured)
    return Findings(
        facts,
        [
            "1 warp could issue an instruction every cycle, 12 warps each one every 3",
            "pass: a body from the third time on; first_pass: the first time, all bodies",
        ],
    )


EXPERIMENTS = (
    Experiment("instruction_cache", "straight-line code, one body alone and two stitched", instruction_cache),
)
