"""The exchange of clocks on GPUs: two ends on one, then two processes on one GPU and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from musetrace.record.peer_clock import offset_of

pytestmark = pytest.mark.gpu

PROCESSES = 2
TIMEOUT_S = 90
TICK_NS = 32
BUDGET_NS = 1_000_000_000
ROUNDS = 1024

Outcomes = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def clock(cuda: ModuleType) -> Any:
    return cuda.PeerClock()


@pytest.mark.parametrize("ahead_ns", [0, 1, 1_000_000, -1_000_000, 3_600_000_000_000])
def test_an_offset_between_two_ends_on_one_gpu_is_found_within_the_error(clock: Any, ahead_ns: int) -> None:
    rounds = clock.ask_itself(BUDGET_NS, ahead_ns)
    assert rounds.shape == (ROUNDS, 3)
    found = offset_of(rounds, TICK_NS)
    trips = (rounds[:, 2] - rounds[:, 0]).astype(np.int64)
    shown = np.percentile(trips, [0, 50, 99]).astype(int).tolist()
    print(f"\nahead {ahead_ns} ns: found {found.offset_ns} +- {found.error_ns}, trips {shown} (p0, p50, p99)")
    assert abs(found.offset_ns - ahead_ns) <= found.error_ns
    assert found.error_ns < 10_000


def test_every_round_bounds_the_offset(clock: Any) -> None:
    asked, answered, seen = clock.ask_itself(BUDGET_NS, 0).astype(np.int64).T
    assert (asked[1:] >= seen[:-1]).all()
    assert ((asked - TICK_NS <= answered) & (answered <= seen + TICK_NS)).all()


def test_the_ends_do_not_disturb_each_other_from_two_threads(clock: Any, cuda: ModuleType) -> None:
    other, found = cuda.PeerClock(), []
    threads = [
        threading.Thread(target=lambda end=end: found.append(len(end.ask_itself(BUDGET_NS, 0))))
        for end in (clock, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [ROUNDS, ROUNDS]


def test_handles_of_another_form_and_of_nothing_are_refused(clock: Any) -> None:
    assert len(clock.handle) == 64
    with pytest.raises(ValueError, match="a handle has 64 bytes"):
        clock.reach(b"short")
    with pytest.raises(
        RuntimeError, match=r"mapping the flags of another GPU's clock \(cudaIpcOpenMemHandle\)"
    ):
        clock.reach(bytes(64))
    assert len(clock.ask_itself(BUDGET_NS, 0)) == ROUNDS


@pytest.fixture(scope="module")
def outcomes(cuda: ModuleType, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """[process][scenario]: what came out of it."""
    folder = tmp_path_factory.mktemp("clocks")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    program = ["--nproc-per-node", str(PROCESSES), "-m", "tests.gpu.clock_program", str(folder)]
    subprocess.run(
        [sys.executable, *torchrun, *program],
        cwd=repository,
        env=os.environ | {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "lo"},
        timeout=TIMEOUT_S,
        check=False,
    )
    found: Outcomes = []
    for process in range(PROCESSES):
        path = folder / f"outcomes.{process}"
        lines = path.read_text().splitlines() if path.exists() else []
        found.append({outcome.pop("scenario"): outcome for outcome in map(json.loads, lines)})
        for scenario, outcome in found[-1].items():
            print(f"\nprocess {process} {scenario}: {json.dumps(outcome, indent=1)}")
    return found


def needs_two_gpus() -> None:
    gpus = torch.cuda.device_count()
    if gpus < PROCESSES:
        pytest.skip(f"needs {PROCESSES} GPUs, and there is {gpus}")


def of(outcomes: Outcomes, scenario: str) -> list[dict[str, Any]]:
    both = [of_process[scenario] for of_process in outcomes]
    assert [outcome.get("error_line") for outcome in both] == [None, None]
    return both


def test_an_offset_between_two_gpus_is_found_within_the_error(outcomes: Outcomes) -> None:
    needs_two_gpus()
    answers, asked = of(outcomes, "exchange")
    still = asked["0"]
    for ahead in ("0", "1000000", "-5000000000"):
        assert (
            [one["rounds"] for one in answers[ahead]]
            == [one["rounds"] for one in asked[ahead]]
            == [ROUNDS] * 5
        )
        for one, base in zip(asked[ahead], still, strict=True):
            # Seconds apart at most, in which the clocks may part by 100 ppm.
            moved = one["offset_ns"] - base["offset_ns"] - int(ahead)
            assert abs(moved) <= one["error_ns"] + base["error_ns"] + 100_000


def test_an_exchange_that_the_other_end_leaves_ends_in_time_and_the_next_is_whole(outcomes: Outcomes) -> None:
    needs_two_gpus()
    for outcome in of(outcomes, "exchange"):
        assert outcome["given_up"]["rounds"] == 0
        assert outcome["given_up"]["seconds"] < 5
        assert outcome["after"]["rounds"] == ROUNDS


def test_two_processes_with_one_clock_are_aligned_to_no_offset_within_the_error(outcomes: Outcomes) -> None:
    if torch.cuda.device_count() >= PROCESSES:
        pytest.skip("each process has a GPU of its own")
    told = of(outcomes, "recorded_kernels")[0]["alignment"][1]
    assert told["method"] in ("host_anchors", "peer_ping_pong")
    assert all(abs(offset_ns) <= told["error_ns"] for offset_ns in told["offsets_ns"])


def test_comparisons_between_steps_take_some_ms_and_show_how_evenly_the_clocks_run(
    outcomes: Outcomes,
) -> None:
    needs_two_gpus()
    first, second = of(outcomes, "compared_between")
    assert (first["run_verdict"], first["lost"], second["lost"]) == ("complete", 0, 0)
    told = first["alignment"][1]
    assert (told["method"], told["note"]) == ("peer_ping_pong", None)
    assert len(told["offsets_ns"]) == 14
    assert 0 <= told["residual_ns"] <= 10_000
    # Each measurement is within the error of the line through its neighbours: the clocks were not set.
    at, offsets = np.array(told["measured_at_ns"]), np.array(told["offsets_ns"])
    at = at - at[0]
    share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    off = np.abs(offsets[1:-1] - offsets[:-2] - share * (offsets[2:] - offsets[:-2]))
    assert abs(off.max() - told["residual_ns"]) <= 2


def test_a_busy_gpu_holds_nobody_up_for_long_and_is_compared_when_it_is_idle(outcomes: Outcomes) -> None:
    needs_two_gpus()
    first, second = of(outcomes, "a_busy_gpu")
    assert first["compared"] == second["compared"] == [True, True]
    assert max(first["busy_s"], second["busy_s"]) < 2.5
    assert first["alignment"][1]["method"] == "peer_ping_pong"
    print("\nbusy", first["busy_s"], second["busy_s"], first["alignment"][1])


@pytest.mark.parametrize("scenario", ["recorded_kernels", "recorded_model"])
def test_ranks_on_two_gpus_are_aligned_by_ping_pong_and_the_hosts_clock_agrees(
    outcomes: Outcomes, scenario: str
) -> None:
    needs_two_gpus()
    first, second = of(outcomes, scenario)
    assert (first["run_verdict"], first["lost"], second["lost"]) == ("complete", 0, 0)
    told = first["alignment"][1]
    assert (told["method"], told["note"]) == ("peer_ping_pong", None)
    assert told["error_ns"] < 20_000
    compared = len(told["offsets_ns"])
    assert compared == 2 if scenario == "recorded_kernels" else compared >= 3
    for end in (0, -1):
        root, mine = (anchors[end] for anchors in first["anchors"])
        by_host = (root["device_ns"] - root["host_monotonic_ns"]) - (
            mine["device_ns"] - mine["host_monotonic_ns"]
        )
        apart_ns = abs(root["host_monotonic_ns"] - mine["host_monotonic_ns"])
        bound = told["error_ns"] + root["error_ns"] + mine["error_ns"] + apart_ns // 10_000
        assert abs(by_host - told["offsets_ns"][end]) <= bound
