"""How fast all SMs read: by the bytes that each has on its way, and by what L2 holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.facts import Experiment, Fact, Findings, exact, fact
from musetrace.probe.gpu import Gpu

PIECE_KIB = 16
STREAM_KIB = (16, 32, 48, 64, 80, 96, 128, 192)
L2_MIB = (4, 8, 16, 24, 32, 40, 48, 60)
_STREAM_BYTES = 4 << 30
_ROUNDS = 10
_L2_LAUNCHES = 15
_L2_STATES = {
    "cold": "after 512 MB of other data",
    "prefetched": "by bulk prefetch instructions of the SM that reads",
    "loaded": "by the SM that reads, 60 us before",
}
# Data that is read in at most this part of the cold time is taken to be in L2.
FITS_BELOW = 0.8


def stream(gpu: Gpu) -> Findings:
    """Bulk copies of 16 KiB by one warp of each SM."""
    whole = PIECE_KIB << 10
    size = min(_STREAM_BYTES, gpu.module.free_bytes() // 2) // whole * whole
    us = gpu.module.stream_times([kib // PIECE_KIB for kib in STREAM_KIB], size, gpu.few(_ROUNDS))
    facts = [
        fact("rate", "TB/s", size / times.astype(np.float64) * 1e-6, at=kib, at_unit="KiB in flight")
        for kib, times in zip(STREAM_KIB, us, strict=True)
    ]
    best = max(facts, key=lambda one: one.median)
    enough = next(one for one in facts if one.median >= 0.99 * best.median)
    return Findings(
        facts,
        [
            f"{enough.at} KiB in flight per SM give all there is, to 1 %",
            f"random data, {size / 1e9:.1f} GB each time",
        ],
    )


def reading_us(times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Each launch's time in us; ``times`` is ns [launches, blocks, 2]: common begin, the blocks' ends."""
    return np.asarray((times[..., 1].max(axis=1) - times[..., 0].min(axis=1)) / 1000, dtype=np.float64)


def fitting_mib(facts: list[Fact]) -> int:
    """The largest size up to which loaded data is read clearly faster than cold; 0 when none is."""
    medians = {(one.case, one.at): one.median for one in facts}
    fits = 0
    for mib in L2_MIB:
        if medians["loaded", mib] > FITS_BELOW * medians["cold", mib]:
            break
        fits = mib
    return fits


def l2(gpu: Gpu) -> Findings:
    """Reading data that was left alone, prefetched or loaded before."""
    facts = []
    for mib in L2_MIB:
        for state in _L2_STATES:
            us = reading_us(gpu.module.l2_times(state, mib << 20, gpu.few(_L2_LAUNCHES)))
            rate = (mib << 20) / float(np.median(us)) * 1e-6
            facts.append(fact("time", "us", us, case=state, at=mib, at_unit="MiB", note=f"{rate:.2f} TB/s"))
    capacity = exact(
        "effective_capacity",
        "MiB",
        fitting_mib(facts),
        n=sum(one.n for one in facts),
        note=f"largest size tried up to which loaded data takes at most {FITS_BELOW:.0%} of the cold time",
    )
    return Findings([*facts, capacity], [f"{state}: {meaning}" for state, meaning in _L2_STATES.items()])


EXPERIMENTS = (
    Experiment("stream", "how fast all SMs read memory, by the bytes in flight", stream),
    Experiment("l2", "how much L2 keeps for a later read, prefetched or loaded", l2),
)
