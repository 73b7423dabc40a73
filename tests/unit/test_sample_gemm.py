"""samples/your_own_kernel without a GPU: what nvcc makes of it, and the library that its README builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import musetrace
from musetrace.overhead.machine_code import kernels_of
from tests.sample_commands import commands

SAMPLE = "samples/your_own_kernel"
MODES = ("off", "store", "register")
NO_SPILLS = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


@dataclass(frozen=True)
class Built:
    """The machine code of each kernel, and what the compiler said."""

    code: dict[str, bytes]
    log: str


def build(repository: Path, source: Path | str, to: Path, *options: str) -> Built:
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-I", "csrc/include", "-I", SAMPLE, *options]
    command += ["-Xptxas", "-v", "-cubin", str(source), "-o", str(to)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    code = {name: kernel.code for name, kernel in kernels_of(to.read_bytes()).items()}
    return Built(code, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def builds(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    folder, source = tmp_path_factory.mktemp("gemm"), f"{SAMPLE}/gemm.cu"
    return {
        mode: build(repository, source, folder / f"{mode}.cubin", f"-DMUSETRACE_STAMPS={number}")
        for number, mode in enumerate(MODES)
    }


@needs_nvcc
def test_off_is_the_kernel_without_the_lines_that_stamp(
    repository: Path, tmp_path: Path, builds: dict[str, Built]
) -> None:
    source = (repository / SAMPLE / "gemm.cu").read_text(encoding="ascii")
    words = ("musetrace", "MUSETRACE", "stamps", "gemm_jobs")
    kept = [line for line in source.splitlines() if not any(word in line for word in words)]
    assert len(source.splitlines()) - len(kept) > 15
    plain = tmp_path / "plain.cu"
    plain.write_text("\n".join(kept) + "\n")
    without = build(repository, plain, tmp_path / "plain.cubin")
    assert len(without.code) == 1
    assert {mode: built.code == without.code for mode, built in builds.items()} == {
        "off": True,
        "store": False,
        "register": False,
    }


@needs_nvcc
@pytest.mark.parametrize("mode", MODES)
def test_no_register_is_spilled_and_nvcc_is_content(builds: dict[str, Built], mode: str) -> None:
    assert builds[mode].log.count(NO_SPILLS) == 1
    assert "warning" not in builds[mode].log


@needs_nvcc
def test_the_command_line_of_the_readme_builds_a_library_with_its_job_table(
    repository: Path, tmp_path: Path
) -> None:
    (command,) = [line for line in commands(repository / SAMPLE / "README.md") if line.startswith("nvcc ")]
    shutil.copytree(repository / SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns("*.so"))
    flags = subprocess.run(
        [sys.executable, "-m", "musetrace.config", "--cflags"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for written, meant in (("$(python -m musetrace.config --cflags)", flags), ("=native", "=sm_90a")):
        assert written in command
        command = command.replace(written, meant)
    folder = tmp_path / "sample"
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    table = musetrace.JobTable.from_library(folder / "libgemm.so", "GemmJobs")
    iterations = 32
    assert [(job.name, job.kind, job.iterations, job.stamped_by) for job in table.jobs] == [
        ("wait_for_stage", "wait", iterations, (0,)),
        ("load", "load", iterations, (0,)),
        ("wait_for_tiles", "wait", iterations, (1, 2, 3, 4)),
        ("multiply", "compute", iterations, (1, 2, 3, 4)),
        ("store", "send", 1, (1, 2, 3, 4)),
    ]
    awaited = {job.name: table.jobs[job.awaits].name for job in table.jobs if job.awaits is not None}
    assert awaited == {"wait_for_stage": "multiply", "wait_for_tiles": "load"}
    # Producer: 32 waits of 2 slots and 32 loads of 4. Consumers: 32 waits, 32 multiplications, a store.
    assert table.slots == 32 * 6 + 4 * 160
