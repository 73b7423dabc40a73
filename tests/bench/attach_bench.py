"""Prints what recording somebody's kernel costs the program that launches it; asserts nothing.

    python -m tests.bench.attach_bench [--device cuda] [--launches 2000] [--graph-launches 62] [--steps 200]

The host's time in ``launch()`` and ``step()``, with the recorder on and off, in turn; on a GPU also the time
of a step that replays a graph, by CUDA events. Medians, 10th and 90th percentile.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import musetrace
from musetrace.record.recorder import Recorder
from tests.builders import wide_table

BLOCKS, SLOTS = 132, 256


def show(name: str, values_ns: list[float]) -> None:
    low, middle, high = (value / 1000 for value in np.percentile(values_ns, (10, 50, 90)))
    print(f"{name:<44} {middle:9.2f} us  [{low:.2f} {high:.2f}]  n = {len(values_ns)}")


def timed(block: Callable[[], Any], rounds: int, pause_s: float) -> list[float]:
    """The host's time in some rounds of a block, in ns; pauses let the drain thread keep up."""
    found: list[float] = []
    for _ in range(rounds):
        begin_ns = time.perf_counter_ns()
        block()
        found.append(float(time.perf_counter_ns() - begin_ns))
        time.sleep(pause_s)
    return found


def eager(recorder: Recorder, device: str, launches: int) -> list[float]:
    """An eager launch of a kernel that is not even launched: what the recorder itself takes."""
    kernel = recorder.attach(wide_table(SLOTS), BLOCKS, device=device)

    def launch() -> None:
        with kernel.launch():
            pass

    launch()
    return timed(launch, launches, 0.0005)


def replay(recorder: Recorder, kernels: Any, launches: int, steps: int) -> tuple[list[float], list[float]]:
    """Steps that replay a graph: the host's time, and from end to end of steps on the GPU, in ns."""
    import torch

    gemm = recorder.attach(kernels.gemm_table, BLOCKS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            with gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS, ns=2000)

    def step() -> None:
        with recorder.step() if recorder.active else nullcontext():
            graph.replay()

    for _ in range(8):
        step()
    torch.cuda.synchronize()
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    host: list[float] = []
    events[0].record()
    for event in events[1:]:
        begin_ns = time.perf_counter_ns()
        step()
        host.append(float(time.perf_counter_ns() - begin_ns))
        event.record()
    torch.cuda.synchronize()
    device = [1e6 * first.elapsed_time(last) for first, last in zip(events[:-1], events[1:], strict=True)]
    return host, device


def main() -> None:
    """Measure, on then off, twice."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument("--graph-launches", type=int, default=62)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    kernels = None
    if args.device == "cuda":
        from tests.gpu.attach_kernels import compile_kernels

        kernels = compile_kernels("register")
    with tempfile.TemporaryDirectory() as folder:
        for turn, path in enumerate([Path(folder) / "a", None, Path(folder) / "b", None]):
            state = "off" if path is None else "on"
            with musetrace.record(path) as recorder:
                show(f"host, eager launch, recorder {state}", eager(recorder, args.device, args.launches))
                lost = 0 if path is None else recorder.close().lost_launches
            if kernels is None:
                continue
            graph_path = None if path is None else Path(folder) / f"graph-{turn}"
            with musetrace.record(graph_path) as recorder:
                host, device = replay(recorder, kernels, args.graph_launches, args.steps)
                show(f"host, step of {args.graph_launches} launches, recorder {state}", host)
                show(f"GPU, step of {args.graph_launches} launches, recorder {state}", device)
                result = recorder.close()
            print(f"lost: {lost} eager, {result.lost_launches} in graphs of {result.launches} recorded")


if __name__ == "__main__":
    main()
