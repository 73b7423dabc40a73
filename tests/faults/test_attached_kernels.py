"""Programs with kernels of their own: killed, forked, failing, or started by ``musetrace record``."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from musetrace.store import open_run
from tests.conftest import RunCli

Finish = Callable[..., tuple[int, str, str]]

PROGRAM = """
import os, signal, sys
import musetrace
from tests.builders import small_table
from tests.host_device import wait_until
from tests.host_kernel import HostKernel

kernel = HostKernel(small_table(), 3, os.environ.get("MUSETRACE_STAMPS", "register"))

def launch(gemm, times=1):
    for _ in range(times):
        with gemm.launch() as stamps:
            kernel.run(stamps.ptr)

def drained(rec, launches):
    wait_until(lambda: rec._drain.journals[0].launches == launches)
"""


def test_a_program_that_is_killed_leaves_what_was_drained(finish: Finish, tmp_path: Path) -> None:
    code = """
with musetrace.record("run") as rec:
    gemm = rec.attach(kernel.table, 3, name="gemm", device="cpu")
    for step in range(7):
        with rec.step():
            launch(gemm, 2)
    drained(rec, 14)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert finish(PROGRAM + code)[0] == -signal.SIGKILL
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows, run.losses["damaged_chunks"]) == ("incomplete", 14, 0)
    assert run.job_table.kernels[0].name == "gemm"


def test_a_program_that_ends_in_the_middle_leaves_a_complete_run(finish: Finish, tmp_path: Path) -> None:
    code = """
rec = musetrace.record("run")
gemm = rec.attach(kernel.table, 3, name="gemm", device="cpu")
launch(gemm, 5)
sys.exit(3)
"""
    code_of_exit, _, err = finish(PROGRAM + code)
    assert (code_of_exit, err) == (3, "")
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows) == ("complete", 5)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_launches_without_recording(finish: Finish, tmp_path: Path) -> None:
    code = """
with musetrace.record("run") as rec:
    gemm = rec.attach(kernel.table, 3, name="gemm", device="cpu")
    launch(gemm, 2)
    child = os.fork()
    if child == 0:
        with rec.step(), gemm.launch() as stamps:
            os._exit(0 if stamps.ptr == 0 and rec.state == "off" else 1)
    assert os.waitpid(child, 0)[1] == 0
    launch(gemm, 3)
"""
    code_of_exit, _, err = finish(PROGRAM + code)
    assert code_of_exit == 0, err
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows) == ("complete", 5)


@pytest.mark.parametrize("stamps", ["register", "store"])
def test_the_record_verb_switches_a_program_on(
    run_cli: RunCli, tmp_path: Path, repository: Path, stamps: str
) -> None:
    code = """
with musetrace.record() as rec:
    gemm = rec.attach(kernel.table, 3, name="gemm", device="cpu")
    for step in range(4):
        with rec.step():
            launch(gemm, 2)
    print(rec.active)
"""
    (tmp_path / "program.py").write_text(PROGRAM + code)
    words = ["record", "-o", "run", "--stamps", stamps, "--", sys.executable, "program.py"]
    done = run_cli(*words, env={"PYTHONPATH": str(repository)})
    assert done.returncode == 0, done.stderr
    assert "run is complete: 4 steps, 8 launches" in done.stdout
    assert open_run(tmp_path / "run").manifest["stamps"] == stamps
    report = run_cli("report", "run", "--json", env={"PYTHONPATH": str(repository)})
    assert set(json.loads(report.stdout)["ops"]) == {"gemm"}
    # Without the verb the same program runs and leaves nothing.
    alone = finish_alone(tmp_path, repository)
    assert (alone, sorted(path.name for path in tmp_path.iterdir())) == ("False\n", ["program.py", "run"])


def finish_alone(folder: Path, repository: Path) -> str:
    import os
    import subprocess

    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSETRACE_")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
