"""A job of the CPU device that is really made shorter: what the replay said, and what is then recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from musetrace import analysis
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import TOKENS, CpuDevice
from musetrace.muse.weights import ModelWeights, synthesize
from musetrace.store import Run, open_run
from tests.builders import JournalBuilder, LaunchStamps
from tests.host_device import aligned_zeros

RANKS, BLOCKS = 2, 2
# Long against what two cores that share the work of eight threads leave to chance. The second is there also
# without the first, so that chance is a small part of what is left.
DELAY_NS, STAYS_NS = 700_000_000, 500_000_000

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@cache
def one_layer() -> ModelWeights:
    return synthesize(replace(preset("mini"), num_hidden_layers=1), seed=3)


def record(folder: Path, delays_ns: Mapping[tuple[int, str], int]) -> Run:
    """One layer of the mini model, in which jobs of ranks begin late."""
    device = CpuDevice(one_layer(), tp=RANKS, blocks=BLOCKS, capacity=16)
    table = JobTable.built_in()
    device.set_residual(np.random.default_rng(1).standard_normal((TOKENS, 512), dtype=np.float32))
    device.wait(device.launch("entry", 0, 0))
    names = [job.name for job in table.jobs]
    for (rank, job), delay_ns in delays_ns.items():
        device.set_delay(rank, names.index(job), delay_ns)
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


def test_a_replay_without_a_delay_predicts_what_is_recorded_without_it(tmp_path: Path) -> None:
    stays = {(0, "unpooler_send"): STAYS_NS}
    run = record(tmp_path / "late", {**stays, (1, "o_proj_send"): DELAY_NS})
    path = analysis.critical_path(run)
    first, second = sorted(path.parts.to_pylist(), key=lambda row: -row["total_ns"])[:2]
    assert (first["op"], first["kind"]) == ("o_proj", "send")
    assert first["total_ns"] == pytest.approx(DELAY_NS, rel=0.1)
    assert (second["op"], second["kind"]) == ("unpooler", "send")
    assert sum(path.parts["total_ns"].to_pylist()) == path.length_ns
    (row,) = analysis.what_if(run, ["o_proj_send=0"]).to_pylist()
    assert row["residual_ns"] == 0
    assert analysis.what_ifs(run).to_pylist()[0]["change"] == "o_proj=0"
    # Of three, the one that was disturbed least.
    without = [analysis.critical_path(record(tmp_path / str(at), stays)).length_ns for at in range(3)]
    assert row["new_mean_ns"] == pytest.approx(min(without), rel=0.1)
