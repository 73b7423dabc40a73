"""A matrix product in Triton that stamps its loads and dots, and the job table of these."""

from __future__ import annotations

import triton
import triton.language as tl

import musetrace
import musetrace.triton as stamp

ITERATIONS = 32  # of the loop over k that have slots; more are counted as overflow
WARPS = 8
TABLE = musetrace.JobTable.declare(
    "matmul",
    WARPS,
    roles=[musetrace.Role("program", 0, WARPS - 1, owner="block")],
    jobs=[
        musetrace.NewJob("load", "matmul", "load", "program", iterations=ITERATIONS, payload=True),
        musetrace.NewJob("dot", "matmul", "compute", "program", iterations=ITERATIONS),
        musetrace.NewJob("store", "output", "send", "program"),
    ],
)


@triton.jit
def matmul(
    a,
    b,
    c,
    n,
    k,
    region: tl.int64,
    JOBS: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """c = a @ b.T, bf16 [m, k] and [n, k] to float32 [m, n], a tile of TILE x TILE each program."""
    stamps = stamp.open(region, JOBS)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    a += rows[:, None] * k + depth[None, :]
    b += columns[None, :] * k + depth[:, None]
    total = tl.zeros((TILE, TILE), tl.float32)
    for i in range(0, k // DEPTH):
        stamp.begin(stamps, JOBS.load, i)
        left = tl.load(a + i * DEPTH)
        right = tl.load(b + i * DEPTH)
        stamp.end(stamps, JOBS.load, i)
        stamp.payload(stamps, JOBS.load, 2 * TILE * DEPTH * 2, i)
        stamp.begin(stamps, JOBS.dot, i)
        total = tl.dot(left, right, total)
        stamp.end(stamps, JOBS.dot, i)
    stamp.begin(stamps, JOBS.store)
    tl.store(c + rows[:, None] * n + columns[None, :], total)
    stamp.end(stamps, JOBS.store)
