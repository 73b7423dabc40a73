"""One of two processes under ``torchrun``, each with some ranks of `mini` on a GPU of its own.

``torchrun --standalone --nproc-per-node 2 -m tests.gpu.real_ranks_program RESULTS``. Every case compares what
the processes computed with virtual ranks on the GPU of process 0, bit for bit. A process writes a line of
JSON for each case as it ends; one that fails does not keep the others from running.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from musetrace.abi import StampLayout
from musetrace.errors import DeviceError
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cuda_device import JOB_TABLE, CudaDevice
from musetrace.muse.cuda_model import RandomRanks, RankWeights, UploadedShares
from musetrace.muse.cuda_requirements import require_gpu
from musetrace.muse.device import TOKENS, LaunchTimeoutError
from musetrace.muse.launch_plan import launch_plan
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.peer_requirements import own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.muse.reference import embed
from musetrace.muse.sharding import WholeShares
from musetrace.muse.weights import ModelWeights, synthesize
from musetrace.record.process_place import process_place

CONFIG = preset("mini")
PLAN = launch_plan(CONFIG, CONFIG.num_hidden_layers)
CAPACITY = 512
PASSES = 20
BUDGET_NS = 2_000_000_000
SHORT_BUDGET_NS = 200_000_000
REGISTER_SLOT_BYTES = 4
# Then the process ends, whatever it waits for.
LONGEST_S = 100
PLACE = process_place(os.environ)
assert PLACE is not None, "start it with torchrun"
GPU = torch.device("cuda", PLACE.local_process)
MODULE = require_gpu(PLACE)

Logits = npt.NDArray[np.float32]
Digests = dict[str, str]
Figures = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """How the ranks are dealt: the same blocks for a real rank as for a virtual one, for the same sums."""

    tp: int
    blocks: int
    stop4: str
    random: bool = False  # weights of RandomRanks, of which no process has the whole model

    def numbers(self, budget_ns: int = BUDGET_NS) -> dict[str, Any]:
        layers = CONFIG.num_hidden_layers
        return {
            "tp": self.tp,
            "blocks": self.blocks,
            "stop4": self.stop4,
            "capacity": CAPACITY,
            "layers": layers,
            "budget_ns": budget_ns,
        }


RANDOM = Grid(4, 33, "gather", random=True)
GRIDS = [Grid(tp, 132 // tp, stop4) for tp in (2, 4) for stop4 in ("sumsq", "gather")]


@cache
def model() -> ModelWeights:
    return synthesize(CONFIG, seed=3)


class Uploaded(UploadedShares):
    """Weights that stay on the GPU, for all devices of a process."""

    layer = cache(UploadedShares.layer)
    head = cache(UploadedShares.head)


class Random(RandomRanks):
    """The same."""

    layer = cache(RandomRanks.layer)
    head = cache(RandomRanks.head)


@cache
def weights(tp: int, random_ranks: bool) -> RankWeights:
    if random_ranks:
        return Random(CONFIG, tp, 3, GPU)
    return Uploaded(WholeShares(model()), tp, GPU)


@cache
def residual(number: int) -> Logits:
    """Embedded random tokens of a pass."""
    ids = np.random.default_rng(number).integers(CONFIG.vocab_size, size=TOKENS)
    embedded: Logits = embed(CONFIG, model().head, torch.from_numpy(ids)).numpy()
    return embedded


def position_of(number: int) -> int:
    return number % PASSES * TOKENS


@contextmanager
def real_ranks(grid: Grid, budget_ns: int = BUDGET_NS, connect: bool = True) -> Iterator[PeerDevice]:
    """A device of this process's ranks. Whoever fails leaves the group, so that the other does not wait."""
    numbers = grid.numbers(budget_ns)
    with ProcessGroup(PLACE, timeout_s=60) as group:
        require_agreement(group, own_facts(numbers))
        device = PeerDevice(MODULE, CONFIG, group, rank_share(PLACE, CONFIG, grid.tp), **numbers)
        device.load(weights(grid.tp, grid.random))
        if connect:
            device.connect()
        yield device
        device.close()


def virtual_ranks(grid: Grid) -> CudaDevice:
    """A device of all ranks, on this process's GPU."""
    device = CudaDevice(MODULE, CONFIG, **grid.numbers())
    device.load(weights(grid.tp, grid.random))
    return device


def run_pass(device: CudaDevice, number: int, build: str = "off", graph: int | None = None) -> Logits:
    position, failure = position_of(number), None
    device.set_residual(residual(number % PASSES))
    try:
        if graph is not None:
            device.wait(device.replay(graph, position, 0))
        else:
            tickets = [device.launch(p.device_kind, p.device_layer, position, build) for p in PLAN]
            device.wait(tickets[-1])
    except DeviceError as error:
        failure = error
    if isinstance(device, PeerDevice):
        device.end_pass(position, failure)
    elif failure is not None:
        raise failure
    return device.logits()


