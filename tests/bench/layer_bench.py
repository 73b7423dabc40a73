"""The megakernel beside the chain of kernels: verify step and layers of the TP8 slice, on an H200.

``python -m tests.bench.layer_bench [--layers N] [--rounds N] [--json FILE]``. Graphs of both are replayed in
turn, forward and backward; the table gives medians with 95 % bootstrap intervals, and ratios of neighbouring
replays. B0 is a sliding-window layer of the torch reference that the kernels are checked against, eager, its
matrices unpacked before: it takes sums in fp64, so it says what a reference costs, not what torch can do.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from musetrace import _core, _cuda
from musetrace.abi import StampLayout
from musetrace.analysis.certainty.bootstrap import bootstrap_median
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_weights import addresses, load_chain, rope_table
from musetrace.muse.device import shape_of
from musetrace.muse.slice_weights import random_head, random_layer
from tests.gpu.slice_reference import Slice, layer_states, project

TP, BLOCKS, CAPACITY, POSITION = 8, 132, 8192, 4096
SLOT_BYTES = {"off": 0, "register": 4, "store": 8}
LEAST_LAYERS = 8  # of a graph of one kind of layer
RATIOS = (
    ("mega register", "mega off"),
    ("mega store", "mega off"),
    ("mega off", "B1"),
    ("mega off", "B3"),
    ("mega sliding", "B3 sliding"),
)


class Bench:
    """Both programs over the same weights."""

    def __init__(self, config: MuseConfig, layers: int) -> None:
        self.config, self.layers = config, layers
        gpu = torch.device("cuda")
        self.tensors = [random_layer(config, TP, layer, 0, gpu) for layer in range(layers)]
        self._head = random_head(config, TP, 0, gpu)
        self._rope = rope_table(config, CAPACITY, gpu)
        shape = shape_of(config, TP, BLOCKS, CAPACITY, config.num_hidden_layers)
        self.mega = _cuda.MuseDevice(shape, loopback=True)
        self.chain = _cuda.BaselineChain(shape, True)
        self._stamps: list[torch.Tensor] = []
        self._fill()
        self.stream = torch.cuda.ExternalStream(self.mega.stream)  # type: ignore[no-untyped-call]

    def _fill(self) -> None:
        config, head, rope = self.config, addresses(self._head), self._rope.data_ptr()
        layers = [addresses(tensors) for tensors in self.tensors]
        for layer, at in enumerate(layers):
            self.mega.set_layer(0, layer, at, config.is_global(layer), config.expert_format(layer) == "bf16")
        self.mega.set_head(0, head)
        self.mega.set_rope(rope)
        load_chain(self.chain, config, layers, {name: head[name] for name in ("lm_head", "final_norm")}, rope)
        residual = np.random.default_rng(0).standard_normal((16, config.hidden_size)).astype(np.float32)
        self.mega.set_values("residual", 0, 0, residual)
        self.chain.set_residual(residual)
        self.chain.set_position(POSITION)

    def kinds(self) -> dict[str, list[int]]:
        """Layers by kind, each list repeated until it is worth a graph, with an even number of layers."""
        kinds: dict[str, list[int]] = {"sliding": [], "global": [], "bf16": []}
        for layer in range(self.layers):
            quantised = self.config.expert_format(layer) == "nvfp4"
            kinds[self.config.layer_kind(layer) if quantised else "bf16"].append(layer)
        return {
            kind: (found * LEAST_LAYERS)[: max(LEAST_LAYERS, len(found) // 2 * 2)]
            for kind, found in kinds.items()
            if found
        }

    def step_graph(self, stamps: str) -> int:
        """A verify pass: entry, layers, head; stamped into memory that is kept."""
        slots = _core.abi.job_tables["muse_hopper"]["slots"]
        region_bytes = StampLayout(BLOCKS, slots, SLOT_BYTES[stamps]).region_bytes if stamps != "off" else 0
        requests = [("entry", 0), *(("layer", layer) for layer in range(self.layers)), ("head", 0)]
        memory = torch.zeros(max(1, region_bytes * len(requests)), dtype=torch.uint8, device="cuda")
        self._stamps.append(memory)
        base = memory.data_ptr() if region_bytes else 0
        return self.mega.capture(
            [(kind, layer, base + i * region_bytes, i + 1) for i, (kind, layer) in enumerate(requests)],
            stamps,
        )

    def mega_us(self, graph: int) -> float:
        """One replay, in us."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self.mega.set_state(POSITION)
        begin.record(self.stream)
        self.mega.replay(graph)
        end.record(self.stream)
        self.mega.synchronize()
        return float(begin.elapsed_time(end)) * 1000

    def chain_us(self, graph: int) -> float:
        """One replay, in us."""
        return float(self.chain.time_graphs([graph], 1)[0][-1]) * 1000


def measure(bench: Bench, rounds: int) -> dict[str, NDArray[np.float64]]:
    """Us of a step, or of a layer, two for each round; the first round is the warm-up."""
    every = list(range(bench.layers))
    graphs: dict[str, tuple[bool, int, int]] = {
        f"mega {stamps}": (True, bench.step_graph(stamps), 1) for stamps in ("off", "register", "store")
    }
    for name, mode in (("B1", "graph"), ("B3", "pdl")):
        graphs[name] = (False, bench.chain.capture(mode, every, True), 1)
        for kind, layers in bench.kinds().items():
            graphs[f"{name} {kind}"] = (False, bench.chain.capture(mode, layers, False), len(layers))
    for kind, layers in bench.kinds().items():
        requests = [("layer", layer, 0, 1) for layer in layers]
        graphs[f"mega {kind}"] = (True, bench.mega.capture(requests, "off"), len(layers))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(rounds + 1):
        for name in [*graphs, *reversed(graphs)]:
            is_mega, graph, shared = graphs[name]
            us = (bench.mega_us(graph) if is_mega else bench.chain_us(graph)) / shared
            if number:
                times[name].append(us)
    return {name: np.array(values) for name, values in times.items()}


def reference_us(bench: Bench, rounds: int) -> NDArray[np.float64]:
    """Us of a layer of the torch reference; the first two rounds are the warm-up."""
    layer = bench.kinds()["sliding"][0]
    gpu, config = torch.device("cuda"), bench.config
    slice_ = Slice(config, TP, layer, bench.tensors[layer])
    x = torch.randn(16, config.hidden_size, device=gpu)
    kv = [torch.randn(config.num_key_value_heads // TP, POSITION + 16, config.head_dim, device=gpu)] * 2
    times = []
    for _ in range(rounds + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        layer_states(slice_, x, project(slice_, x, POSITION), kv, "sumsq")
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) * 1000)
    return np.array(times[2:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=62)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    args = parser.parse_args()
    bench = Bench(preset("muse-spark-open-tp8-slice"), args.layers)
    times = measure(bench, args.rounds)
    times["B0 sliding"] = reference_us(bench, args.rounds)
    print(f"{torch.cuda.get_device_name()}, {args.layers} layers, us, median [95 % interval]")
    figures = {name: bootstrap_median(values) for name, values in sorted(times.items())}
    for name, us in figures.items():
        print(f"{name:16s} {us.median:9.1f} [{us.low:.1f} {us.high:.1f}] n {us.count}")
    if args.json is not None:
        told = {"layers": args.layers, "us": {name: us.to_json() for name, us in figures.items()}}
        args.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    for one, other in RATIOS:
        ratio = bootstrap_median(times[one] / times[other])
        print(f"{one} / {other}: {ratio.median:.4f} [{ratio.low:.4f} {ratio.high:.4f}]")


if __name__ == "__main__":
    main()
