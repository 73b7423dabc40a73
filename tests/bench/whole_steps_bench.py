"""Whole decode steps at full width on several GPUs, and their parts, each a CUDA graph.

``torchrun --standalone --nproc-per-node N -m tests.bench.whole_steps_bench [--layers L] [--guesses none]
[--rounds R] [--json FILE]``. All graphs are replayed in turn, forward and backward, so that stamps on and off
and both ways of stop 4 see the same GPUs. A replay's time is that of the process which took longest, between
events on its GPU, behind launches that brought all processes to the same place. The table gives medians with
95 % bootstrap intervals; differences are of neighbouring replays.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.analysis.certainty.bootstrap import bootstrap_median
from musetrace.muse.config import preset
from musetrace.muse.cuda_memory import memory_need
from musetrace.muse.cuda_model import RandomRanks
from musetrace.muse.cuda_requirements import require_gpu, require_memory
from musetrace.muse.device import FROM_STATE
from musetrace.muse.draft.config import DraftConfig, draft_of
from musetrace.muse.launch_plan import PlannedLaunch, gpu_step_plan, launch_plan
from musetrace.muse.opening import default_capacity
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.peer_requirements import own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.muse.slice_steps import fill_cache, fill_draft_cache, random_rows
from musetrace.muse.speculative.tree import TOP_K
from musetrace.record.process_place import ProcessPlace, process_place

MODEL, TP, CONTEXT, SMS, SEED = "muse-spark-open", 8, 4096, 132, 0
BUDGET_NS = 5_000_000_000
# Then a process ends, whatever it waits for.
LONGEST_S = 240
SLOT_BYTES = {"off": 0, "register": 4, "store": 8}
STOP4 = ("sumsq", "gather")
BEHIND = ("accept", "keep_kv")
# Launches in front of what is timed: an even number, all with exchanges between ranks.
LEAD_LAUNCHES = 8
CONFIG = preset(MODEL)


class KeptRanks(RandomRanks):
    """Made once, for both devices."""

    layer = cache(RandomRanks.layer)
    head = cache(RandomRanks.head)
    embedding = cache(RandomRanks.embedding)


class Side:
    """A device with one way of stop 4, and its graphs."""

    def __init__(
        self, place: ProcessPlace, stop4: str, layers: int, draft: DraftConfig | None, weights: KeptRanks
    ) -> None:
        share = rank_share(place, CONFIG, TP)
        numbers: dict[str, Any] = {
            "tp": TP,
            "blocks": SMS // share.held,
            "capacity": default_capacity(CONFIG, CONTEXT),
            "layers": layers,
            "stop4": stop4,
            "budget_ns": BUDGET_NS,
        }
        group = ProcessGroup(place)
        require_agreement(group, own_facts(numbers))
        self.device = PeerDevice(require_gpu(place), CONFIG, group, share, draft=draft, **numbers)
        self.device.load(weights)
        self.device.connect()
        self._kept: list[Tensor] = []
        self._drafts = draft is not None
        fill_cache(self.device, SEED)
        if draft is None:
            self.device.set_residual(random_rows(CONFIG, SEED, 0))
            self.plan = launch_plan(CONFIG, layers)
            lead = [PlannedLaunch("layer", layers - 1, 0, 0, "layer")] * LEAD_LAUNCHES
        else:
            self.device.load_random_draft(SEED)
            fill_draft_cache(self.device, SEED)
            tokens = [0] * 16
            self.device.set_step(
                position=CONTEXT, kept=0, tokens=tokens, top_k=TOP_K, temperature=0.0, seed=0
            )
            self.plan = gpu_step_plan(CONFIG, draft, layers)
            lead = [PlannedLaunch("draft_layer", 0, 0, 0, "draft_layer")] * LEAD_LAUNCHES
        self._lead = self.capture(lead, "off")
        self._stream = torch.cuda.ExternalStream(self.device.stream)  # type: ignore[no-untyped-call]

    def capture(self, plan: Sequence[PlannedLaunch], build: str) -> int:
        """A graph, stamped into memory that is kept."""
        slots = self.device.job_table.slots
        size = self.device.ranks * StampLayout(self.device.blocks, slots, SLOT_BYTES[build]).region_bytes
        requests = []
        for number, planned in enumerate(plan):
            address = 0
            if SLOT_BYTES[build]:
                self._kept.append(torch.zeros(size, dtype=torch.uint8, device=self.device.gpu))
                address = self._kept[-1].data_ptr()
            requests.append((planned.device_kind, planned.device_layer, address, number))
        torch.cuda.synchronize()
        return self.device.capture(requests, build)

    def parts(self) -> dict[str, list[PlannedLaunch]]:
        """A step, and where it has a draft, its draft and its verify pass."""
        parts = {"step": list(self.plan)}
        if self._drafts:
            draft = [one for one in self.plan if one.kind.startswith("draft_")]
            parts["draft"] = draft
            parts["verify"] = [one for one in self.plan if one not in draft and one.kind not in BEHIND]
        return parts

    def us(self, graph: int) -> float:
        """One replay on this process's GPU."""
        position = CONTEXT
        if self._drafts:
            self.device.set_step(position=CONTEXT)
            position = FROM_STATE
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self.device.replay(self._lead, position, 0)
        begin.record(self._stream)
        ticket = self.device.replay(graph, position, 0)
        end.record(self._stream)
        self.device.wait(ticket)
        return float(begin.elapsed_time(end)) * 1000


