"""Two kernels of somebody else for tests of the recorder on a GPU, compiled by NVRTC through torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from musetrace.declare import NewJob, Role, cuda_source
from musetrace.job_table import JobTable

HEADERS = Path(__file__).parents[2] / "csrc" / "include"
MODES = {"store": 1, "register": 2}
WARPS = 4
# Every loop by the clock ends after so long.
MOST_SPIN_NS = 100_000_000
ROLES = [Role("producer", 0, 0), Role("consumer", 1, 3, stamped_by=(1,)), Role("block", 0, 3, owner="block")]
GEMM_JOBS = [
    NewJob("load", "tile", "load", "producer", iterations=4, payload=True),
    NewJob("multiply", "tile", "compute", "consumer", iterations=4),
    NewJob("life", "life", "compute", "block"),
]
REDUCE_JOBS = [NewJob("load", "rows", "load", "producer"), NewJob("add", "rows", "compute", "consumer")]

# `tiles` of `ns` each; `crash` writes where nothing is. Some torch wants extern "C" in front of all else.
GEMM = """extern "C" __global__ void gemm(int tiles, int ns, int crash, void* region);
#include "musetrace/stamp.cuh"
%(table)s
__device__ void spin(int ns) {
    const unsigned long long begin = musetrace::stamp_clock_ns();
    while (musetrace::stamp_clock_ns() - begin < (unsigned long long)ns) {}
}
extern "C" __global__ void gemm(int tiles, int ns, int crash, void* region) {
    musetrace::KernelStamps<Gemm> stamps(region);
    if (threadIdx.x == 0) MUSETRACE_BEGIN(stamps, Gemm::life);
    if (threadIdx.x < 32) {
        auto warp = stamps.role<Gemm::producer>();
        for (int tile = 0; tile < tiles; ++tile) {
            MUSETRACE_BEGIN(warp, Gemm::load, tile);
            MUSETRACE_PAYLOAD(warp, Gemm::load, 100 + tile, tile);
            spin(ns);
            MUSETRACE_END(warp, Gemm::load, tile);
        }
        MUSETRACE_FLUSH(warp);
    } else {
        auto warp = stamps.role<Gemm::consumer>();
        for (int tile = 0; tile < tiles; ++tile) {
            MUSETRACE_BEGIN(warp, Gemm::multiply, tile);
            spin(ns);
            MUSETRACE_END(warp, Gemm::multiply, tile);
        }
        MUSETRACE_FLUSH(warp);
    }
    __syncthreads();
    if (crash) *reinterpret_cast<volatile int*>(16) = 1;
    if (threadIdx.x == 0) MUSETRACE_END(stamps, Gemm::life);
}
"""
REDUCE = """extern "C" __global__ void reduce(void* region);
#include "musetrace/stamp.cuh"
%(table)s
extern "C" __global__ void reduce(void* region) {
    musetrace::KernelStamps<Reduce> stamps(region);
    if (threadIdx.x < 32) {
        auto warp = stamps.role<Reduce::producer>();
        MUSETRACE_BEGIN(warp, Reduce::load);
        MUSETRACE_END(warp, Reduce::load);
        MUSETRACE_FLUSH(warp);
    } else {
        auto warp = stamps.role<Reduce::consumer>();
        MUSETRACE_BEGIN(warp, Reduce::add);
        MUSETRACE_END(warp, Reduce::add);
        MUSETRACE_FLUSH(warp);
    }
}
"""


@dataclass(frozen=True)
class Kernels:
    """Both kernels in one mode, with their tables. Launches go into torch's current stream."""

    gemm_kernel: Any
    reduce_kernel: Any
    gemm_table: JobTable
    reduce_table: JobTable

    def gemm(self, stamps: Any, blocks: int, tiles: int = 4, ns: int = 1000, crash: bool = False) -> None:
        """One launch; a block leaves a load and a multiply for each tile, and its life."""
        assert tiles * ns <= MOST_SPIN_NS
        args = [tiles, ns, int(crash), torch.from_dlpack(stamps)]
        self.gemm_kernel((blocks, 1, 1), (32 * WARPS, 1, 1), args)

    def reduce(self, stamps: Any, blocks: int) -> None:
        """One launch; a block leaves a load and an add."""
        self.reduce_kernel((blocks, 1, 1), (32 * WARPS, 1, 1), [torch.from_dlpack(stamps)])


def compile_kernels(mode: str) -> Kernels:
    """Both kernels, as they are built for a mode of stamps."""
    options = {
        "cuda_include_dirs": [str(HEADERS)],
        "nvcc_options": [f"-DMUSETRACE_STAMPS={MODES[mode]}", "-std=c++17"],
    }
    sources = {
        "gemm": GEMM % {"table": cuda_source("Gemm", "gemm", WARPS, ROLES, GEMM_JOBS)},
        "reduce": REDUCE % {"table": cuda_source("Reduce", "reduce", WARPS, ROLES[:2], REDUCE_JOBS)},
    }
    compiled = {
        name: torch.cuda._compile_kernel(f"{source}// {mode}\n", name, **options)
        for name, source in sources.items()
    }
    return Kernels(
        compiled["gemm"],
        compiled["reduce"],
        JobTable.declare("gemm", WARPS, ROLES, GEMM_JOBS),
        JobTable.declare("reduce", WARPS, ROLES[:2], REDUCE_JOBS),
    )
