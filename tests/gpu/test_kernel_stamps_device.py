"""The public header in a kernel that NVRTC compiles: what it stamps, leaves alone, and how it tells time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from musetrace.abi import StampLayout
from musetrace.declare import NewJob, Role, cuda_source
from musetrace.job_table import JobTable
from musetrace.store.decode import Flag, LaunchSpans, PairMap, decode_launch
from musetrace.store.payloads import Launch
from musetrace.store.stamp_batch import StampBatch

pytestmark = pytest.mark.gpu

MODES = {"store": 8, "register": 4}
BLOCKS, WARPS, EPOCH, TILES = 200, 5, 77, 4
CANARY = 0xA5
HEADERS = Path(__file__).parents[2] / "csrc" / "include"
TICK_NS = 32
ROLES = [
    Role("producer", 0, 0),
    Role("consumer", 1, 4, stamped_by=(1, 3)),
    Role("block", 0, 4, owner="block"),
]
JOBS = [
    NewJob("load", "tile", "load", "producer", iterations=TILES, payload=True),
    NewJob("wait", "tile", "wait", "consumer", awaits="load", iterations=TILES),
    NewJob("go", "tile", "sync", "consumer", instant=True),
    NewJob("life", "tile", "compute", "block"),
]
# A spin of so many cycles of the SM's clock for each tile, which is known without the clock of the stamps:
# `spun` is how many it really was. Everything else is the header's.
SOURCE = """extern "C" __global__ void kernel(const int*, int*, int, int, void*);
#include "musetrace/stamp.cuh"
%(table)s
extern "C" __global__ void kernel(const int* cycles, int* spun, int tiles, int extra_job, void* region) {
    musetrace::KernelStamps<Jobs> stamps(region);
    if (threadIdx.x == 0) MUSETRACE_BEGIN(stamps, Jobs::life);
    if (threadIdx.x < 32) {
        auto warp = stamps.role<Jobs::producer>();
        for (int tile = 0; tile < tiles; ++tile) {
            const int wanted = cycles[tile];
            MUSETRACE_BEGIN(warp, Jobs::load, tile);
            const long long from = clock64();
            long long now = from;
            while (now - from < wanted) now = clock64();
            MUSETRACE_END(warp, Jobs::load, tile);
            MUSETRACE_PAYLOAD(warp, Jobs::load, 100 + tile, tile);
            if (threadIdx.x == 0) spun[blockIdx.x * tiles + tile] = now - from;
        }
        MUSETRACE_FLUSH(warp);
    } else {
        auto warp = stamps.role<Jobs::consumer>();
        MUSETRACE_INSTANT(warp, Jobs::go);
        for (int tile = 0; tile < tiles; ++tile) {
            MUSETRACE_BEGIN(warp, Jobs::wait, tile);
            MUSETRACE_END(warp, Jobs::wait, tile);
        }
#if MUSETRACE_STAMPS
        if (extra_job >= 0) warp.begin(extra_job, tiles);
#endif
        MUSETRACE_FLUSH(warp);
    }
    __syncthreads();
    if (threadIdx.x == 0) MUSETRACE_END(stamps, Jobs::life);
}
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    """The kernel as NVRTC makes it, by mode."""
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        pytest.skip("this torch cannot compile kernels at run time")
    source = SOURCE % {"table": cuda_source("Jobs", "device test", WARPS, ROLES, JOBS)}
    return {
        mode: compile_kernel(
            f"{source}// {mode}\n",
            "kernel",
            cuda_include_dirs=[str(HEADERS)],
            nvcc_options=[f"-DMUSETRACE_STAMPS={number}", "-std=c++17"],
        )
        for number, mode in enumerate(("off", "store", "register"))
    }


@pytest.fixture(scope="module")
def table() -> JobTable:
    return JobTable.declare("device test", WARPS, ROLES, JOBS)


