"""A delay of one job on one rank of the CPU device is named by every question, with its size within 10 %."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musetrace import analysis
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import TOKENS, CpuDevice
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.weights import synthesize
from musetrace.store import Run, open_run
from tests.builders import JournalBuilder, LaunchStamps
from tests.host_device import aligned_zeros

RANKS, BLOCKS, STEPS = 2, 2, 6
# Long against what two cores that share eight threads' work leave to chance.
DELAY_NS = 450_000_000
LATE, WAITING = 1, 0  # ranks

# The job that begins late, the wait of the other rank that lasts longer for it, and the job awaited there.
DELAYS = (
    ("o_proj_send", "stop1_wait_ranks", "o_proj_send"),
    ("unpooler_send", "stop5_wait_ranks", "unpooler_send"),
    ("stop1_norm", "stop2_wait_ranks", "router_send"),
)


@dataclass(frozen=True)
class Delayed:
    """``before`` without the delay, ``after`` with it."""

    job: str
    wait: str
    awaits: str
    before: Run
    after: Run

    @property
    def op_and_kind(self) -> tuple[str, str]:
        """Of the job that begins late."""
        jobs = JobTable.built_in().jobs
        return next((one.op, one.kind) for one in jobs if one.name == self.job)


def record(device: CpuDevice, folder: Path, late: str | None = None) -> Run:
    """Steps of one layer of the mini model; in each of them a job of one rank begins late."""
    jobs = [one.name for one in JobTable.built_in().jobs]
    layout = device.stamp_source("store", {}, {}).layout
    builders = [
        JournalBuilder(folder, JobTable.built_in(), BLOCKS, rank=r, world=RANKS) for r in range(RANKS)
    ]
    device.set_residual(np.random.default_rng(1).standard_normal((TOKENS, 512), dtype=np.float32))
    device.wait(device.launch("entry", 0, 0))
    if late is not None:
        device.set_delay(LATE, jobs.index(late), DELAY_NS)
    for step in range(STEPS):
        memory = aligned_zeros(layout.region_bytes * RANKS)
        device.wait(device.launch("layer", 0, 0, "store", memory.ctypes.data, 1))
        for rank, builder in enumerate(builders):
            region = memory[rank * layout.region_bytes : (rank + 1) * layout.region_bytes]
            header_ns = layout.headers(region)["time_ns"].copy()
            builder.launch(LaunchStamps(step, 0, layout.stamps(region).astype(np.uint64), header_ns))
            builder.step(step)
    for builder in builders:
        builder.end()
    if late is not None:
        device.set_delay(LATE, jobs.index(late), 0)
    return open_run(folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CpuDevice, Run]]:
    """A device of one layer, and a run of it without a delay."""
    with one_torch_thread():
        weights = synthesize(replace(preset("mini"), num_hidden_layers=1), seed=3)
        device = CpuDevice(weights, tp=RANKS, blocks=BLOCKS, capacity=16)
        yield device, record(device, tmp_path_factory.mktemp("before") / "run")


@pytest.fixture(scope="module", params=DELAYS, ids=lambda param: param[0])
def delayed(
    request: pytest.FixtureRequest,
    recorded: tuple[CpuDevice, Run],
    tmp_path_factory: pytest.TempPathFactory,
) -> Delayed:
    device, before = recorded
    job, wait, awaits = request.param
    after = record(device, tmp_path_factory.mktemp("after") / "run", job)
    return Delayed(job, wait, awaits, before, after)


def the_delay() -> Any:
    return pytest.approx(DELAY_NS, rel=0.1)


def test_attribution_names_the_awaited_job_and_the_late_rank(delayed: Delayed) -> None:
    pairs = analysis.attribution(delayed.after, rank=WAITING).to_pylist()
    row = max(pairs, key=lambda one: one["before_ns"] if one["last_ranks"] else 0)
    assert (row["wait"], row["awaits"]) == (delayed.wait, delayed.awaits)
    # Every block and warp of the other rank waits for the whole delay, but for what it had to do before it.
    assert row["wait_p50_ns"] == the_delay()
    # Not always: a thread that is put to sleep between its data and its stamp seems to come after the wait.
    assert row["last_ranks"][0]["rank"] == LATE
    assert row["last_ranks"][0]["share"] >= 0.75
    assert row["before_ns"] >= 0.75 * row["total_ns"]


def test_idle_time_is_put_down_to_the_wait(delayed: Delayed) -> None:
    rows = analysis.idle(delayed.after, rank=WAITING).to_pylist()
    most = max(rows, key=lambda row: row["total_ns"])
    assert (most["wait"], most["awaits"]) == (delayed.wait, delayed.awaits)
    assert most["idle_mean_ns"] == the_delay()


def test_stops_name_the_stop_and_the_late_rank(delayed: Delayed) -> None:
    rows = {(row["stop"], row["rank"]): row for row in analysis.stops(delayed.after).to_pylist()}
    waiting = max(rows, key=lambda name: rows[name]["wait_p50_ns"] if name[1] == WAITING else 0)
    assert waiting[0] == delayed.wait.removesuffix("_wait_ranks")
    assert rows[waiting]["wait_p50_ns"] == the_delay()
    assert [rows[waiting[0], rank]["last_share"] for rank in (WAITING, LATE)] == [0.0, 1.0]


def test_arrivals_tell_what_the_late_rank_costs_the_other(delayed: Delayed) -> None:
    rows = {(row["stop"], row["rank"]): row for row in analysis.arrivals(delayed.after).to_pylist()}
    costly = max(rows, key=lambda name: rows[name]["lead_mean_ns"])
    assert costly == (delayed.wait.removesuffix("_wait_ranks"), WAITING)
    assert rows[costly]["lead_p50_ns"] == the_delay()
    assert rows[costly[0], LATE]["lead_p90_ns"] == 0


def test_compare_names_the_late_op_the_wait_and_both_ranks(delayed: Delayed) -> None:
    found = analysis.compare(delayed.before, delayed.after)
    (launch,) = (row for row in found.times.to_pylist() if row["what"] == "launch")
    # What else is in a launch took as long as the machine let it, in either run.
    assert (launch["verdict"], launch["difference_ns"]) == ("slower", pytest.approx(DELAY_NS, rel=0.5))
    # Over both ranks a block is busy for half of it longer, and idle for the other half.
    busy = max(found.busy.to_pylist(), key=lambda row: row["difference_ns"])
    assert (busy["op"], busy["verdict"], busy["most_rank"]) == (delayed.op_and_kind[0], "slower", LATE)
    idle = max(found.idle.to_pylist(), key=lambda row: row["difference_ns"])
    assert (idle["wait"], idle["awaits"]) == (delayed.wait, delayed.awaits)
    assert (idle["verdict"], idle["most_rank"]) == ("slower", WAITING)
    for row in (busy, idle):
        assert row["most_difference_ns"] == the_delay()
        assert 2 * row["difference_ns"] == the_delay()


def test_compare_of_the_late_rank_alone_names_the_op(delayed: Delayed) -> None:
    of_rank = analysis.compare(delayed.before, delayed.after, rank=LATE)
    (op,) = (row for row in of_rank.ops.to_pylist() if (row["op"], row["kind"]) == delayed.op_and_kind)
    assert (op["verdict"], op["difference_ns"]) == ("slower", the_delay())


def test_the_critical_path_goes_through_the_late_job_and_its_replay_without_it_is_as_much_shorter(
    delayed: Delayed,
) -> None:
    # Launch by launch, and the median: a thread that sleeps between its data and its stamp misleads one.
    most, saved = [], []
    for step in range(STEPS):
        parts = analysis.critical_path(delayed.after, step=step).parts.to_pylist()
        most.append(max(parts, key=lambda row: row["total_ns"]))
        (row,) = analysis.what_if(delayed.after, [f"{delayed.job}=0"], step=step).to_pylist()
        saved.append(row["saved_mean_ns"])
    named = [row for row in most if (row["op"], row["kind"]) == delayed.op_and_kind]
    assert len(named) >= STEPS - 1
    assert np.median([row["total_ns"] for row in named]) == the_delay()
    assert np.median(saved) == the_delay()
