"""The job table of the Triton kernels of the tests."""

from __future__ import annotations

from musetrace import JobTable, NewJob, Role

ITERATIONS = 3
TABLE = JobTable.declare(
    "kernel",
    4,
    roles=[Role("program", 0, 3, owner="block")],
    jobs=[
        NewJob("load", "tile", "load", "program", iterations=ITERATIONS, payload=True),
        NewJob("go", "tile", "sync", "program", instant=True),
        NewJob("store", "output", "send", "program", iterations=2),
    ],
)
