"""How long SMs wait for each other: hops, fences, polls, barriers, and the way to another GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.clocks import to_ns
from musetrace.probe.facts import Experiment, Fact, Findings, NotHereError, fact
from musetrace.probe.gpu import Gpu
from musetrace.probe.memory import PIECE_KIB

HOP_KIB = (0, 16, 32, 48, 64, 96, 128, 192)
FENCE_KIB = (0, 32, 48, 96, 160)
POLL_KIB = (0, 48, 128)
IN_FLIGHT = "KiB in flight"
_PAIRS = 8
_ROUNDS = 256
_SAMPLES = 128
# Before these the two sides, or all blocks, are not yet in step.
_FIRST_ROUNDS = 8
_FENCES = {
    "fence_gpu": "__threadfence, nothing stored",
    "fence_acq_rel_gpu": "fence.acq_rel.gpu, nothing stored",
    "fence_sys": "__threadfence_system, nothing stored",
    "store_fence_gpu": "16 bytes stored, then __threadfence",
}
_POLLS = {
    "poll_relaxed": "ld.relaxed.gpu",
    "poll_acquire_gpu": "ld.acquire.gpu",
    "poll_acquire_sys": "ld.acquire.sys",
}
_STREAM_NOTE = "all SMs read memory in bulk meanwhile, each with so many KiB on their way"


def one_way_ns(cycles: npt.NDArray[Any], clocks: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Half a round trip, from cycles [..., rounds] and the clocks [..., 2, 2] of their begin and end."""
    return to_ns(cycles, clocks)[..., _FIRST_ROUNDS:] / 2


def hop(gpu: Gpu) -> Findings:
    """From a store on one SM until another SM has seen it."""
    facts = []
    rounds = _FIRST_ROUNDS + gpu.few(_ROUNDS)
    for kib in HOP_KIB:
        ways = one_way_ns(*gpu.module.hop_cycles(True, kib // PIECE_KIB, _PAIRS, rounds))
        pairs = np.median(ways, axis=-1)
        note = f"medians of {_PAIRS} pairs of SMs: {pairs.min():,.0f} to {pairs.max():,.0f}"
        facts.append(fact("one_way", "ns", ways, case="Lamport slot", at=kib, at_unit=IN_FLIGHT, note=note))
    flags = one_way_ns(*gpu.module.hop_cycles(False, 0, _PAIRS, rounds))
    facts.append(fact("one_way", "ns", flags, case="release, acquire", at=0, at_unit=IN_FLIGHT))
    return Findings(
        facts,
        [
            "half a round trip; a Lamport slot is 16 bytes, st.relaxed and ld.relaxed.sys, and its own flag",
            _STREAM_NOTE,
        ],
    )


def _operation_facts(gpu: Gpu, operations: dict[str, str], sizes_kib: Sequence[int]) -> Iterator[Fact]:
    for operation, meaning in operations.items():
        for kib in sizes_kib:
            cycles, clocks = gpu.module.operation_cycles(operation, kib // PIECE_KIB, gpu.few(_SAMPLES))
            yield fact("cost", "ns", to_ns(cycles, clocks), case=meaning, at=kib, at_unit=IN_FLIGHT)


def fence(gpu: Gpu) -> Findings:
    """A fence by one warp of each SM, while another warp of it has bulk copies on their way."""
    return Findings(list(_operation_facts(gpu, _FENCES, FENCE_KIB)), [_STREAM_NOTE])


def poll(gpu: Gpu) -> Findings:
    """One look at a word that has arrived."""
    return Findings(list(_operation_facts(gpu, _POLLS, POLL_KIB)), [_STREAM_NOTE])


def barrier(gpu: Gpu) -> Findings:
    """A counter in memory that a block of every SM adds to and polls."""
    cycles, clocks = gpu.module.barrier_cycles(_FIRST_ROUNDS + gpu.few(_ROUNDS))
    each = to_ns(cycles, clocks)[:, _FIRST_ROUNDS:]
    return Findings(
        [fact("barrier", "ns", each, note=f"over {len(each)} blocks, red.release and ld.acquire, idle")]
    )


def peer(gpu: Gpu) -> Findings:
    """A Lamport slot in the memory of another GPU.

    Raises:
        NotHereError: there is no other GPU whose memory this one reaches.
    """
    other = gpu.module.peer_device()
    if other < 0:
        raise NotHereError("needs a second GPU that reaches this one's memory and is reached")
    cycles, clocks = gpu.module.peer_hop_cycles(0, other, _FIRST_ROUNDS + gpu.few(_ROUNDS))
    return Findings(
        [
            fact(
                "one_way",
                "ns",
                one_way_ns(cycles, clocks),
                case=f"GPU 0 and {other}",
                note="half a round trip, idle",
            )
        ]
    )


EXPERIMENTS = (
    Experiment("hop", "how long a word takes from SM to SM, by the bytes in flight", hop),
    Experiment("fence", "what a fence costs, by the bulk bytes in flight", fence),
    Experiment("poll", "what one poll costs", poll),
    Experiment("barrier", "a barrier over all SMs", barrier),
    Experiment("peer", "how long a word takes from GPU to GPU", peer),
)