class Region:
    """A region on the GPU with canaries around it."""

    def __init__(self, table: JobTable, slot_bytes: int, blocks: int = BLOCKS) -> None:
        self.layout = StampLayout(blocks, table.slots, slot_bytes)
        size = self.layout.region_bytes
        self._all = torch.full((size + 4096,), CANARY, dtype=torch.uint8, device="cuda")
        begin = 2048 + -self._all.data_ptr() % 128
        self.on_gpu = self._all[begin : begin + size]
        told = np.zeros(size, dtype=np.uint8)
        header = self.layout.region_header(told)
        for name, value in (
            ("blocks", blocks),
            ("slots", table.slots),
            ("slot_bytes", slot_bytes),
            ("epoch", EPOCH),
        ):
            header[name] = value
        self.on_gpu.copy_(torch.from_numpy(told))
        self._begin, self._end = begin, begin + size

    def neighbours_are_intact(self) -> bool:
        around = torch.cat([self._all[: self._begin], self._all[self._end :]])
        return bool((around == CANARY).all())

    def memory(self) -> np.ndarray[Any, Any]:
        return self.on_gpu.cpu().numpy()

    def header(self, name: str) -> int:
        return int(self.layout.region_header(self.memory())[name][0])

    def decoded(self, table: JobTable) -> LaunchSpans:
        memory = self.memory()
        headers, slots = self.layout.headers(memory), self.layout.stamps(memory)
        names = ("epoch", "sm", "overflow", "time_ns")
        columns: dict[str, Any] = {name: np.ascontiguousarray(headers[name]) for name in names}
        launch = Launch(0, 0, 0, "kernel", EPOCH, 0, 0)
        batch = StampBatch(launch, np.arange(len(headers), dtype=np.uint16), slots=slots, **columns)
        return decode_launch(batch, PairMap(table, table.slots // 2), None)


def run(
    kernel: Any, region: Region | None, tiles: int = TILES, extra_job: int = -1, cycles: int = 1000
) -> np.ndarray[Any, Any]:
    """Launch it; gives the cycles int32[blocks, tiles] that each tile spun: tile 0 does not spin."""
    wanted = torch.full((max(tiles, 1),), cycles, dtype=torch.int32, device="cuda")
    wanted[0] = 0
    spun = torch.zeros((BLOCKS, tiles), dtype=torch.int32, device="cuda")
    memory = torch.empty(0, dtype=torch.uint8, device="cuda") if region is None else region.on_gpu
    kernel((BLOCKS, 1, 1), (WARPS * 32, 1, 1), (wanted, spun, tiles, extra_job, memory))
    torch.cuda.synchronize()
    return spun.cpu().numpy()


def count(decoded: LaunchSpans, table: JobTable, job: str) -> int:
    return int((decoded.spans.job == [entry.name for entry in table.jobs].index(job)).sum())


@pytest.mark.parametrize("mode", MODES)
def test_each_instance_is_stamped(kernels: dict[str, Any], table: JobTable, mode: str) -> None:
    region = Region(table, MODES[mode])
    run(kernels[mode], region)
    decoded = region.decoded(table)
    assert set(decoded.spans.flag.tolist()) == {int(Flag.OK)}
    counts = [count(decoded, table, job.name) for job in table.jobs]
    assert counts == [BLOCKS * TILES, 2 * BLOCKS * TILES, 2 * BLOCKS, BLOCKS]
    loads = decoded.spans.job == 0
    payloads = np.asarray(decoded.spans.payload)[loads].reshape(BLOCKS, TILES)
    assert (payloads == 100 + np.arange(TILES)).all()
    assert (decoded.blocks, decoded.stale_blocks, decoded.overflow) == (BLOCKS, 0, 0)
    assert [region.header(name) for name in ("launches", "dropped_blocks", "mismatch")] == [1, 0, 0]
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", MODES)
def test_what_has_no_slot_is_counted_and_touches_nothing(
    kernels: dict[str, Any], table: JobTable, mode: str
) -> None:
    region = Region(table, MODES[mode])
    run(kernels[mode], region, tiles=TILES + 3, extra_job=0)
    decoded = region.decoded(table)
    counts = [count(decoded, table, job.name) for job in table.jobs]
    assert counts == [BLOCKS * TILES, 2 * BLOCKS * TILES, 2 * BLOCKS, BLOCKS]
    # Three tiles too many for the producer and for two consumers, and a job of another role for these.
    assert decoded.overflow == BLOCKS * (3 + 2 * 3 + 2)
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", MODES)
def test_a_grid_that_is_too_large_stamps_what_fits(
    kernels: dict[str, Any], table: JobTable, mode: str
) -> None:
    region = Region(table, MODES[mode], blocks=BLOCKS - 70)
    run(kernels[mode], region)
    assert region.decoded(table).blocks == BLOCKS - 70
    assert region.header("dropped_blocks") == 70
    assert region.neighbours_are_intact()


@pytest.mark.parametrize(("built", "told"), [("store", "register"), ("register", "store")])
def test_a_region_for_another_build_is_left_alone(
    kernels: dict[str, Any], table: JobTable, built: str, told: str
) -> None:
    region = Region(table, MODES[told])
    run(kernels[built], region)
    assert region.header("mismatch") == MODES[built] << 24 | table.slots
    assert not region.memory()[128:].any()


@pytest.mark.parametrize("mode", ["off", *MODES])
def test_without_a_region_a_kernel_runs(kernels: dict[str, Any], mode: str) -> None:
    run(kernels[mode], None)


def durations(region: Region, table: JobTable) -> np.ndarray[Any, Any]:
    """Stamped ns int64[blocks, tiles] of the spins."""
    spans = region.decoded(table).spans
    return np.asarray(spans.dur)[spans.job == 0].astype(np.int64).reshape(BLOCKS, TILES)


@pytest.fixture(scope="module")
def ns_per_cycle(kernels: dict[str, Any], table: JobTable) -> float:
    """The SM's clock against the clock of the stamps, over spins of a millisecond: to 0.01 percent."""
    region = Region(table, MODES["store"])
    spun = run(kernels["store"], region, cycles=2_000_000)
    return float(np.median(durations(region, table)[:, 1:] / spun[:, 1:]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delay_us", [1, 2, 5, 10, 50])
def test_a_known_delay_is_reproduced(
    kernels: dict[str, Any], table: JobTable, ns_per_cycle: float, mode: str, delay_us: int
) -> None:
    """To one tick and one percent, less what lies around the spin: a span that does not spin."""
    region = Region(table, MODES[mode])
    spun = run(kernels[mode], region, cycles=round(1000 * delay_us / ns_per_cycle))
    beyond = durations(region, table) - spun * ns_per_cycle
    around = float(beyond[:, 0].mean())
    error = beyond[:, 1:] - around
    shown = np.percentile(error, [0, 10, 50, 90, 100]).round(1).tolist()
    print(f"{mode} {delay_us} us: error {shown} ns, mean {error.mean():.1f}; around it {around:.1f} ns")
    assert abs(np.median(error)) <= TICK_NS + 10 * delay_us
    assert abs(error.mean()) <= TICK_NS / 2 + 10 * delay_us
