"""Ranks in two processes on two GPUs against virtual ranks on one (``real_ranks_program.py``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import musetrace
from musetrace.muse.config import preset
from musetrace.muse.draft.config import draft_of
from musetrace.muse.launch_plan import gpu_step_plan

pytestmark = pytest.mark.gpu

PROCESSES = 2
TIMEOUT_S = 120
WAYS = ("eager off", "eager register", "eager delays", "graph off", "graph register")
EQUAL = [f"TP{tp} {stop4} {ways}" for tp in (2, 4) for stop4 in ("sumsq", "gather") for ways in WAYS]
OTHERS = [
    "random weights of each rank",
    "a launch before peers are connected",
    "every SM for one rank",
    "late processes",
    "a lost block",
    "100 passes with random delays",
    "1,000 passes",
]
EQUAL_STEPS = [f"TP{tp} {guesses} {ways}" for tp in (2, 4) for guesses in ("tree", "chain") for ways in WAYS]
OTHER_STEPS = [
    "drawn tokens",
    "TP2 accepted paths",
    "TP4 accepted paths",
    "an engine",
    "parts that do not come",
    "100 steps with random delays",
    "1,000 steps",
]
KILLED_STEP = "a process that is killed in a draft launch"

Results = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def results(cuda: ModuleType, repository: Path, tmp_path_factory: Any) -> Iterator[Results]:
    """[process][case]: what came out of it. One start for all cases."""
    yield from run("real_ranks_program", repository, tmp_path_factory.mktemp("real_ranks"))


@pytest.fixture(scope="module")
def of_steps(cuda: ModuleType, repository: Path, tmp_path_factory: Any) -> Iterator[Results]:
    """The same of whole steps."""
    yield from run("real_steps_program", repository, tmp_path_factory.mktemp("real_steps"))


def under_torchrun(repository: Path, *arguments: str) -> str:
    """Run a module in two processes. Returns how it ended."""
    gpus = torch.cuda.device_count()
    if gpus < PROCESSES:
        pytest.skip(f"needs {PROCESSES} GPUs, and there is {gpus}")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    program = ["--nproc-per-node", str(PROCESSES), "-m", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "lo"}
    try:
        ended = subprocess.run(
            [sys.executable, *torchrun, *program],
            cwd=repository,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"stopped after {TIMEOUT_S} s"
    return f"in time, with {ended.returncode}"


def run(program: str, repository: Path, folder: Path) -> Iterator[Results]:
    path = folder / "results"
    ended = under_torchrun(repository, f"tests.gpu.{program}", str(path))
    of_processes = [read(path.with_suffix(f".{process}")) for process in range(PROCESSES)]
    yield of_processes
    show(of_processes, f"{program}, {ended}")


def read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {result["case"]: result for result in map(json.loads, path.read_text().splitlines())}


def show(of_processes: Results, ended: str) -> None:
    print(f"\nreal ranks, {PROCESSES} processes, {ended}")
    print(f"{'case':42} {'passes':>6} {'us/pass':>8} {'s':>6}")
    for case, result in of_processes[0].items():
        passes, pass_us = (result.get(name, "") for name in ("passes", "pass_us"))
        print(f"{case:42} {passes:>6} {pass_us:>8} {result['seconds']:>6}  {result.get('error_line', '')}")
        for line in result.get("said", []) if isinstance(result.get("said"), list) else []:
            print(f"    after {result.get('failed_after_s')} s: {line}")


def check(results: Results, case: str, processes: int = PROCESSES) -> None:
    for process in range(processes):
        assert case in results[process], f"process {process} did not get there"
        assert "error_line" not in results[process][case], results[process][case]["error_line"]


@pytest.mark.parametrize("case", EQUAL)
def test_real_ranks_equal_virtual_ranks_bit_for_bit(results: Results, case: str) -> None:
    """Logits of 20 passes, residual stream, keys and values of every layer."""
    check(results, case)


@pytest.mark.parametrize("case", OTHERS)
def test_real_ranks(results: Results, case: str) -> None:
    check(results, case)


def test_a_killed_process_is_named_and_the_other_s_gpu_is_usable(results: Results) -> None:
    check(results, "a killed process", processes=1)
    assert "a killed process" not in results[1]


@pytest.mark.parametrize("case", EQUAL_STEPS)
def test_steps_of_real_ranks_equal_those_of_virtual_ranks_bit_for_bit(of_steps: Results, case: str) -> None:
    """Tokens, state and logits of 20 steps; residual stream, keys and values of model and draft."""
    check(of_steps, case)


@pytest.mark.parametrize("case", OTHER_STEPS)
def test_steps_of_real_ranks(of_steps: Results, case: str) -> None:
    check(of_steps, case)


def test_a_process_killed_in_a_draft_launch_is_named_and_the_other_s_gpu_is_usable(of_steps: Results) -> None:
    check(of_steps, KILLED_STEP, processes=1)
    assert KILLED_STEP not in of_steps[1]


@pytest.mark.parametrize(("tp", "launches"), [(2, "--eager"), (4, "--graph")])
def test_record_under_torchrun_keeps_every_launch_of_whole_steps(
    cuda: ModuleType, repository: Path, tmp_path: Path, tp: int, launches: str
) -> None:
    options = ["--device", "cuda", "--tp", str(tp), "--steps", "5", launches]
    ended = under_torchrun(repository, "musetrace", "record", "-o", str(tmp_path / "run"), *options)
    assert ended == "in time, with 0"
    run = musetrace.open(tmp_path / "run")
    mini = preset("mini")
    plan = [planned.kind for planned in gpu_step_plan(mini, draft_of(mini))]
    assert (run.verdict, run.ranks) == ("complete", tuple(range(tp)))
    assert not any(run.losses.values())
    assert run.manifest["build"]["guesses"] == "tree"
    for rank in run.ranks:
        assert run.launches(rank)["kind"].to_pylist() == plan * 5
