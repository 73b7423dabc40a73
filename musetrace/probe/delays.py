"""Known delays, stamped with both clocks of a GPU: which of them gives the delays back better?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.clocks import cycles_per_ns, globaltimer_steps_ns
from musetrace.probe.facts import Experiment, Fact, Findings, exact, fact
from musetrace.probe.gpu import Gpu

DELAYS_US = (1, 2, 5, 10, 50)
_REPEATS = 8
_CALIBRATION = (
    8  # a calibrating loop lasts so many times as long, so a tick in it is an eighth of a tick here
)
_TURNS = 100  # of the loop that tells how long a turn takes
_LAUNCHES = 5
_WAYS = ("spin", "loop")
_CLOCKS = ("%globaltimer", "SM cycles")
_LOADS = (("idle", False), ("HMMA", True))


@dataclass(frozen=True)
class DelayErrors:
    """What was stamped minus what is known, of one launch or of several side by side.

    Attributes:
        errors_ns: float64 [clock, way, delay, samples], clocks and ways in the order of this module's lists.
        line_ns: float64 [samples], stamps of %globaltimer minus the line from cycles to ns, at all stamps.
        drift: float64 [samples], by how much the loop became longer from before the stamps to after them.
    """

    errors_ns: npt.NDArray[np.float64]
    line_ns: npt.NDArray[np.float64]
    drift: npt.NDArray[np.float64]


def delay_errors(
    stamps: npt.NDArray[Any], loops_ns: npt.NDArray[Any], anchors: npt.NDArray[Any], calibration: int
) -> DelayErrors:
    """The errors of one launch, from what ``known_delays`` of the compiled module gives.

    ``SM cycles`` become ns by the straight line through the block's two anchors. A spin's length is known
    from its own reads of %globaltimer, which it begins and ends at a step; a loop's from the mean of the two
    loops of ``calibration`` times its turns, before and behind.
    """
    told = stamps.astype(np.int64)
    begin_ns, begin_cycles, end_ns, end_cycles, passed_ns = np.moveaxis(told, -1, 0)
    rate = cycles_per_ns(anchors)[:, None, None, None]
    lengths = np.stack([end_ns - begin_ns, (end_cycles - begin_cycles) / rate])
    known = passed_ns.astype(np.float64)
    known[:, 1] = (loops_ns.mean(axis=1) / calibration)[:, :, None]
    errors = np.moveaxis(lengths - known, 1, -1)
    first = anchors[:, 0].astype(np.int64)[:, None, None, None]
    at_stamp = np.stack([begin_ns - first[..., 0], end_ns - first[..., 0]])
    on_line = np.stack([begin_cycles - first[..., 1], end_cycles - first[..., 1]]) / rate
    return DelayErrors(
        errors.reshape(*errors.shape[:3], -1),
        (at_stamp - on_line).reshape(-1),
        (loops_ns[:, 1] / loops_ns[:, 0] - 1).reshape(-1),
    )


def known_delays(gpu: Gpu) -> Findings:
    """Spins and loops of 1 to 50 us between two stamps, on every SM, idle and beside eleven warps of HMMA."""
    facts: list[Fact] = []
    sizes = {}
    tick_ns = int(np.gcd.reduce(globaltimer_steps_ns(gpu)))
    for load, busy in _LOADS:
        found = _measured(gpu, busy)
        facts += _error_facts(found, load)
        facts += _share_facts(found, load, tick_ns)
        facts.append(
            fact(
                "line_error",
                "ns",
                np.abs(found.line_ns),
                case=load,
                note="stamps of %globaltimer, from the line through the block's begin and end",
            )
        )
        facts.append(fact("loop_drift", "%", 100 * found.drift, case=load, note="within a launch"))
        sizes[load] = _p90_size(found)
    return Findings(facts, verdict(sizes))


def _measured(gpu: Gpu, busy: bool) -> DelayErrors:
    delays_ns = [1000 * delay for delay in DELAYS_US]
    _, loops_ns, _ = gpu.module.known_delays(busy, [1000], [_TURNS], 1, _CALIBRATION)
    turn_ns = float(np.median(loops_ns)) / (_TURNS * _CALIBRATION)
    turns = [max(round(delay / turn_ns), 1) for delay in delays_ns]
    launches = []
    for _ in range(gpu.few(_LAUNCHES)):
        stamps, loops_ns, anchors = gpu.module.known_delays(busy, delays_ns, turns, _REPEATS, _CALIBRATION)
        launches.append(delay_errors(stamps, loops_ns, anchors, _CALIBRATION))
    return DelayErrors(
        np.concatenate([launch.errors_ns for launch in launches], axis=-1),
        np.concatenate([launch.line_ns for launch in launches]),
        np.concatenate([launch.drift for launch in launches]),
    )


def _error_facts(found: DelayErrors, load: str) -> Iterator[Fact]:
    for way, way_name in enumerate(_WAYS):
        for clock, clock_name in enumerate(_CLOCKS):
            for delay, delay_us in enumerate(DELAYS_US):
                yield fact(
                    "error",
                    "ns",
                    found.errors_ns[clock, way, delay],
                    case=f"{way_name}, {clock_name}, {load}",
                    at=delay_us,
                    at_unit="us",
                )


def right_share(errors_ns: npt.NDArray[np.float64], tick_ns: int) -> float:
    """The share of errors [delay, samples] that are at most one tick and 1 % of the delay."""
    allowed = tick_ns + 10.0 * np.array(DELAYS_US)[:, None]
    return float((np.abs(errors_ns) <= allowed).mean())


def _share_facts(found: DelayErrors, load: str, tick_ns: int) -> Iterator[Fact]:
    for way, way_name in enumerate(_WAYS):
        for clock, clock_name in enumerate(_CLOCKS):
            errors = found.errors_ns[clock, way]
            yield exact(
                "right",
                "%",
                100 * right_share(errors, tick_ns),
                n=errors.size,
                case=f"{way_name}, {clock_name}, {load}",
                note=f"of all delays, to one tick ({tick_ns} ns) and 1 %",
            )


def _p90_size(found: DelayErrors) -> npt.NDArray[np.float64]:
    """The 90th percentile of the error's size [clock, delay], of the loops: they know neither clock."""
    return np.asarray(np.percentile(np.abs(found.errors_ns[:, 1]), 90, axis=-1), dtype=np.float64)


def verdict(sizes: dict[str, npt.NDArray[np.float64]]) -> list[str]:
    """Which clock is better: SM cycles only where they are so for every delay, idle and under load.

    ``sizes`` has, for each load, the 90th percentile of the error's size in ns [clock, delay].
    """
    lines = ["spin: from a step of %globaltimer to another; loop: instructions that know no clock"]
    for load, size in sizes.items():
        worst = " and ".join(f"{size[clock].max():,.0f} ns by {name}" for clock, name in enumerate(_CLOCKS))
        lines.append(f"9 of 10 loops are right to {worst}, the worst of all lengths, {load}")
    better = all((size[1] < size[0]).all() for size in sizes.values())
    lines.append(
        "SM cycles between anchors are the better clock here, at every length and load"
        if better
        else "%globaltimer is the better clock: SM cycles are not better at every length and load"
    )
    return lines


EXPERIMENTS = (
    Experiment("known_delays", "known delays of 1 to 50 us, stamped by both clocks", known_delays),
)
