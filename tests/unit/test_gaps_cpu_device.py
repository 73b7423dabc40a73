"""A delay of one job on one rank of the CPU device is named by the analysis of idle time and of waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from musetrace import analysis
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import TOKENS, CpuDevice
from musetrace.muse.weights import synthesize
from musetrace.store import Run, open_run
from tests.builders import JournalBuilder, LaunchStamps
from tests.host_device import aligned_zeros

RANKS, BLOCKS = 2, 2
# Long against what two cores that share eight threads' work leave to chance.
DELAY_NS = 600_000_000

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def record(folder: Path, job: str) -> Run:
    """One layer of the mini model, in which a job of rank 1 begins late."""
    weights = synthesize(replace(preset("mini"), num_hidden_layers=1), seed=3)
    device = CpuDevice(weights, tp=RANKS, blocks=BLOCKS, capacity=16)
    table = JobTable.built_in()
    device.set_residual(np.random.default_rng(1).standard_normal((TOKENS, 512), dtype=np.float32))
    device.wait(device.launch("entry", 0, 0))
    device.set_delay(1, [one.name for one in table.jobs].index(job), DELAY_NS)
    layout = device.stamp_source("store", {}, {}).layout
    memory = aligned_zeros(layout.region_bytes * RANKS)
    device.wait(device.launch("layer", 0, 0, "store", memory.ctypes.data, 1))
    for rank in range(RANKS):
        region = memory[rank * layout.region_bytes : (rank + 1) * layout.region_bytes]
        builder = JournalBuilder(folder, table, BLOCKS, rank=rank, world=RANKS)
        header_ns = layout.headers(region)["time_ns"].copy()
        builder.launch(LaunchStamps(0, 0, layout.stamps(region).astype(np.uint64), header_ns))
        builder.step(0)
        builder.end()
    return open_run(folder)


@pytest.mark.parametrize(
    ("job", "wait"), [("o_proj_send", "stop1_wait_ranks"), ("unpooler_send", "stop5_wait_ranks")]
)
def test_a_late_send_of_one_rank_is_named_with_its_size(tmp_path: Path, job: str, wait: str) -> None:
    run = record(tmp_path / "run", job)
    pairs = {row["wait"]: row for row in analysis.attribution(run, rank=0).to_pylist()}
    row = max(pairs.values(), key=lambda one: one["before_ns"] if one["last_ranks"] else 0)
    assert (row["wait"], row["awaits"]) == (wait, job)
    assert row["last_ranks"] == [{"rank": 1, "share": 1.0}]
    # Every block and warp of rank 0 waits for the whole delay, but for what it had to do before it.
    assert row["before_ns"] / row["n"] == pytest.approx(DELAY_NS, rel=0.1)
    causes = {row["wait"] or row["cause"]: row for row in analysis.idle(run, rank=0).to_pylist()}
    assert max(causes, key=lambda name: causes[name]["total_ns"]) == wait
    assert causes[wait]["idle_mean_ns"] == pytest.approx(DELAY_NS, rel=0.1)
