"""A GPU that is none, for the Python of the probe: samples of a device whose every figure stands here.

The functions take and give what those of ``musetrace._cuda.probe`` do (csrc/bindings/bind_device_probe.cpp).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]

SMS = 4
TICK_NS = 32
IDLE_GHZ, HMMA_GHZ = 2.0, 1.8
READ_CYCLES = 30
UNIX_OFFSET_NS = 424_000
ADDED_US = {"absent": 0.0, "off": 0.0, "read": 0.05, "store": 1.5, "register": 0.75}
LAUNCH_US = 40.0
TB_PER_S = 4.5
ENOUGH_PIECES = 3  # in flight, for all of TB_PER_S
L2_FITS_MIB = 40
HOP_NS, HOP_NS_PER_PIECE = 280, 100
FLAG_NS = 430
FENCE_NS, FENCE_NS_PER_PIECE = 210, 700
POLL_NS = 144
BARRIER_NS = 930
GAP_NS = {"plain": 640, "programmatic": 416, "early_trigger": 96}
SPIN_NS, PAST_WAIT_NS = 5000, 288
EMPTY_US = (0.55, 0.5)
BODIES_KIB = ((20, 0), (100, 0), (200, 0), (100, 100))
CACHE_KIB = 128
CLUSTERS = {1: 4, 2: 2, 4: 1, 8: 0, 16: 0}
PEER_NS = 1900
FIRST_NS = 1_700_000_000_000_000_000
FIRST_CYCLES = 10**9


def clocks_of(shape: Sequence[int], ghz: float = IDLE_GHZ) -> Array:
    """Begin and end of kernels of 1 ms: (ns, cycles) [..., 2, 2]."""
    clocks = np.empty((*shape, 2, 2), dtype=np.uint64)
    clocks[..., 0, :] = FIRST_NS, FIRST_CYCLES
    clocks[..., 1, :] = FIRST_NS + 1_000_000, FIRST_CYCLES + round(1_000_000 * ghz)
    return clocks


def cycles_of(ns: float, *shape: int) -> tuple[Array, Array]:
    """So many ns in each sample, and the clocks beside them."""
    return np.full(shape, round(ns * IDLE_GHZ), dtype=np.uint64), clocks_of(shape[:-1])


class FakeProbe(ModuleType):
    """``musetrace._cuda.probe``; ``broken`` are the functions that fail, and how."""

    STAMP_CASES = tuple(ADDED_US)
    STAMPS_PER_BLOCK = 166
    BODIES_KIB = BODIES_KIB

    def __init__(self, peer: int = -1) -> None:
        super().__init__("musetrace._cuda.probe")
        self.peer = peer
        self.broken: dict[str, Exception] = {}
        self.capability = (9, 0)

    def __getattribute__(self, name: str) -> Any:
        broken = super().__getattribute__("__dict__").get("broken", {})
        if name not in broken:
            return super().__getattribute__(name)

        def fail(*_: Any) -> None:
            raise broken[name]

        return fail

    def device_facts(self) -> dict[str, Any]:
        return {
            "name": "NVIDIA H200",
            "compute_capability": self.capability,
            "sms": SMS,
            "l2_bytes": 60 << 20,
        }

    def free_bytes(self) -> int:
        return 100 << 30

    def clock_read_cycles(self, globaltimer: bool, samples: int) -> Array:
        return np.full(samples, 32 * (READ_CYCLES if globaltimer else READ_CYCLES // 2), dtype=np.uint64)

    def unix_brackets(self, rounds: int) -> Array:
        before = FIRST_NS + 10_000 * np.arange(rounds)
        waited = 2000 + 10 * (np.arange(rounds) % 7)
        return np.stack([before, before + 1000 + UNIX_OFFSET_NS, before + waited], axis=1).astype(np.uint64)

    def clock_pairs(self, tensor_load: bool, count: int, interval_ns: int) -> Array:
        ns = np.tile(interval_ns * np.arange(count), (SMS, 1))
        cycles = np.rint(ns * (HMMA_GHZ if tensor_load else IDLE_GHZ))
        return np.stack([FIRST_NS + ns, FIRST_CYCLES + cycles.astype(np.int64)], axis=-1).astype(np.uint64)

    def known_delays(
        self, tensor_load: bool, delays_ns: list[int], turns: list[int], repeats: int, calibration: int
    ) -> tuple[Array, Array, Array]:
        """%globaltimer is 5 ns short on loops; cycles are right when idle, and a tenth off under load."""
        ghz = HMMA_GHZ if tensor_load else IDLE_GHZ
        turn_ns = 40
        spin_ns = -(-np.array(delays_ns) // TICK_NS) * TICK_NS
        true_ns = np.stack([spin_ns, turn_ns * np.array(turns)])[None, :, :, None]
        true_ns = np.broadcast_to(true_ns, (SMS, 2, len(delays_ns), repeats))
        short_ns = np.array([0, 5])[None, :, None, None]
        cycle_share = 0.9 if tensor_load else 1.0
        stamps = np.zeros((*true_ns.shape, 5), dtype=np.uint64)
        stamps[..., 0] = FIRST_NS + 500_000
        stamps[..., 1] = FIRST_CYCLES + round(500_000 * ghz)
        stamps[..., 2] = FIRST_NS + 500_000 + true_ns - short_ns
        stamps[..., 3] = stamps[..., 1] + np.rint(true_ns * ghz * cycle_share).astype(np.uint64)
        stamps[:, 0, :, :, 4] = true_ns[:, 0]
        loops = np.broadcast_to(turn_ns * np.array(turns) * calibration, (SMS, 2, len(turns)))
        return stamps, loops.astype(np.uint64), clocks_of([SMS], ghz)

    def stamp_costs(self, launches: int, rounds: int, programmatic: bool, writes_output: bool) -> Array:
        """Each graph takes a little longer than the one before it, as on a GPU that becomes warm."""
        cases = len(ADDED_US)
        us = np.empty((cases, 2 * rounds), dtype=np.float32)
        for case, added in enumerate(ADDED_US.values()):
            for turn in range(2 * rounds):
                place = case if turn % 2 == 0 else cases - 1 - case
                us[case, turn] = LAUNCH_US + added + 0.01 * (turn * cases + place)
        return us

    def stream_times(self, in_flight: list[int], size: int, rounds: int) -> Array:
        rates = TB_PER_S * np.minimum(np.array(in_flight) / ENOUGH_PIECES, 1)
        return np.repeat((size / rates * 1e-6)[:, None], 2 * rounds, axis=1).astype(np.float32)

    def l2_times(self, state: str, size: int, launches: int) -> Array:
        mib = size >> 20
        slow = {"cold": 240, "prefetched": 220, "loaded": 130 if mib <= L2_FITS_MIB else 230}[state]
        times = np.full((launches, SMS, 2), FIRST_NS, dtype=np.uint64)
        times[:, :, 1] += np.array([1, 2, 3, 4], dtype=np.uint64) * np.uint64(mib * slow // 4)
        return times

    def hop_cycles(self, lamport: bool, in_flight: int, pairs: int, rounds: int) -> tuple[Array, Array]:
        one_way = HOP_NS + HOP_NS_PER_PIECE * in_flight if lamport else FLAG_NS
        cycles, clocks = cycles_of(2 * one_way, pairs, rounds)
        cycles[:, :4] = 10**6  # not yet in step
        return cycles, clocks

    def operation_cycles(self, operation: str, in_flight: int, samples: int) -> tuple[Array, Array]:
        ns = POLL_NS if operation.startswith("poll") else FENCE_NS + FENCE_NS_PER_PIECE * in_flight
        return cycles_of(ns, SMS, samples)

    def barrier_cycles(self, rounds: int) -> tuple[Array, Array]:
        return cycles_of(BARRIER_NS, SMS, rounds)

    def peer_device(self) -> int:
        return self.peer

    def peer_hop_cycles(self, first: int, second: int, rounds: int) -> tuple[Array, Array]:
        assert (first, second) == (0, self.peer)
        return cycles_of(2 * PEER_NS, rounds)

    def boundary_times(self, boundary: str, shared_bytes: int, launches: int, replays: int) -> Array:
        gap = GAP_NS[boundary]
        waits = PAST_WAIT_NS if boundary == "early_trigger" else 0
        begin = FIRST_NS + (SPIN_NS + waits + gap) * np.arange(launches)
        later = np.arange(SMS) * TICK_NS
        times = np.empty((replays, launches, SMS, 3), dtype=np.uint64)
        times[..., 0] = begin[:, None] + later
        times[..., 1] = times[..., 0] + np.uint64(waits)
        times[..., 2] = times[..., 1] + np.uint64(SPIN_NS) - later.astype(np.uint64)
        return times

    def empty_launch_times(self, launches: int, rounds: int) -> Array:
        return np.repeat(np.array(EMPTY_US, dtype=np.float32)[:, None], 2 * rounds, axis=1)

    def body_cycles(self, body: int, warps: int, passes: int, launches: int) -> tuple[Array, Array]:
        """Bodies that do not fit, alone or together, take twice the time; a first pass ten times."""
        sizes = np.array(BODIES_KIB[body])
        each = 64 * sizes * max(warps // 4, 1) * (2 if sizes.sum() > CACHE_KIB else 1)
        cycles = np.broadcast_to(each, (launches, SMS, passes, 2)).astype(np.uint64)
        cycles[:, :, 0] *= 10
        return cycles, clocks_of((launches, SMS))

    def clusters_that_fit(self, sizes: list[int]) -> list[int]:
        return [CLUSTERS[size] for size in sizes]


def clock_reads(count: int) -> Array:
    """%globaltimer in steps of one tick, every fourth of two."""
    return (FIRST_NS + TICK_NS * np.cumsum(np.arange(count) % 4 // 3 + 1)).astype(np.uint64)


def install(monkeypatch: pytest.MonkeyPatch, peer: int = -1) -> FakeProbe:
    """The compiled CUDA module of this test has one GPU, or two."""
    module, probe = ModuleType("musetrace._cuda"), FakeProbe(peer)
    module.__dict__.update(device_count=lambda: 1, clock_reads=clock_reads, probe=probe)
    monkeypatch.setitem(sys.modules, "musetrace._cuda", module)
    return probe
