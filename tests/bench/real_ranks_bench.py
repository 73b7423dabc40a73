"""Layer launches of ranks on several GPUs, and beside them of virtual ranks on one.

``torchrun --standalone --nproc-per-node N -m tests.bench.real_ranks_bench [--seconds S]``. Graphs of many
layers are replayed in turn, forward and backward, so that both ways of stop 4 see the same GPU. Process 0
prints the device's time of a layer launch: median [p10 p90]. `full` are sliding-window layers of the whole
model at TP8, each process with its part of the ranks; `mini` goes up to 4 processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.cuda_model import RandomRanks
from musetrace.muse.cuda_requirements import require_gpu
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.peer_requirements import own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.record.process_place import ProcessPlace, process_place

SMS = 132
# Then a process ends, whatever it waits for.
LONGEST_S = 120
BUDGET_NS = 5_000_000_000
STOP4 = ("sumsq", "gather")
# Replayed in front of what is timed: behind it all processes are at the same layer.
LEAD_LAUNCHES = 8


@dataclass(frozen=True)
class Case:
    """What is timed: `sequence` are the layers of a graph, an even number of launches."""

    name: str
    model: str
    tp: int
    blocks: int
    layers: int
    sequence: tuple[int, ...]
    position: int
    capacity: int
    real: bool = True


@dataclass
class Timed:
    """A device with its graphs, and the us of a launch of every replay."""

    name: str
    case: Case
    device: CudaDevice
    lead: int
    graph: int
    us: list[float] = field(default_factory=list)


def cases(processes: int) -> list[Case]:
    mini = {
        "model": "mini",
        "layers": 8,
        "sequence": (1, 2, 4, 5, 6, 2) * 20,
        "position": 300,
        "capacity": 512,
    }
    full = {
        "model": "muse-spark-open",
        "layers": 4,
        "sequence": (2, 3) * 20,
        "position": 4096,
        "capacity": 4128,
    }
    blocks = SMS // processes
    of_mini = [
        Case("mini, every SM", tp=processes, blocks=SMS, **mini),  # type: ignore[arg-type]
        Case(f"mini, {blocks} blocks", tp=processes, blocks=blocks, **mini),  # type: ignore[arg-type]
        Case("mini, virtual", tp=processes, blocks=blocks, real=False, **mini),  # type: ignore[arg-type]
    ]
    whole = Case("full", tp=8, blocks=SMS * processes // 8, **full)  # type: ignore[arg-type]
    return [*(of_mini if processes <= 4 else []), whole]


def open_device(place: ProcessPlace, config: MuseConfig, case: Case, stop4: str) -> CudaDevice:
    module = require_gpu(place)
    numbers: dict[str, Any] = {
        "tp": case.tp,
        "blocks": case.blocks,
        "capacity": case.capacity,
        "layers": case.layers,
        "stop4": stop4,
        "budget_ns": BUDGET_NS,
    }
    if not case.real:
        return CudaDevice(module, config, **numbers)
    group = ProcessGroup(place)
    require_agreement(group, own_facts(numbers))
    return PeerDevice(module, config, group, rank_share(place, config, case.tp), **numbers)


class KeptWeights(RandomRanks):
    """Random, made once: the devices of a case share them."""

    layer = cache(RandomRanks.layer)
    head = cache(RandomRanks.head)


def prepare(place: ProcessPlace, case: Case) -> list[Timed]:
    """Both ways of stop 4 of a case; of virtual ranks in process 0 only."""
    if not case.real and place.process != 0:
        return []
    config = preset(case.model)
    gpu = torch.device("cuda", place.local_process)
    weights = KeptWeights(config, case.tp, 0, gpu)
    residual = np.random.default_rng(0).standard_normal((16, config.hidden_size)).astype(np.float32)
    prepared = []
    for stop4 in STOP4:
        device = open_device(place, config, case, stop4)
        device.load(weights)
        if isinstance(device, PeerDevice):
            device.connect()
        device.set_residual(residual)
        lead, graph = (
            device.capture([("layer", layer, 0, 0) for layer in layers], "off")
            for layers in (case.sequence[:LEAD_LAUNCHES], case.sequence)
        )
        prepared.append(Timed(f"{case.name} {stop4}", case, device, lead, graph))
    return prepared


def replay_us(timed: Timed, stream: torch.cuda.ExternalStream) -> float:
    """Device time of a launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    timed.device.replay(timed.lead, timed.case.position, 0)
    begin.record(stream)
    ticket = timed.device.replay(timed.graph, timed.case.position, 0)
    end.record(stream)
    timed.device.wait(ticket)
    return float(begin.elapsed_time(end)) * 1000 / len(timed.case.sequence)


def measure(group: ProcessGroup, case: Case, seconds: float) -> list[Timed]:
    """Replays for so many seconds by the clock of process 0, ABBA; the first round is the warm-up."""
    all_timed = prepare(group.place, case)
    streams = [torch.cuda.ExternalStream(t.device._device.stream) for t in all_timed]  # type: ignore[no-untyped-call]
    begin, rounds = time.monotonic(), 0
    while True:
        in_turn = list(zip(all_timed, streams, strict=True))
        for timed, stream in [*in_turn, *reversed(in_turn)]:
            us = replay_us(timed, stream)
            if rounds:
                timed.us.append(us)
        rounds += 1
        done = time.monotonic() - begin > seconds and rounds > 1
        if group.exchange(np.array([done], dtype=np.uint8))[0][0]:
            return all_timed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of replays for each case (default 3)")
    args = parser.parse_args()
    signal.alarm(LONGEST_S)
    place = process_place(os.environ)
    if place is None:
        raise SystemExit("start it with torchrun")
    require_gpu(place)
    group = ProcessGroup(place)
    if place.process == 0:
        print(f"{torch.cuda.get_device_name()}, {place.processes} processes, us a layer: median [p10 p90]")
    for case in cases(place.processes):
        try:
            for timed in measure(group, case, args.seconds):
                if place.process == 0:
                    low, median, high = np.percentile(timed.us, (10, 50, 90))
                    print(
                        f"{timed.name:28} {median:8.2f} [{low:.2f} {high:.2f}] n {len(timed.us)}", flush=True
                    )
                if isinstance(timed.device, PeerDevice):
                    timed.device.close()
        except Exception as error:
            # The others are at another place now.
            print(f"process {place.process}, {case.name}: {error}", flush=True)
            break


if __name__ == "__main__":
    main()
