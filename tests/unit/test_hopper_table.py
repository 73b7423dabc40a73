"""A run with the GPU kernel's job table: every question of the analysis has its answer.

Job j of a launch runs from 1000 j + 10 x block + 100 x rank to 700 ns later, in every warp that stamps it.
"""

from __future__ import annotations

import numpy as np
import pytest

from musetrace.analysis import block_busy, op_timeline, ring_ahead, stops
from musetrace.analysis.timeline.overview import launch_times
from musetrace.cli import main
from musetrace.job_table import JobTable
from musetrace.store import Run, open_run
from tests.builders import LaunchStamps, build_run

TABLE = JobTable.built_in("muse_hopper")
RANKS, BLOCKS, LAUNCH_NS = 2, 3, 100_000
BEGIN_NS = 1_790_000_000_000_000_000
NOT_IN_A_LAYER = {"entry", "lm_head"}
JOB = {job.name: index for index, job in enumerate(TABLE.jobs)}


def begin_of(job: int, rank: int, block: int) -> int:
    return 1000 * job + 100 * rank + 10 * block


def layer(rank: int, launch: int) -> LaunchStamps:
    start = BEGIN_NS + launch * LAUNCH_NS
    slots = np.zeros((BLOCKS, TABLE.slots), dtype=np.uint64)
    for pair, job in enumerate(TABLE.job_of_pair):
        if job >= 0 and TABLE.jobs[job].op not in NOT_IN_A_LAYER:
            for block in range(BLOCKS):
                begin = start + begin_of(job, rank, block)
                slots[block, 2 * pair : 2 * pair + 2] = (begin, begin + 700)
    headers = np.full(BLOCKS, start, dtype=np.uint64)
    return LaunchStamps(0, launch, slots, headers, layer=launch, kind="sliding", epoch=launch + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    launches = {rank: [layer(rank, launch) for launch in range(2)] for rank in range(RANKS)}
    folder = tmp_path_factory.mktemp("hopper") / "run"
    return open_run(build_run(folder, launches, TABLE, BLOCKS, slot_bytes=4))


def test_nothing_is_odd(run: Run) -> None:
    assert run.job_table == TABLE
    assert run.verdict == "complete"
    assert not any(run.losses.values())


def test_the_timeline_has_a_row_for_each_op_and_kind_at_its_time(run: Run) -> None:
    rows = op_timeline(run).to_pylist()
    expected = dict.fromkeys((job.op, job.kind) for job in TABLE.jobs if job.op not in NOT_IN_A_LAYER)
    assert [(row["op"], row["kind"]) for row in rows] == list(expected)
    by_name = {(row["op"], row["kind"]): row for row in rows}
    combine = by_name["stop4", "compute"]
    # 12 instances: two launches of six blocks; the sixth smallest begin is that of rank 0, block 2.
    assert (combine["n"], combine["blocks"], combine["blocks_total"]) == (12, 6, 6)
    assert combine["begin_p50_ns"] == begin_of(JOB["stop4_combine"], 0, 2)
    assert combine["dur_p50_ns"] == 700
    # Of several jobs: from the first begin to the last end.
    gemm1 = by_name["gemm1", "load"]
    assert gemm1["dur_p50_ns"] == 1000 * (JOB["gemm1_load_rows"] - JOB["gemm1_load"]) + 700


def test_the_five_stops_wait_700_ns_and_rank_1_sends_last(run: Run) -> None:
    rows = stops(run).to_pylist()
    assert [(row["stop"], row["rank"]) for row in rows] == [
        (f"stop{number}", rank) for number in range(1, 6) for rank in range(RANKS)
    ]
    assert all(row["wait_p50_ns"] == 700 for row in rows)
    assert [row["last_share"] for row in rows] == [0.0, 1.0] * 5


def test_every_load_is_ahead_of_its_compute_by_its_place_in_the_table(run: Run) -> None:
    computes = {
        job.op: index for index, job in reversed(list(enumerate(TABLE.jobs))) if job.kind == "compute"
    }
    expected = {
        job.name: 1000 * (computes[job.op] - index)
        for index, job in enumerate(TABLE.jobs)
        if job.kind in ("load", "prefetch") and job.op not in NOT_IN_A_LAYER
    }
    rows = ring_ahead(run).to_pylist()
    assert {row["load"]: row["ahead_p50_ns"] for row in rows} == expected
    assert {"attention_prefetch", "gemm1_load_rows", "qkv_load"} <= set(expected)
    # In this table every load stands right before the compute that takes it.
    assert {row["load"]: row["ops_between_p50"] for row in rows}["qkv_load"] == 0


def test_busy_and_launch_times(run: Run) -> None:
    busy = block_busy(run).to_pylist()
    assert [(row["rank"], row["block"]) for row in busy] == [(r, b) for r in range(2) for b in range(3)]
    kinds = [job.kind for job in TABLE.jobs if job.op not in NOT_IN_A_LAYER]
    working = sum(kind in ("compute", "send", "recv", "sync") for kind in kinds)
    assert all(row["busy_ns"] == 2 * 700 * working for row in busy)
    (launch,) = launch_times(run).to_pylist()
    last = max(index for index, job in enumerate(TABLE.jobs) if job.op not in NOT_IN_A_LAYER)
    assert launch["launch_p90_ns"] == begin_of(last, 1, 2) + 700


def test_the_report_prints_every_op(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path)]) == 0
    out = capsys.readouterr().out
    for op in dict.fromkeys(job.op for job in TABLE.jobs if job.op not in NOT_IN_A_LAYER):
        assert op in out


def test_info_reads_the_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run.path)]) == 0
    assert "2 ranks x 3 blocks" in capsys.readouterr().out
