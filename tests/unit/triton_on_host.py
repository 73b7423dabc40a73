"""A Triton kernel that stamps, run by Triton's interpreter on the host, with a clock that counts.

    python triton_on_host.py FOLDER

plays each case of FOLDER/cases.json, {name: {"stamps", "blocks", "iterations"}}, on the region in
FOLDER/NAME.npy, uint8, or on none where there is no such file. The clock begins at 1000 and moves by 10.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import musetrace.triton as stamp  # noqa: E402
from musetrace.triton import stamps  # noqa: E402
from tests.unit.triton_table import TABLE  # noqa: E402


@triton.jit
def kernel(iterations: tl.constexpr, region, JOBS: tl.constexpr):
    opened = stamp.open(region, JOBS)
    stamp.instant(opened, JOBS.go)
    for number in tl.static_range(iterations):
        i = number - 1 + tl.program_id(0) * 0  # known at run time only; the first is -1
        stamp.begin(opened, JOBS.load, i)
        stamp.payload(opened, JOBS.load, 7 * i, i)
        stamp.end(opened, JOBS.load, i)
    stamp.begin(opened, JOBS.store, 1)
    stamp.end(opened, JOBS.store, 1)


def main(folder: Path) -> None:
    times = itertools.count(1000, 10)
    # The interpreter has no inline assembly.
    stamps._clock_ns = lambda: tl.full((), next(times), tl.uint64)
    stamps._clock_low_ns = lambda: tl.full((), next(times) | 1, tl.uint32)
    stamps._sm = lambda: tl.program_id(0).to(tl.uint32) + 40
    for name, case in json.loads((folder / "cases.json").read_text()).items():
        file, align = folder / f"{name}.npy", 128
        told = np.load(file) if file.exists() else np.zeros(0, np.uint8)
        memory = np.zeros(len(told) + align, np.uint8)
        first = -memory.ctypes.data % align
        region = memory[first : first + len(told)]
        region[:] = told
        address = region.ctypes.data if len(told) else 0
        kernel[(case["blocks"],)](case["iterations"], address, JOBS=stamp.jobs(TABLE, case["stamps"]))
        np.save(file, region)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
