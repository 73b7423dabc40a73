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

pytestmark = pytest.mark.gpu

PROCESSES = 2
TIMEOUT_S = 120
WAYS = ("eager off", "eager register", "eager delays", "graph off", "graph register")
EQUAL = [f"TP{tp} {stop4} {ways}" for tp in (2, 4) for stop4 in ("sumsq", "gather") for ways in WAYS]
OTHERS = [
    "a launch before peers are connected",
    "every SM for one rank",
    "late processes",
    "a lost block",
    "100 passes with random delays",
    "1,000 passes",
]

Results = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def results(cuda: ModuleType, repository: Path, tmp_path_factory: Any) -> Iterator[Results]:
    """[process][case]: what came out of it. One start for all cases."""
    gpus = torch.cuda.device_count()
    if gpus < PROCESSES:
        pytest.skip(f"needs {PROCESSES} GPUs, and there is {gpus}")
    path = tmp_path_factory.mktemp("real_ranks") / "results"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    program = ["--nproc-per-node", str(PROCESSES), "-m", "tests.gpu.real_ranks_program", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "lo"}
    ended = "in time"
    try:
        subprocess.run(
            [sys.executable, *torchrun, *program],
            cwd=repository,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        ended = f"stopped after {TIMEOUT_S} s"
    of_processes = [read(path.with_suffix(f".{process}")) for process in range(PROCESSES)]
    yield of_processes
    show(of_processes, ended)


def read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {result["case"]: result for result in map(json.loads, path.read_text().splitlines())}


def show(of_processes: Results, ended: str) -> None:
    print(f"\nreal ranks, {PROCESSES} processes, {ended}")
    print(f"{'case':38} {'passes':>6} {'us/pass':>8} {'s':>6}")
    for case, result in of_processes[0].items():
        passes, pass_us = (result.get(name, "") for name in ("passes", "pass_us"))
        print(f"{case:38} {passes:>6} {pass_us:>8} {result['seconds']:>6}  {result.get('error_line', '')}")
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