def state_of(device: CudaDevice, first_rank: int) -> Digests:
    """Residual stream, keys and values of every layer, by rank of the model."""
    digests = {}
    for rank in range(device.ranks):
        parts = [device.residual(rank)]
        for layer in range(device.layers):
            parts += device.kv(rank, layer)
        digest = sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        digests[str(first_rank + rank)] = digest.hexdigest()
    return digests


@cache
def expected(grid: Grid) -> tuple[list[bytes], Digests]:
    """Logits of each pass, and the state behind them, of virtual ranks."""
    device = virtual_ranks(grid)
    logits = [run_pass(device, number).tobytes() for number in range(PASSES)]
    return logits, state_of(device, 0)


def compare(device: PeerDevice, grid: Grid, logits: list[Logits], state: bool = True) -> None:
    """Behind all passes of a case, in both processes; process 0 hears of the other's, and compares."""
    mine = state_of(device, PLACE.process * device.ranks) if state else {}
    digests = [sha256(values.tobytes()).hexdigest() for values in logits]
    told = device._group.exchange_any(json.dumps([mine, digests]).encode())
    if PLACE.process != 0:
        return
    parts = [json.loads(text) for text in told]
    assert parts[0][1] == parts[1][1], "the processes have different logits"
    reference, reference_state = expected(grid)
    wrong = [n for n, values in enumerate(logits) if values.tobytes() != reference[n % PASSES]]
    assert not wrong, (
        f"logits of passes {wrong[:5]} and {len(wrong)} in all differ from those of virtual ranks"
    )
    if state:
        assert parts[0][0] | parts[1][0] == reference_state, "residual stream, keys or values differ"


def timed(run: Callable[[int], Logits], passes: int) -> tuple[list[Logits], Figures]:
    logits, times_us = [], []
    for number in range(passes):
        start_ns = time.perf_counter_ns()
        logits.append(run(number))
        times_us.append((time.perf_counter_ns() - start_ns) / 1000)
    return logits, {"passes": passes, "pass_us": round(float(np.median(times_us)))}


def capture(device: CudaDevice, build: str) -> tuple[int, torch.Tensor]:
    """The graph of a pass, and the regions that it stamps."""
    layout = StampLayout(device.blocks, JobTable.built_in(JOB_TABLE).slots, REGISTER_SLOT_BYTES)
    regions = torch.zeros(len(PLAN), device.ranks * layout.region_bytes, dtype=torch.uint8, device=GPU)
    torch.cuda.synchronize()
    addresses = [region.data_ptr() if build != "off" else 0 for region in regions]
    requests = [
        (planned.device_kind, planned.device_layer, address, number)
        for number, (planned, address) in enumerate(zip(PLAN, addresses, strict=True))
    ]
    return device.capture(requests, build), regions


def equal_to_virtual_ranks(grid: Grid, ways: str) -> Figures:
    """20 passes in one of the ways: how they are launched, and the build."""
    launches, build = ways.split()
    with real_ranks(grid) as device:
        graph, regions = capture(device, build) if launches == "graph" else (None, None)
        device._device.set_delay_seed(grid.tp)
        logits, figures = timed(lambda number: run_pass(device, number, build, graph), PASSES)
        stamped = regions is not None and build == "register"
        every_launch = bool(regions.any(dim=1).all()) if stamped else True  # type: ignore[union-attr]
        compare(device, grid, logits)
    assert every_launch, "a launch of the graph stamped nothing"
    return figures


def a_thousand_passes() -> Figures:
    with real_ranks(GRIDS[0]) as device:
        graph, _ = capture(device, "off")
        logits, figures = timed(lambda number: run_pass(device, number, graph=graph), 1000)
        compare(device, GRIDS[0], logits)
    return figures


def random_delays() -> Figures:
    """100 passes of the build that sleeps at every job, elsewhere each time and in each process."""

    def run(number: int) -> Logits:
        device._device.set_delay_seed(1 + number)
        return run_pass(device, number, "delays")

    with real_ranks(GRIDS[3]) as device:
        logits, figures = timed(run, 100)
        compare(device, GRIDS[3], logits)
    return figures


def late_processes() -> Figures:
    """One process or the other is up to 20 ms late at a pass."""
    chooser = random.Random(PLACE.process)

    def run(number: int) -> Logits:
        time.sleep(chooser.choice([0.0, 0.0, 0.005, 0.02]))
        return run_pass(device, number)

    with real_ranks(GRIDS[0]) as device:
        logits, figures = timed(run, PASSES)
        compare(device, GRIDS[0], logits)
    return figures


