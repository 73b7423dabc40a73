"""A rank that is late by 2, 5 and 20 us is found by the stops of a run, within the error of the clocks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from musetrace import analysis
from musetrace.store import Run, open_run
from tests.gpu.delayed_rank_program import CASES, ROUNDS

pytestmark = pytest.mark.gpu

PROCESSES = 2
TIMEOUT_S = 90
STOP = "stop1"
# Of a step, by kind of layer.
LAUNCHES = {"sliding": 6, "global": 2}
STOPS = 5


@dataclass(frozen=True)
class Found:
    """Of the steps of one case, n launches: how much later the late rank arrives, ns, the median over steps
    and kinds of layer of the median over launches; and shares of launches.
    """

    late_by_ns: float
    band_ns: int
    n: int
    late_last: float
    other_last: float
    tied: float
    all_ns: list[int]


@pytest.fixture(scope="module")
def run(cuda: ModuleType, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    gpus = torch.cuda.device_count()
    if gpus < PROCESSES:
        pytest.skip(f"needs {PROCESSES} GPUs, and there is {gpus}")
    if not hasattr(torch.cuda, "_compile_kernel"):
        pytest.skip("this torch compiles no kernels")
    folder = tmp_path_factory.mktemp("delayed")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    subprocess.run(
        [
            sys.executable,
            *torchrun,
            "--nproc-per-node",
            "2",
            "-m",
            "tests.gpu.delayed_rank_program",
            str(folder),
        ],
        cwd=repository,
        env=os.environ | {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "lo"},
        timeout=TIMEOUT_S,
        check=True,
    )
    return open_run(folder / "run")


@pytest.fixture(scope="module")
def found(run: Run) -> dict[tuple[int, int], Found]:
    """By case."""
    told = {case: of_case(run, case, number) for number, case in enumerate(CASES)}
    print(f"\nalignment {run.manifest['ranks'][1]['alignment']}")
    print(f"{STOP}; late rank, by ns: found ns +- band, n, % late last, other last, tied; all medians")
    for (late, delay_ns), one in told.items():
        shares = [round(100 * share) for share in (one.late_last, one.other_last, one.tied)]
        print(
            f"{late} {delay_ns:>6}: {one.late_by_ns:>9.0f} +-{one.band_ns} {one.n:>4} {shares} {one.all_ns}"
        )
    return told


def of_case(run: Run, case: tuple[int, int], number: int) -> Found:
    late, other = case[0], 1 - case[0]
    late_by, bands, shares, n = [], [], [], 0
    for step in range(len(CASES) + number, ROUNDS * len(CASES), len(CASES)):
        for kind, launches in LAUNCHES.items():
            arrived = rows(analysis.arrivals(run, layer_kind=kind, step=step))
            judged = rows(analysis.stops(run, layer_kind=kind, step=step))
            assert {row["lead_n"] for row in arrived.values()} == {launches}
            # Who is ahead of the last is the other; at times it is last itself.
            late_by.append(arrived[other]["lead_p50_ns"] - arrived[late]["lead_p50_ns"])
            bands.append(arrived[other]["lead_uncertainty_ns"])
            of = [judged[late]["last_share"], judged[other]["last_share"], judged[late]["tied_share"]]
            shares += [of] * launches
            n += launches
    late_last, other_last, tied = np.mean(shares, axis=0)
    median = float(np.median(late_by))
    return Found(median, max(bands), n, late_last, other_last, tied, sorted(late_by))


def rows(table: Any) -> dict[int, dict[str, Any]]:
    """Of the stop, by rank."""
    return {row["rank"]: row for row in table.to_pylist() if row["stop"] == STOP}


def test_the_ranks_are_aligned_by_their_gpus_and_more_than_twice(run: Run) -> None:
    assert (run.verdict, run.ranks) == ("complete", (0, 1))
    told = run.manifest["ranks"][1]["alignment"]
    assert (told["method"], told["note"]) == ("peer_ping_pong", None)
    assert len(told["offsets_ns"]) > 2
    assert told["residual_ns"] <= told["error_ns"] < 10_000


@pytest.mark.parametrize("case", [case for case in CASES if case[1]])
def test_a_delay_is_found_within_the_band(found: dict[tuple[int, int], Found], case: tuple[int, int]) -> None:
    late, delay_ns = case
    one, nothing = found[case], found[1, 0]
    # Without a delay rank 1 is later than rank 0 by this.
    before_ns = nothing.late_by_ns if late == 1 else -nothing.late_by_ns
    assert abs(before_ns) <= nothing.band_ns
    assert abs(one.late_by_ns - before_ns - delay_ns) <= one.band_ns


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("delay_ns", [5_000, 20_000])
def test_the_late_rank_is_last_where_it_is_late_by_more_than_the_band(
    found: dict[tuple[int, int], Found], late: int, delay_ns: int
) -> None:
    one = found[late, delay_ns]
    assert one.band_ns < 2_000
    # Now and then the other process's host is late, too.
    assert one.late_last >= 0.8
    assert one.tied <= 0.1


def test_at_the_stops_behind_it_the_ranks_are_together_again(run: Run) -> None:
    """What costs at the first stop of a layer costs at no other one."""
    step = len(CASES) + CASES.index((1, 20_000))
    table = analysis.arrivals(run, layer_kind="sliding", step=step).to_pylist()
    stops = {row["stop"] for row in table if row["stop"].startswith("stop")}
    assert len(stops) == STOPS
    for row in table:
        if row["stop"] in stops - {STOP}:
            assert row["lead_p50_ns"] < 5_000, row