def streams_of(device: PeerDevice) -> list[str]:
    """A hash of the residual stream of each rank held here; empty for one that is not finite."""
    streams = [device.residual(rank) for rank in range(device.ranks)]
    return [sha256(one.tobytes()).hexdigest() if np.isfinite(one).all() else "" for one in streams]


def graphs_of(sides: dict[str, Side]) -> dict[str, tuple[Side, int]]:
    """Those of both ways by name, neighbours beside each other."""
    graphs = {}
    for stop4, side in sides.items():
        for part, plan in side.parts().items():
            builds = SLOT_BYTES if part == "step" and stop4 == STOP4[0] else ("off",)
            for build in builds:
                graphs[f"{part}, {stop4}, {build}"] = side, side.capture(plan, build)
    return graphs


def measure(graphs: dict[str, tuple[Side, int]], rounds: int) -> dict[str, list[float]]:
    """Us of each graph on this process, two for each round; the first round is the warm-up."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(rounds + 1):
        for name in [*graphs, *reversed(graphs)]:
            side, graph = graphs[name]
            us = side.us(graph)
            if number:
                times[name].append(us)
    return times


def document(all_times: list[dict[str, list[float]]], facts: dict[str, Any]) -> dict[str, Any]:
    """Medians and differences as JSON, of the times [process] of each graph."""
    longest: dict[str, NDArray[np.float64]] = {
        name: np.max([times[name] for times in all_times], axis=0) for name in all_times[0]
    }
    base = f"step, {STOP4[0]}, off"
    more = {
        name: bootstrap_median(us - longest[base])
        for name, us in longest.items()
        if name.startswith("step") and name != base
    }
    # Stamps are in every launch, stop 4 in those of layers.
    each = {STOP4[0]: ("launch", facts["launches"]), STOP4[1]: ("layer", facts["layers"])}
    shares = {}
    for name, us in more.items():
        what, number = each[name.split(", ")[1]]
        shares[f"{name}, a {what}"] = us.scaled(1 / number)
    return facts | {
        "us": {name: bootstrap_median(us).to_json() for name, us in longest.items()},
        "more_than": base,
        "more_us": {name: us.to_json() for name, us in more.items()},
        "more_us_each": {name: us.to_json() for name, us in shares.items()},
    }


def show(told: dict[str, Any]) -> None:
    """The table."""
    print(
        f"{told['processes']} x {told['gpu']}, TP {TP}, {told['layers']} of {CONFIG.num_hidden_layers} "
        f"layers, context {CONTEXT}, {told['launches']} launches a step"
    )
    print(f"one residual stream, the same bits on all ranks, finite: {told['one_stream']}")
    for name, us in told["us"].items():
        print(f"{name:24} {us['median']:9.1f} us [{us['low']:.1f} {us['high']:.1f}] n {us['count']}")
    print(f"more than {told['more_than']}:")
    for name, us in (told["more_us"] | told["more_us_each"]).items():
        print(f"{name:32} {us['median']:9.2f} us [{us['low']:.2f} {us['high']:.2f}] n {us['count']}")


def run(place: ProcessPlace, layers: int, guesses: str, rounds: int) -> dict[str, Any]:
    """Measure; every process gets the same document."""
    require_gpu(place)
    draft = None if guesses == "none" else draft_of(CONFIG)
    if draft is not None and layers < CONFIG.num_hidden_layers:
        draft = draft.within(layers)
    held = rank_share(place, CONFIG, TP).held
    require_memory(memory_need(CONFIG, TP, held, layers, CONTEXT, draft), MODEL)
    weights = KeptRanks(CONFIG, TP, SEED, torch.device("cuda", place.local_process))
    sides = {stop4: Side(place, stop4, layers, draft, weights) for stop4 in STOP4}
    times = measure(graphs_of(sides), rounds)
    group = ProcessGroup(place)
    streams = {stop4: streams_of(side.device) for stop4, side in sides.items()}
    told = [json.loads(text) for text in group.exchange_any(json.dumps([times, streams]).encode())]
    of_all = {stop4: {one for _, of_process in told for one in of_process[stop4]} for stop4 in sides}
    facts = {
        "one_stream": {
            stop4: len(of_stop4) == 1 and "" not in of_stop4 for stop4, of_stop4 in of_all.items()
        },
        "gpu": torch.cuda.get_device_name(),
        "processes": place.processes,
        "layers": layers,
        "guesses": guesses,
        "launches": len(sides[STOP4[0]].plan),
    }
    for side in sides.values():
        side.device.close()
    return document([of_process for of_process, _ in told], facts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=CONFIG.num_hidden_layers)
    parser.add_argument("--guesses", choices=("tree", "none"), default="tree")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    args = parser.parse_args()
    signal.alarm(LONGEST_S)
    place = process_place(os.environ)
    if place is None:
        raise SystemExit("start it with torchrun")
    begin = time.monotonic()
    told = run(place, args.layers, args.guesses, args.rounds)
    if place.process == 0:
        show(told)
        print(f"{time.monotonic() - begin:.1f} s")
        if args.json:
            Path(args.json).write_text(json.dumps(told, indent=1), encoding="utf-8")
        for stop4, same in told["one_stream"].items():
            if not same:
                raise SystemExit(f"{stop4}: the ranks' residual streams differ, or are not finite")


if __name__ == "__main__":
    main()
