"""The stamps of a real GPU: every build writes what the job table says, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from musetrace.abi import StampLayout
from musetrace.job_table import JobTable

pytestmark = pytest.mark.gpu

BLOCKS = 132
EPOCH = 7


@pytest.mark.parametrize(("mode", "slot_bytes"), [("store", 8), ("register", 4)])
def test_every_job_of_every_stamping_warp_is_stamped_once(cuda, mode, slot_bytes):  # type: ignore[no-untyped-def]
    table = JobTable.built_in()
    layout = StampLayout(BLOCKS, table.slots, slot_bytes)
    region = cuda.stamp_probe(mode, BLOCKS, EPOCH)
    headers, slots = layout.headers(region), layout.stamps(region)
    assert (headers["epoch"] == EPOCH).all()
    assert (headers["overflow"] == 0).all()
    assert len(set(headers["sm"].tolist())) == BLOCKS  # one block per SM on 132 SMs
    used = np.repeat(table.pair_jobs >= 0, 2)
    assert (slots[:, used] != 0).all()
    assert (slots[:, ~used] == 0).all()
    # From 1 ms before the header's time on, which a warp that was quicker may be in front of.
    base = headers["time_ns"][:, None] - np.uint64(1_000_000)
    low = (slots.astype(np.uint64) - base) & np.uint64(0xFFFFFFFF if slot_bytes == 4 else 0xFFFFFFFFFFFFFFFF)
    begin, end = low[:, 0::2][:, table.pair_jobs >= 0], low[:, 1::2][:, table.pair_jobs >= 0]
    assert (begin <= end).all()
    assert (end < 2_000_000).all()  # a kernel of a few us; a stamp from another clock would be far away


def test_off_writes_nothing(cuda):  # type: ignore[no-untyped-def]
    assert not cuda.stamp_probe("off", BLOCKS, EPOCH).any()


def test_clock_runs_forward_and_its_tick_is_fine(cuda):  # type: ignore[no-untyped-def]
    steps = np.diff(cuda.clock_reads(100_000).astype(np.int64))
    assert (steps >= 0).all()
    tick_ns = int(np.gcd.reduce(steps[steps > 0]))
    print(f"tick {tick_ns} ns")
    assert 1 <= tick_ns <= 1024
