"""What a CPU tells of itself: clock and stamps of the CPU device, a hop between two threads."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from musetrace import _core
from musetrace.errors import DeviceError
from musetrace.probe.brackets import offset_facts
from musetrace.probe.facts import Experiment, Findings, exact, fact
from musetrace.record.cpu_kernel_device import cpu_name

_READS = 100_000
_SAMPLES = 1000
_ROUNDS = 20_000
_HOPS = 2000


@dataclass(frozen=True)
class Cpu:
    """This machine's CPU.

    Attributes:
        module: the compiled measurements, ``musetrace._core.probe``.
        device: what Linux says of it, for people and for the manifest.
        quick: a tenth of the samples will do.
    """

    module: ModuleType
    device: dict[str, Any]
    quick: bool = False

    def warm_up(self) -> None:
        """Some milliseconds of reading the clock, after which a core runs as fast as it does at work."""
        self.module.clock_reads(1 << 18)

    def few(self, samples: int) -> int:
        """So many samples, or a tenth where the caller is in a hurry; one at least."""
        return max(samples // 10, 1) if self.quick else samples


def open_cpu(quick: bool = False) -> Cpu:
    """The CPU of this machine.

    Raises:
        DeviceError: the compiled module is older than this package.
    """
    if not hasattr(_core, "probe"):
        raise DeviceError("the compiled module musetrace._core is older than this package; install it again")
    return Cpu(_core.probe, {"kind": "cpu", "name": cpu_name()}, quick)


def clock(cpu: Cpu) -> Findings:
    """Tick of CLOCK_MONOTONIC, and what reading it costs."""
    steps = np.diff(cpu.module.clock_reads(_READS).astype(np.int64))
    moved = steps[steps > 0]
    cost = cpu.module.clock_read_times(cpu.few(_SAMPLES)) / cpu.module.READS
    return Findings(
        [
            exact(
                "tick",
                "ns",
                int(np.gcd.reduce(moved)),
                n=int(moved.size),
                note="divides every step that was seen",
            ),
            fact("step", "ns", steps, note="from one read to the next"),
            fact("read_cost", "ns", cost, note=f"one of {cpu.module.READS} reads in a row"),
        ]
    )


def stamp_cost(cpu: Cpu) -> Findings:
    """Stamps of one warp in the three builds, the clock read for each."""
    each = cpu.module.stamp_times(cpu.few(_SAMPLES)) / cpu.module.STAMPS
    return Findings(
        [fact("stamp", "ns", each[:, index], case=name) for index, name in enumerate(cpu.module.STAMP_CASES)],
        [f"{cpu.module.STAMPS} stamps in a row, 16 of them then flushed; reading the clock is in it"],
    )


def hop(cpu: Cpu) -> Findings:
    """A word from one thread to another, on two cores where there are two."""
    trips = cpu.module.hop_times(cpu.few(_HOPS)) / cpu.module.TRIPS
    note = f"half a round trip, mean of {cpu.module.TRIPS} in a row"
    return Findings([fact("one_way", "ns", trips / 2, note=note)])


def unix_offset(cpu: Cpu) -> Findings:
    """How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC."""
    brackets = cpu.module.unix_brackets(cpu.few(_ROUNDS)).astype(np.int64)
    return Findings(offset_facts(brackets, "Unix time minus CLOCK_MONOTONIC"))


EXPERIMENTS = (
    Experiment("clock", "the tick of CLOCK_MONOTONIC, and what reading it costs", clock),
    Experiment("unix_offset", "which Unix time CLOCK_MONOTONIC shows", unix_offset),
    Experiment("stamp_cost", "what a stamp costs, by the way it is kept", stamp_cost),
    Experiment("hop", "how long a word takes from thread to thread", hop),
)
