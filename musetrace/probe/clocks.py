"""The clocks of a GPU: how fine %globaltimer is, which Unix time it shows, how fast cycles run by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.brackets import offset_facts
from musetrace.probe.facts import Experiment, Findings, exact, fact
from musetrace.probe.gpu import Gpu

_READS = 100_000
_READS_OF_SAMPLE = 32  # measure_clock_reads in csrc/probe/device_probe.h
_INTERVAL_NS = 16_000
_PAIRS = 64


def cycles_per_ns(clocks: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The rate between a begin and an end: ``clocks`` is [..., 2, 2], (ns, cycles) of both; GHz."""
    first, last = clocks[..., 0, :].astype(np.int64), clocks[..., 1, :].astype(np.int64)
    return np.asarray((last - first)[..., 1] / (last - first)[..., 0], dtype=np.float64)


def to_ns(cycles: npt.NDArray[Any], clocks: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Cycles [..., samples] in ns, by the begin and end (ns, cycles) [..., 2, 2] of the same kernel."""
    return np.asarray(cycles / cycles_per_ns(clocks)[..., None], dtype=np.float64)


def globaltimer_steps_ns(gpu: Gpu, reads: int = _READS) -> npt.NDArray[np.int64]:
    """By how much %globaltimer went on from one read to the next, where it did; its tick divides all."""
    steps = np.diff(gpu.clock_reads(reads).astype(np.int64))
    return np.asarray(steps[steps > 0], dtype=np.int64)


def timer(gpu: Gpu) -> Findings:
    """Tick of %globaltimer, and what it costs to read a clock."""
    steps = globaltimer_steps_ns(gpu)
    tick_ns = int(np.gcd.reduce(steps))
    share = float((steps == tick_ns).mean())
    reads = gpu.few(4000)
    costs = [
        fact(
            "read_cost",
            "cycles",
            gpu.module.clock_read_cycles(globaltimer, reads) / _READS_OF_SAMPLE,
            case=name,
            note="one of 32 reads in a row, in one thread",
        )
        for name, globaltimer in (("%globaltimer", True), ("clock64", False))
    ]
    return Findings(
        [
            exact("tick", "ns", tick_ns, n=int(steps.size), note="divides every step that was seen"),
            fact("step", "ns", steps, note=f"{100 * share:.0f} % of the steps are one tick"),
            *costs,
        ]
    )


def unix_offset(gpu: Gpu) -> Findings:
    """How far %globaltimer is ahead of the host's CLOCK_REALTIME."""
    brackets = gpu.module.unix_brackets(gpu.few(2000)).astype(np.int64)
    return Findings(offset_facts(brackets, "%globaltimer minus Unix time"))


def line_residual_ns(pairs: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """How far the times [blocks, count, 2] (ns, cycles) are from each block's line through first and last."""
    times = pairs.astype(np.int64) - pairs[:, :1].astype(np.int64)
    ns, cycles = times[..., 0], times[..., 1]
    return np.asarray(ns - cycles * (ns[:, -1:] / cycles[:, -1:]), dtype=np.float64)


def sm_clock(gpu: Gpu) -> Findings:
    """Cycles by %globaltimer on every SM, idle and while eleven warps do nothing but HMMA."""
    facts = []
    for case, load in (("idle", False), ("HMMA", True)):
        pairs = np.stack([gpu.module.clock_pairs(load, _PAIRS, _INTERVAL_NS) for _ in range(gpu.few(30))])
        pairs = pairs.astype(np.int64)
        steps = np.diff(pairs, axis=2)
        rates = steps[..., 1] / steps[..., 0]
        residual = np.abs(np.concatenate([line_residual_ns(launch) for launch in pairs]))
        facts += [
            fact("rate", "GHz", rates, case=case, note=f"over {_INTERVAL_NS // 1000} us each, all SMs"),
            fact("rate_at_begin", "GHz", rates[:, :, 0], case=case, note="of the first 16 us of a launch"),
            fact(
                "line_error",
                "ns",
                residual,
                case=case,
                note="of one straight line from cycles to ns over a launch of 1 ms",
            ),
        ]
    return Findings(facts, _clock_verdict(facts[0].median, facts[3].median))


def _clock_verdict(idle_ghz: float, loaded_ghz: float) -> list[str]:
    change = loaded_ghz / idle_ghz - 1
    return [f"under tensor-core load the SM clock is {100 * change:+.1f} % of what it is idle"]


EXPERIMENTS = (
    Experiment("timer", "the tick of %globaltimer, and what reading a clock costs", timer),
    Experiment("unix_offset", "which Unix time %globaltimer shows", unix_offset),
    Experiment("sm_clock", "the SM's cycles by %globaltimer, idle and under tensor-core load", sm_clock),
)
