"""A run whose every name wants to be more than text, for pages in any form."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from musetrace.job_table import Job, JobTable
from tests.builders import LaunchStamps, build_run

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
PERCENT = "%{x}"
PIPE = "a|b | c"
LINES = "one\ntwo\n- three\n\n# four"
FENCE = "```\n````"
LINK = "[x](javascript:alert(3)) `code` *bold* &lt;"
NAMES = (IMAGE, SCRIPT, PERCENT, PIPE, LINES, FENCE, LINK)


def hostile_table() -> JobTable:
    """Ops, jobs and waits called like that, each awaiting the one before."""
    jobs: list[Job] = []
    for number, name in enumerate(NAMES):
        awaits = None if number == 0 else len(jobs) - 1
        jobs.append(Job(f"wait {name}", name, "wait", "all", (0, 0), (0,), awaits))
        jobs.append(Job(f"compute {name}", name, "compute", "all", (0, 0), (0,), None))
    pairs = tuple(range(len(jobs)))
    return JobTable(IMAGE, 1, 2 * len(pairs), tuple(jobs), pairs, (0,) * len(pairs))


def build_hostile_run(folder: Path) -> Path:
    """Two launches of one block in which each op waits for the one before."""
    meta = {"device": {"name": IMAGE, SCRIPT: PERCENT}, "model": {LINES: PIPE}, "build": {FENCE: LINK}}
    table = hostile_table()
    times = 9_000_000_000_000 + 1000 * np.arange(table.slots, dtype=np.uint64)
    times[1::2] += np.uint64(1000)
    launches = [
        LaunchStamps(
            0, number, times[None] + np.uint64(100_000 * number), times[:1], number, kind, number + 1
        )
        for number, kind in enumerate((SCRIPT, PIPE))
    ]
    return build_run(folder, {0: launches}, table, 1, meta=meta)
