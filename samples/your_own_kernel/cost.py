"""What the stamps of the GEMM cost: ``musetrace overhead --call cost.py:make``."""

from __future__ import annotations

import numpy as np
import torch
from gemm import Gemm, blocks, build_with_nvcc

import musetrace
from musetrace.abi import StampLayout
from musetrace.job_table import JobTable

M, N, K = 1408, 1536, 2048
# In a graph, or the time would be that of the host, which takes longer to launch the kernel than it runs.
LAUNCHES = 20
SLOT_BYTES = {"register": 4, "store": 8}


def make(stamps: str) -> musetrace.TimedStep:
    """A graph of launches of the GEMM that stamps so; the inputs are the same for all."""
    gemm = Gemm(build_with_nvcc(stamps))
    torch.manual_seed(0)
    a, b = (torch.randn(rows, K, device="cuda").bfloat16() for rows in (M, N))
    c = torch.empty(M, N, device="cuda")
    region = None if stamps == "off" else stamp_region(gemm.table, SLOT_BYTES[stamps])

    def launch() -> None:
        gemm(a, b, c, 0 if region is None else region.data_ptr())

    launch()  # the first one loads the kernel, which cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            launch()

    def step(_read_by_the_graph: object = (a, b, region)) -> torch.Tensor:
        # A graph knows addresses alone: whoever replays it keeps what lies there.
        graph.replay()
        return c

    of_a_block = LAUNCHES * sum(2 * job.iterations * len(job.stamped_by) for job in gemm.table.jobs)
    return musetrace.TimedStep(step, launches=LAUNCHES, stamps=(of_a_block, of_a_block * blocks(M, N)))


def stamp_region(table: JobTable, slot_bytes: int) -> torch.Tensor:
    """What the recorder gives a launch, for a kernel that nobody records."""
    layout = StampLayout(blocks(M, N), table.slots, slot_bytes)
    region = np.zeros(layout.region_bytes, dtype=np.uint8)
    header = layout.region_header(region)
    header["blocks"], header["slots"] = layout.blocks, layout.slots
    header["slot_bytes"], header["epoch"] = slot_bytes, 1
    return torch.from_numpy(region).cuda()
