"""A whole decode step of the TP8 slice on an H200, as one CUDA graph, and its parts as graphs of their own.

``python -m tests.bench.step_bench [--rounds N] [--chain]``. All graphs are replayed in turn, forward and
backward, each from the same state; the table gives medians with 95 % bootstrap intervals. The slice plays
back to itself what its peers would send: there is no skew of eight GPUs in these figures.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.analysis.certainty.bootstrap import bootstrap_median
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import FROM_STATE
from musetrace.muse.engine import Engine
from musetrace.muse.launch_plan import PlannedLaunch
from musetrace.muse.slice_steps import fill_cache, fill_draft_cache

MODEL, CONTEXT = "muse-spark-open-tp8-slice", 4096
SLOT_BYTES = {"off": 0, "register": 4, "store": 8}
DRAFT_KINDS = ("draft_context", "draft_layer", "draft_head", "draft_tree")


class Bench:
    """The slice's device with graphs of a step and of its parts."""

    def __init__(self, guesses: str) -> None:
        self._engine = Engine(MODEL, device="cuda", guesses=guesses, launches="graph", capacity=CONTEXT + 32)
        device = self._engine.device
        assert isinstance(device, CudaDevice)
        self.device, steps = device, self._engine.whole_steps()
        steps.begin(CONTEXT)
        fill_cache(device, 0)
        fill_draft_cache(device, 0)
        self._kept: list[Tensor] = []
        draft = [one for one in steps.plan if one.kind in DRAFT_KINDS]
        behind = [one for one in steps.plan if one.kind in ("accept", "keep_kv")]
        verify = [one for one in steps.plan if one not in draft and one not in behind]
        self.launches = len(steps.plan)
        parts = {"draft": draft, "tree": draft[-1:], "verify": verify, "accept": behind}
        self.graphs = {f"step, {build}": self._graph(steps.plan, build) for build in SLOT_BYTES}
        self.graphs |= {name: self._graph(part, "off") for name, part in parts.items()}

    def _graph(self, plan: list[PlannedLaunch] | tuple[PlannedLaunch, ...], build: str) -> int:
        layout = StampLayout(self.device.blocks, self.device.job_table.slots, SLOT_BYTES[build])
        requests = []
        for number, planned in enumerate(plan):
            memory = torch.zeros(layout.region_bytes, dtype=torch.uint8, device="cuda")
            self._kept.append(memory)
            address = memory.data_ptr() if SLOT_BYTES[build] else 0
            requests.append((planned.device_kind, planned.device_layer, address, number))
        torch.cuda.synchronize()
        return self.device.capture(requests, build)

    def run(self, graph: int) -> tuple[float, float]:
        """One replay: its us on the GPU, and those that the host takes to queue it."""
        self.device.set_step(position=CONTEXT)
        stream = torch.cuda.ExternalStream(self.device.stream)  # type: ignore[no-untyped-call]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record(stream)
        queued = time.perf_counter()
        ticket = self.device.replay(graph, FROM_STATE, 0)
        host_us = (time.perf_counter() - queued) * 1e6
        end.record(stream)
        self.device.wait(ticket)
        return float(begin.elapsed_time(end)) * 1000, host_us


def measure(bench: Bench, rounds: int) -> dict[str, NDArray[np.float64]]:
    """Us [replays, 2] of each graph, two for each round; the first round is the warm-up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in bench.graphs}
    for number in range(rounds + 1):
        for name in [*bench.graphs, *reversed(bench.graphs)]:
            us = bench.run(bench.graphs[name])
            if number:
                times[name].append(us)
    return {name: np.array(values) for name, values in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--chain", action="store_true", help="verify a chain of guesses, not a tree")
    arguments = parser.parse_args()
    bench = Bench("chain" if arguments.chain else "tree")
    times = measure(bench, arguments.rounds)
    print(f"{torch.cuda.get_device_name()}, context {CONTEXT}, {bench.launches} launches a step")
    for name, values in times.items():
        us, host = (bootstrap_median(values[:, column]) for column in (0, 1))
        print(f"{name:15} {us.median:8.1f} us [{us.low:.1f} {us.high:.1f}], queued in {host.median:.1f} us")
    step, parts = times["step, off"][:, 0], times["draft"][:, 0] + times["verify"][:, 0]
    print(f"step - draft - verify: {np.median(step) - np.median(parts):.1f} us")
    print(f"kept by the last step: {bench.device.step()['path']}")


if __name__ == "__main__":
    main()
