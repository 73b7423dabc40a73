"""A run of two kernels of somebody's, with exact times: gemm in 4 blocks, reduce in 2; no model, no stop."""

from __future__ import annotations

from pathlib import Path

import musetrace
from musetrace.declare import NewJob, Role
from musetrace.job_table import JobTable
from musetrace.store.run import Run
from tests.host_kernel import HostKernel

ROLES = [Role("producer", 0, 0), Role("consumer", 1, 1)]
GEMM = HostKernel(
    JobTable.declare(
        "gemm",
        2,
        ROLES,
        [NewJob("load", "tile", "load", "producer"), NewJob("multiply", "tile", "compute", "consumer")],
    ),
    4,
    pairs=(0, 16),
)
REDUCE = HostKernel(
    JobTable.declare("reduce", 2, ROLES, [NewJob("load", "rows", "load", "producer")]), 2, pairs=(0,)
)


def record_run(folder: Path, steps: int = 3, lost: bool = False) -> Run:
    """Each step launches gemm twice and reduce once; with ``lost``, reduce runs a block that has no room."""
    reduce = HostKernel(REDUCE.table, 3, pairs=REDUCE.pairs) if lost else REDUCE
    with musetrace.record(folder) as rec:
        first = rec.attach(GEMM.table, GEMM.grid, device="cpu")
        second = rec.attach(REDUCE.table, REDUCE.grid, device="cpu")
        for _ in range(steps):
            with rec.step():
                for kernel, handle in ((GEMM, first), (GEMM, first), (reduce, second)):
                    with handle.launch() as stamps:
                        kernel.run(stamps.ptr)
                        if lost and kernel is reduce:
                            kernel.run(stamps.ptr)
    return musetrace.open(folder)
