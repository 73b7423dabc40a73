"""The draft's launches of the TP8 slice on an H200: a whole pass, and each kind of launch by itself.

``python -m tests.bench.draft_bench [--rounds N]``. All graphs are replayed in turn, forward and backward; the
table gives medians with 95 % bootstrap intervals, bytes of weights and the bandwidth that they come to. A row
of a limit is the pass with so many bytes of weights on their way.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from musetrace import _core, _cuda
from musetrace.abi import StampLayout
from musetrace.analysis.certainty.bootstrap import bootstrap_median
from musetrace.muse.config import preset
from musetrace.muse.cuda_draft import RandomDraft, add_draft, random_embedding
from musetrace.muse.cuda_weights import addresses
from musetrace.muse.device import shape_of
from musetrace.muse.draft.config import draft_of
from musetrace.muse.slice_weights import random_head

TP, BLOCKS, CAPACITY, POSITION = 8, 132, 8192, 4096
PATH = [0, 1, 2, 3, 4, 5, 6]
SLOT_BYTES = {"off": 0, "register": 4, "store": 8}
LIMITS = (18_432, 32_768, 49_152, 65_536, 98_304)
DEFAULT_LIMIT = 32_768
CONFIG = preset("muse-spark-open-tp8-slice")
DRAFT = draft_of(CONFIG)
LAYERS = DRAFT.num_hidden_layers
Request = tuple[str, int, int, int]


class Bench:
    """Devices that differ in how many bytes are on their way, over the same weights."""

    def __init__(self, limits: tuple[int, ...]) -> None:
        gpu = torch.device("cuda")
        weights = _Kept(RandomDraft(DRAFT, TP, 0, random_embedding(CONFIG, 0, gpu)))
        self._head = random_head(CONFIG, TP, 0, gpu)
        self._kept: list[Any] = [weights]
        self.devices = {limit: self._device(weights, limit) for limit in limits}

    def _device(self, weights: _Kept, limit: int) -> Any:
        device = _cuda.MuseDevice(shape_of(CONFIG, TP, BLOCKS, CAPACITY, 1), loopback=True)
        device.set_head(0, addresses(self._head))
        self._kept += add_draft(device, DRAFT, TP, CAPACITY, weights, limit)
        rng = np.random.default_rng(0)
        for which in range(len(DRAFT.target_layer_ids)):
            rows = rng.standard_normal((16, CONFIG.hidden_size), dtype=np.float32)
            device.set_draft_values("features", 0, which, rows)
        for layer in range(LAYERS):
            for name, shape in (("k", (1, CAPACITY, 128)), ("v", (1, 128, CAPACITY))):
                bits = torch.randn(shape).bfloat16().view(torch.int16).numpy().view(np.uint16)
                device.set_draft_values(name, 0, layer, bits)
        rest = [0] * (16 - len(PATH))
        device.set_step(
            {"position": POSITION, "tokens": [1] + [0] * 15, "kept": len(PATH), "path": PATH + rest}
        )
        return device

    def graph(self, limit: int, launches: list[tuple[str, int]], stamps: str) -> int:
        """Stamped into memory that is kept; launches of the head have the target's job table."""
        requests: list[Request] = []
        for number, (kind, layer) in enumerate(launches):
            table = "muse_hopper" if kind == "draft_head" else "muse_draft"
            slots = _core.abi.job_tables[table]["slots"]
            size = StampLayout(BLOCKS, slots, SLOT_BYTES[stamps]).region_bytes if stamps != "off" else 16
            memory = torch.zeros(size, dtype=torch.uint8, device="cuda")
            self._kept.append(memory)
            requests.append((kind, layer, memory.data_ptr() if stamps != "off" else 0, number + 1))
        return int(self.devices[limit].capture(requests, stamps))

    def us(self, limit: int, graph: int) -> float:
        """One replay, in us."""
        device = self.devices[limit]
        stream = torch.cuda.ExternalStream(device.stream)  # type: ignore[no-untyped-call]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record(stream)
        device.replay(graph)
        end.record(stream)
        device.synchronize()
        return float(begin.elapsed_time(end)) * 1000


class _Kept:
    """Weights that are made once for all devices."""

    def __init__(self, made: RandomDraft) -> None:
        self._outer = made.outer(0)
        self._layers = [made.layer(0, layer) for layer in range(LAYERS)]

    def outer(self, rank: int) -> dict[str, torch.Tensor]:
        return self._outer

    def layer(self, rank: int, layer: int) -> dict[str, torch.Tensor]:
        return self._layers[layer]


def weight_mb() -> dict[str, float]:
    """Bytes of weights that a launch reads, in MB."""
    hidden, inner = DRAFT.hidden_size, DRAFT.intermediate_size // TP
    heads, keys = DRAFT.num_attention_heads // TP * 128, DRAFT.num_key_value_heads // TP * 128
    qkv = (heads + 2 * keys) * hidden
    context = hidden * DRAFT.feature_width // TP + LAYERS * 2 * keys * hidden + qkv
    layer = hidden * heads + 3 * inner * hidden
    sizes = {
        "context": context,
        "layer": layer + qkv,
        "head": CONFIG.vocab_size // TP * hidden,
    }
    sizes["pass"] = context + LAYERS * layer + (LAYERS - 1) * qkv + sizes["head"]
    return {name: 2 * count / 1e6 for name, count in sizes.items()}


def measure(rounds: int) -> dict[str, NDArray[np.float64]]:
    """Us of a launch or a pass, two for each round; the first round is the warm-up."""
    bench = Bench(LIMITS)
    whole = [("draft_context", 0), *(("draft_layer", layer) for layer in range(LAYERS)), ("draft_head", 0)]
    # Many of a kind, so that the begin and the end of a graph count little; layers that others follow.
    kinds = {
        "context": ([("draft_context", 0)] * 8, 8),
        "layer": ([("draft_layer", layer) for layer in range(LAYERS - 1)] * 4, 4 * (LAYERS - 1)),
        "head": ([("draft_head", 0)] * 4, 4),
    }
    graphs = {
        f"pass {stamps}": (DEFAULT_LIMIT, bench.graph(DEFAULT_LIMIT, whole, stamps), 1)
        for stamps in SLOT_BYTES
    }
    for name, (launches, shared) in kinds.items():
        graphs[name] = (DEFAULT_LIMIT, bench.graph(DEFAULT_LIMIT, launches, "off"), shared)
    for limit in LIMITS:
        graphs[f"pass, {limit // 1024} KB"] = (limit, bench.graph(limit, whole, "off"), 1)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(rounds + 1):
        for name in [*graphs, *reversed(graphs)]:
            limit, graph, shared = graphs[name]
            us = bench.us(limit, graph) / shared
            if number:
                times[name].append(us)
    return {name: np.array(values) for name, values in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    times, sizes = measure(parser.parse_args().rounds), weight_mb()
    print(f"{torch.cuda.get_device_name()}, {BLOCKS} blocks, context {POSITION}, n = {len(times['head'])}")
    for name, values in times.items():
        us, mb = bootstrap_median(values), sizes[name.split()[0].rstrip(",")]
        rate = mb / us.median
        print(f"{name:16} {us.median:8.1f} us [{us.low:.1f} {us.high:.1f}]  {mb:7.1f} MB  {rate:5.2f} TB/s")


if __name__ == "__main__":
    main()