def a_lost_block() -> Figures:
    """Of rank 0, which process 0 holds; both fail, with a report of their own or the other's name."""
    with real_ranks(GRIDS[1], SHORT_BUDGET_NS) as device:
        run_pass(device, 0)
        if PLACE.process == 0:
            device.set_lost_block(3)
        start = time.monotonic()
        try:
            run_pass(device, 1)
            failed = DeviceError("nothing failed")
        except DeviceError as error:
            failed = error
        seconds = time.monotonic() - start
        device.set_lost_block(None)
        logits, figures = timed(lambda number: run_pass(device, number), PASSES)
        compare(device, GRIDS[1], logits)
        lines = [text.decode() for text in device._group.exchange_any(str(failed).encode())]
    if PLACE.process == 0:
        assert isinstance(failed, LaunchTimeoutError), lines
        assert "block 3 " in lines[0], lines
        assert "rank 0 " in lines[0], lines
        assert "stop1_wait_ranks" in lines[0], lines
        assert ("rank 1 block 3 " in lines[1] and "stop1_wait_ranks" in lines[1]) or "process 0" in lines[
            1
        ], lines
    return figures | {"failed_after_s": round(seconds, 2), "said": lines}


def a_launch_before_peers_are_connected() -> Figures:
    with real_ranks(GRIDS[0], connect=False) as device:
        try:
            device.launch("entry", 0, 0)
            said = "nothing"
        except DeviceError as error:
            said = str(error)
    assert "not connected" in said, said
    return {"said": said}


def every_sm_for_one_rank() -> Figures:
    """One rank on all SMs of a GPU, which no virtual ranks can equal: near, and the same each time."""
    grid = Grid(2, 132, "sumsq")
    with real_ranks(grid) as device:
        logits, figures = timed(lambda number: run_pass(device, number), 2 * PASSES)
    assert all((logits[n] == logits[n + PASSES]).all() for n in range(PASSES)), "a repeat differs"
    error = 0.0
    if PLACE.process == 0:
        other = np.frombuffer(expected(GRIDS[0])[0][0], dtype=np.float32).reshape(TOKENS, -1)
        error = float(np.sqrt(np.square(logits[0] - other).mean() / np.square(other).mean()))
        assert error < 0.1, f"logits differ from those on 66 blocks by {error:.3f} of their rms"
    return figures | {"error": round(error, 5)}


def a_killed_process() -> Figures:
    """The last case: process 1 does not come back. Process 0 says so, and its GPU runs virtual ranks."""
    with ProcessGroup(PLACE, timeout_s=60) as group:
        numbers = GRIDS[0].numbers(SHORT_BUDGET_NS)
        device = PeerDevice(MODULE, CONFIG, group, rank_share(PLACE, CONFIG, GRIDS[0].tp), **numbers)
        device.load(weights(GRIDS[0].tp, False))
        device.connect()
        run_pass(device, 0)
        if PLACE.process == 1:
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        try:
            run_pass(device, 1)
            said = "nothing"
        except DeviceError as error:
            said = str(error)
        seconds = time.monotonic() - start
    assert said.startswith("process 1 of 2 is gone"), said
    assert seconds < 10, f"it took {seconds:.1f} s"
    del device
    again = virtual_ranks(GRIDS[0])
    assert run_pass(again, 0).tobytes() == expected(GRIDS[0])[0][0], "the GPU computes something else now"
    return {"said": [said], "failed_after_s": round(seconds, 2)}


WAYS = ("eager off", "eager register", "eager delays", "graph off", "graph register")
CASES: dict[str, Callable[[], Figures]] = {
    **{
        f"TP{grid.tp} {grid.stop4} {ways}": lambda grid=grid, ways=ways: equal_to_virtual_ranks(grid, ways)
        for grid in GRIDS
        for ways in WAYS
    },
    "random weights of each rank": lambda: equal_to_virtual_ranks(RANDOM, "graph register"),
    "a launch before peers are connected": a_launch_before_peers_are_connected,
    "every SM for one rank": every_sm_for_one_rank,
    "late processes": late_processes,
    "a lost block": a_lost_block,
    "100 passes with random delays": random_delays,
    "1,000 passes": a_thousand_passes,
    "a killed process": a_killed_process,
}


def run_cases(cases: dict[str, Callable[[], Figures]], results: Path) -> None:
    """All of them, one after the other; ``results`` with the process's number behind it gets a line each."""
    # torchrun ends the other process when one is killed; it has something to say first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(LONGEST_S)
    for name, case in cases.items():
        start = time.monotonic()
        result: Figures = {"case": name}
        try:
            result |= case()
        except Exception as error:
            result["error_line"] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        result["seconds"] = round(time.monotonic() - start, 2)
        with results.with_suffix(f".{PLACE.process}").open("a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    run_cases(CASES, Path(sys.argv[1]))
