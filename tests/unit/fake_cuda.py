"""A GPU that is none: the compiled CUDA module and torch's part of it, for tests of the Python around them.

Its device runs nothing. A launch stamps its region as the kernel does: the jobs of its kind, in every block,
with the epoch of the request plus that of the step. It insists on a cleared region unless a test says not.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.job_table import JobTable
from tests.fake_peer_clock import FilePeerClock
from tests.host_device import aligned_zeros
from tests.unit.fake_chain import FakeBaselineChain, chain_maker

SMS = 132
FREE_BYTES, TOTAL_BYTES = 140_000_000_000, 150_000_000_000
SLOT_BYTES = {"register": 4, "store": 8}
OPS_ELSEWHERE = {
    "entry": {"entry", "qkv", "exchange"},
    "head": {"lm_head"},
    "draft_head": {"lm_head"},
    "draft_context": {"exchange", "embed", "fc", "context", "qkv"},
    "draft_layer": {"attention", "o_proj", "stop1", "gate_up", "down", "stop2", "qkv"},
    "draft_tree": {"tree"},
    "embed": {"embed"},
    "accept": {"accept"},
    "keep_kv": {"accept"},
}
# Launches with a job table of their own, and which of the first slots is theirs.
TABLES = dict.fromkeys(("draft_context", "draft_layer"), ("muse_draft", 1))
TABLES |= dict.fromkeys(("draft_tree", "embed", "accept", "keep_kv"), ("muse_step", 2))
_SITE = [job.name for job in JobTable.built_in("muse_hopper").jobs].index("stop1_wait_ranks")
STEP: dict[str, Any] = {
    "position": 0,
    "tokens": [0] * 16,
    "parents": [0, *range(15)],
    "kept": 0,
    "path": [],
    "chosen": [],
    "top_k": 8,
    "temperature": 0.0,
    "seed": 0,
}
REPORT = {"site": _SITE, "rank": 1, "block": 3, "warp": 4, "want": 1, "got": 0, "waited_ns": 250_000_000}


class LaunchFailed(RuntimeError):
    """As the compiled one."""


@dataclass
class FakeMuseDevice:
    """Takes what the compiled device takes; ``log`` has what was asked of it, in order."""

    shape: dict[str, float]
    stop4: str = "sumsq"
    loopback: bool = False
    programmatic: bool = True
    budget_ns: int = 0
    first_rank: int = 0
    held: int = 0
    stream: int = 77
    log: list[Any] = field(default_factory=list)
    graphs: list[tuple[list[Any], str]] = field(default_factory=list)
    stored: dict[tuple[str, int, int], npt.NDArray[Any]] = field(default_factory=dict)
    layers: dict[tuple[int, int], tuple[dict[str, int], bool, bool]] = field(default_factory=dict)
    heads: dict[int, dict[str, int]] = field(default_factory=dict)
    state: tuple[int, int] = (-1, -1)
    report: dict[str, int] | None = None
    lost_block: int = 0xFFFFFFFF
    peers: list[bytes] | None = None
    draft: dict[str, Any] | None = None
    draft_layers: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    step_state: dict[str, Any] = field(default_factory=lambda: dict(STEP))
    stamp_rows: tuple[int, ...] = ()
    clock_ns: Callable[[], int] = time.time_ns
    insists_on_cleared: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.ranks = 1 if self.loopback else self.held or int(self.shape["ranks"])
        self.alone = self.loopback or self.ranks == self.shape["ranks"]
        self.failed = False
        blocks = self.ranks * int(self.shape["blocks"])
        if blocks > SMS:
            raise ValueError(f"{blocks} blocks do not fit this GPU, which holds {SMS} at once")
        if self.shape["head_dim"] != 64:
            raise ValueError("head_dim must be 64")

    def set_layer(self, rank: int, layer: int, addresses: dict[str, int], *facts: bool) -> None:
        self.layers[rank, layer] = (addresses, *facts)  # type: ignore[assignment]

    def set_head(self, rank: int, addresses: dict[str, int]) -> None:
        self.heads[rank] = addresses

    def set_rope(self, address: int) -> None:
        self.log.append("rope")

    def set_state(self, position: int, epoch: int = 0) -> None:
        if position + 16 > self.shape["capacity"]:
            raise ValueError(f"the KV cache is full: position {position} + 16 tokens")
        self.state = (position, epoch)
        self.log.append(("state", position, epoch))

    def set_epoch(self, epoch: int) -> None:
        self.state = (self.state[0], epoch)

    def set_stamp_rows(self, slots: int, *first_slots: int) -> None:
        self.stamp_rows = (slots, *first_slots)

    def add_draft(self, shape: dict[str, Any], in_flight_bytes: int) -> None:
        self.log.append("draft")
        self.draft = dict(shape)
        self.peers = None

    def set_draft_rope(self, address: int) -> None:
        self.log.append("draft_rope")

    def set_draft(self, rank: int, addresses: dict[str, int]) -> None:
        self.draft_layers[rank, -1] = addresses

    def set_draft_layer(self, rank: int, layer: int, addresses: dict[str, int]) -> None:
        self.draft_layers[rank, layer] = addresses

    def set_draft_values(self, name: str, rank: int, layer: int, values: npt.NDArray[Any]) -> None:
        self.set_values(f"draft_{name}", rank, layer, values)

    def set_step(self, step: dict[str, Any]) -> None:
        self.log.append(("step", *sorted(step)))
        self.step_state |= step

    def step(self) -> dict[str, Any]:
        return dict(self.step_state)

    def handles(self) -> list[bytes]:
        self.log.append("handles")
        what = b"" if self.draft is None else b" and its draft"
        return [b"rank %3d" % (self.first_rank + rank) + what for rank in range(self.ranks)]

    def connect(self, handles: list[bytes]) -> None:
        self.log.append("connect")
        self.peers = handles

    def disconnect(self) -> None:
        self.log.append("disconnect")
        self.peers = None

    def withdraw_handles(self) -> None:
        self.log.append("withdraw")

    def reset(self) -> None:
        self.log.append("reset")
        self.failed = False

    def launch(self, request: tuple[str, int, int, int], build: str) -> None:
        if self.failed or not (self.alone or self.peers):
            raise RuntimeError("not connected, or not reset")
        self.log.append((*request[:2], build))
        kind, _, address, epoch = request
        if kind in TABLES or kind == "draft_head":
            assert self.draft is not None, "a launch of a draft that the device has not"
        if kind == "accept":
            # It always decodes one token, the same.
            self.step_state |= {"position": self.step_state["position"] + 1, "chosen": [1], "path": [0]}
        if self.lost_block != 0xFFFFFFFF and kind == "layer" and self.report is None:
            self.report = dict(REPORT)
        if address and build in SLOT_BYTES:
            self._stamp(kind, address, epoch + self.state[1], SLOT_BYTES[build])

    def capture(self, requests: Sequence[tuple[str, int, int, int]], build: str) -> int:
        self.log.append("capture")
        self.graphs.append((list(requests), build))
        return len(self.graphs) - 1

    def replay(self, graph: int) -> None:
        self.log.append("replay")
        requests, build = self.graphs[graph]
        for request in requests:
            self.launch(request, build)

    def synchronize(self) -> None:
        report, self.report = self.report, None
        if report is not None:
            self.failed = not self.alone
            raise LaunchFailed(report)

    def values(self, name: str, rank: int = 0, layer: int = 0) -> npt.NDArray[Any]:
        self.synchronize()
        if name == "logits":
            vocab = int(self.shape["vocab"])
            return np.tile(np.arange(vocab, dtype=np.float32) + self.first_rank + rank, (16, 1))
        return self.stored[name, rank, layer]

    def set_values(self, name: str, rank: int, layer: int, values: npt.NDArray[Any]) -> None:
        if not values.flags.c_contiguous:
            raise ValueError("values have the wrong type or order")
        self.stored[name, rank, layer] = values.copy()

    def set_lost_block(self, block: int) -> None:
        self.lost_block = block

    def fit(self, build: str) -> dict[str, int]:
        return {"blocks": SMS, "registers": 168, "local_bytes": 0, "shared_bytes": 1}

    def _stamp(self, kind: str, address: int, epoch: int, slot_bytes: int) -> None:
        name, part = TABLES.get(kind, ("muse_hopper", 0))
        table = JobTable.built_in(name)
        slots, *first_slots = self.stamp_rows or (table.slots, 0)
        layout = StampLayout(int(self.shape["blocks"]), slots, slot_bytes)
        own = slice(first_slots[part], first_slots[part] + table.slots)
        size = layout.region_bytes
        memory = np.frombuffer((ctypes.c_uint8 * (size * self.ranks)).from_address(address), dtype=np.uint8)
        assert not (self.insists_on_cleared and memory.any()), "a region that is not cleared"
        jobs = table.pair_jobs
        only, others = OPS_ELSEWHERE.get(kind), {"entry", "lm_head"}
        ops = [table.op_name(int(job)) if job >= 0 else "" for job in jobs]
        stamped = np.array([bool(op) and (op in only if only else op not in others) for op in ops])
        for rank in range(self.ranks):
            region = memory[rank * size : (rank + 1) * size]
            t0 = self.clock_ns()
            headers = layout.headers(region)
            headers["time_ns"], headers["epoch"], headers["sm"] = t0, epoch, np.arange(layout.blocks)
            begin = t0 + 10 * np.arange(len(jobs))
            pairs = np.stack([begin, begin + 7], axis=1) * stamped[:, None]
            layout.stamps(region)[:, own] = pairs.reshape(-1).astype(f"<u{slot_bytes}")


class FakeCopies:
    """Copies at once, between host tensors."""

    def __init__(self, launches: int, gpu: torch.device) -> None:
        self.log: list[str] = []
        self._hosts: dict[int, npt.NDArray[np.uint8]] = {}
        self._regions: dict[int, Tensor] = {}
        self.waits = 0

    def allocate(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        host = aligned_zeros(size_bytes)
        self._hosts[host.ctypes.data], self._regions[host.ctypes.data] = host, self.regions(1, size_bytes)
        return host

    def regions(self, launches: int, size_bytes: int) -> Tensor:
        return torch.zeros(launches, size_bytes, dtype=torch.uint8)

    def region_of(self, address: int) -> Tensor:
        return self._regions[address]

    def fetch(self, regions: Tensor, addresses: Sequence[int]) -> FakeCopies:
        self.log.append("fetch")
        for region, address in zip(regions, addresses, strict=False):
            self._hosts[address][:] = region.numpy()
        regions.zero_()
        return self

    def hold_launches(self) -> None:
        self.log.append("hold")

    def synchronize(self) -> None:
        self.waits += 1


def compiled_module(gpus: int, ahead_ns: int) -> ModuleType:
    """What stands for the compiled module; ``made`` are its devices, ``clocks_of`` whose clocks were read."""
    module = ModuleType("musetrace._cuda")
    made: list[FakeMuseDevice] = []
    chains: list[FakeBaselineChain] = []
    chosen: list[int] = []  # set as the current device
    clocks_of: list[int] = []
    current = threading.local()  # CUDA has a current device for each thread

    def muse_device(shape: dict[str, float], **options: Any) -> FakeMuseDevice:
        made.append(FakeMuseDevice(shape, clock_ns=clock_ns, **options))
        return made[-1]

    def set_device(device: int) -> None:
        chosen.append(device)
        current.device = device

    def clock_reads(count: int) -> npt.NDArray[np.uint64]:
        clocks_of.append(getattr(current, "device", 0))
        return clock_ns() + 32 * np.arange(count, dtype=np.uint64)

    def clock_ns() -> int:
        return time.time_ns() + ahead_ns

    module.__dict__.update(
        device_count=lambda: gpus,
        LaunchFailed=LaunchFailed,
        MuseDevice=muse_device,
        BaselineChain=chain_maker(chains),
        chains=chains,
        clock_reads=clock_reads,
        set_device=set_device,
        clocks_of=clocks_of,
        PeerClock=lambda: FilePeerClock(clock_ns),
        chosen=chosen,
        made=made,
    )
    return module


def install(monkeypatch: pytest.MonkeyPatch, gpus: int = 1, ahead_ns: int = 0) -> ModuleType:
    """Usable Hopper GPUs for this test, whose clocks are ahead of the host's. Returns the module."""
    from musetrace.muse import cuda_device

    module = compiled_module(gpus, ahead_ns)
    chosen = module.chosen
    monkeypatch.setitem(sys.modules, "musetrace._cuda", module)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(multi_processor_count=SMS, uuid=f"GPU-{device}"),
    )
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[-1] if chosen else 0)
    for name, value in {
        "is_available": True,
        "get_device_capability": (9, 0),
        "get_device_name": "NVIDIA H200",
        "mem_get_info": (FREE_BYTES, TOTAL_BYTES),
        "synchronize": None,
        "device_count": gpus,
        "can_device_access_peer": True,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(cuda_device, "GPU", torch.device("cpu"))
    monkeypatch.setattr(cuda_device, "StampCopies", FakeCopies)
    return module
