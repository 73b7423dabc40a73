"""The public header in the compiler that works at run time, without headers of the system. No GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from musetrace.declare import cuda_source
from tests.unit.test_kernel_stamps import GEMM_JOBS, GEMM_ROLES

KERNEL = """
extern "C" __global__ void kernel(float* data, int tiles, int job, void* region) {
    musetrace::KernelStamps<Jobs> kernel(region);
    if (threadIdx.x == 0) MUSETRACE_BEGIN(kernel, Jobs::tile_life);
    if (threadIdx.x >= 32) {
        auto warp = kernel.role<Jobs::consumer>();
        MUSETRACE_INSTANT(warp, Jobs::released);
        for (int tile = 0; tile < tiles; ++tile) {
            MUSETRACE_BEGIN(warp, Jobs::tile_wait, tile);
            data[threadIdx.x] += 1.0f;
            MUSETRACE_NEXT(warp, Jobs::tile_wait, Jobs::tile_compute, tile);
            MUSETRACE_PAYLOAD(warp, Jobs::tile_compute, 7, tile);
            MUSETRACE_END(warp, Jobs::tile_compute, tile);
        }
        if (job >= 0) warp.begin(job, tiles);
        MUSETRACE_FLUSH(warp);
    } else {
        auto warp = kernel.role<Jobs::tracer>();
        for (int tile = 0; tile < tiles; ++tile) MUSETRACE_BEGIN(warp, Jobs::trace, tile);
        MUSETRACE_FLUSH(warp);
    }
    if (threadIdx.x == 0) MUSETRACE_END(kernel, Jobs::tile_life);
}
"""


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    found = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (found.submodule_search_locations or [])] if found else []
    libraries = [library for folder in folders for library in folder.rglob("libnvrtc.so.*")]
    if not libraries:
        pytest.skip("no libnvrtc: pip install nvidia-cuda-nvrtc")
    return ctypes.CDLL(str(libraries[0]))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_header_compiles_at_run_time_without_a_word(
    nvrtc: ctypes.CDLL, repository: Path, capfd: pytest.CaptureFixture[str], mode: int
) -> None:
    table = cuda_source("Jobs", "gemm", 6, GEMM_ROLES, GEMM_JOBS)
    source = f'#include "musetrace/stamp.cuh"\n{table}{KERNEL}'
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    options = [b"--gpu-architecture=sm_90a", b"-std=c++17", f"-DMUSETRACE_STAMPS={mode}".encode()]
    options.append(f"-I{repository / 'csrc' / 'include'}".encode())
    done = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert (done, log.value.decode()) == (0, "")
    assert capfd.readouterr().err == ""
