"""The installed header, built into programs that know nothing of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import musetrace
from musetrace import config

TABLE = """
#include "musetrace/stamp.cuh"
#define ROLES(ROLE) ROLE(worker, 0, 0, 1)
#define JOBS(JOB) JOB(load, gemm, Load, worker, none) JOB(mma, gemm, Compute, worker, none)
MUSETRACE_JOB_TABLE(Table, "mine", 1, ROLES, JOBS);
using musetrace::abi::StampMode;
"""
# A warp of the host stamps the second job.
PROGRAM = (
    TABLE
    + """
#include <cstdio>
int main() {
    alignas(128) char memory[1024] = {};
    musetrace::StampRegion region{memory, {1, musetrace::abi::kSlotMap<Table>.total, 8}};
    musetrace::WarpStamps<Table, StampMode::kStore> stamps(region, 0, 0);
    MUSETRACE_BEGIN(stamps, Table::mma);
    MUSETRACE_END(stamps, Table::mma);
    const auto* slots = region.slots<std::uint64_t>(0);
    std::printf("%d %d %d\\n", slots[0] == 0 && slots[1] == 0, slots[2] != 0, slots[3] >= slots[2]);
}
"""
)
KERNEL = (
    TABLE
    + """
template <StampMode kMode>
__global__ void kernel(musetrace::StampRegion region, float* data) {
    musetrace::WarpStamps<Table, kMode> stamps(region, blockIdx.x, 0);
    MUSETRACE_BEGIN(stamps, Table::mma);
    data[threadIdx.x] *= 2.0f;
    MUSETRACE_END(stamps, Table::mma);
    stamps.flush();
}
template __global__ void kernel<StampMode::kOff>(musetrace::StampRegion, float*);
template __global__ void kernel<StampMode::kStore>(musetrace::StampRegion, float*);
template __global__ void kernel<StampMode::kRegister>(musetrace::StampRegion, float*);
"""
)


def run(*command: str | Path, folder: Path) -> str:
    """Standard output; the repository is not in any path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CPATH", "PYTHONPATH")}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def options(which: str, folder: Path) -> list[str]:
    return run(sys.executable, "-m", "musetrace.config", which, folder=folder).split()


def test_a_program_of_any_compiler_stamps(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    (tmp_path / "program.cpp").write_text(PROGRAM)
    flags = ["-std=c++17", "-Wall", "-Werror", *options("--includes", tmp_path)]
    run(compiler, *flags, "program.cpp", "-o", "program", folder=tmp_path)
    assert run(tmp_path / "program", folder=tmp_path) == "1 1 1\n"


def test_a_kernel_compiles_with_the_options_for_nvcc(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on this machine")
    (tmp_path / "kernel.cu").write_text(KERNEL)
    flags = [*options("--cflags", tmp_path), "-arch=sm_90a", "-cubin"]
    run(nvcc, *flags, "kernel.cu", "-o", "kernel.cubin", folder=tmp_path)
    cubin = (tmp_path / "kernel.cubin").read_bytes()
    assert all(f"kernelILN9musetrace3abi9StampModeE{mode}".encode() in cubin for mode in range(3))


def test_cmake_finds_the_package(tmp_path: Path) -> None:
    beside_python = Path(sys.executable).parent / "cmake"
    cmake = str(beside_python) if beside_python.is_file() else shutil.which("cmake")
    if cmake is None or (shutil.which("make") or shutil.which("ninja")) is None:
        pytest.skip("no cmake, or nothing that it can build with, on this machine")
    (tmp_path / "program.cpp").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES CXX)\n"
        f"find_package(musetrace {musetrace.__version__} CONFIG REQUIRED)\n"
        "add_executable(program program.cpp)\ntarget_link_libraries(program PRIVATE musetrace::stamp)\n"
    )
    place = f"-Dmusetrace_DIR={options('--cmakedir', tmp_path)[0]}"
    run(cmake, "-S", ".", "-B", "build", place, folder=tmp_path)
    run(cmake, "--build", "build", folder=tmp_path)
    assert run(tmp_path / "build" / "program", folder=tmp_path) == "1 1 1\n"


def test_what_is_installed_is_the_public_header_alone() -> None:
    folder = Path(musetrace.get_include())
    found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    abi = ("integers", "job", "job_table_json", "slot_map", "stamp")
    stamp = ("clock", "kernel_stamps", "region", "warp_slots", "warp_stamps")
    assert found == [
        *(f"musetrace/abi/{name}.h" for name in abi),
        "musetrace/stamp.cuh",
        *(f"musetrace/stamp/{name}.cuh" for name in stamp),
    ]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{musetrace.__version__}\n"


@pytest.mark.parametrize("which", ["--cflags", "--includes", "--cmakedir"])
def test_a_package_without_headers_says_so(
    which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(musetrace, "__path__", [str(tmp_path)])
    assert config.main([which]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert str(tmp_path) in error
    assert "install musetrace" in error
