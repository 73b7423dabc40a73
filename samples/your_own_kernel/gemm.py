"""gemm.cu for Python: built by nvcc or by torch's loader, called through ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import musetrace

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).resolve().parent / "gemm.cu"
TILE, DEPTH = 128, 64
MODES = {"off": 0, "store": 1, "register": 2}


def build_with_nvcc(stamps: str, *, arch: str = "native", folder: Path = SOURCE.parent) -> Path:
    """A shared library, by a plain command line. Raises SystemExit where nvcc is missing or fails."""
    library = folder / f"libgemm-{stamps}.so"
    if shutil.which("nvcc") is None:
        raise SystemExit("nvcc is not on PATH: install the CUDA toolkit")
    options = ["-std=c++17", f"-I{musetrace.get_include()}", f"-DMUSETRACE_STAMPS={MODES[stamps]}"]
    command = ["nvcc", *options, f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC", str(SOURCE)]
    if subprocess.run([*command, "-o", str(library)], check=False).returncode != 0:
        raise SystemExit(f"nvcc could not build {SOURCE.name}")
    return library


def build_with_torch(stamps: str) -> Path:
    """The same by torch's loader, which keeps it in its cache."""
    from torch.utils.cpp_extension import load

    return Path(
        load(
            name=f"musetrace_sample_gemm_{stamps}",
            sources=[str(SOURCE)],
            extra_include_paths=[musetrace.get_include()],
            extra_cuda_cflags=[f"-DMUSETRACE_STAMPS={MODES[stamps]}"],
            is_python_module=False,
        )
    )


class Gemm:
    """The kernel in a library, and its job ``table``."""

    def __init__(self, library: Path) -> None:
        """Load it. Raises UsageError when it has no job table."""
        self._library = ctypes.CDLL(str(library))
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._library.launch_gemm.argtypes = [*(pointer,) * 3, *(number,) * 3, pointer, pointer]
        self.table = musetrace.JobTable.from_library(self._library, "GemmJobs")

    def __call__(self, a: Tensor, b: Tensor, c: Tensor, stamps: int) -> None:
        """Launch c = a @ b.T in torch's current stream.

        Args:
            a: bf16 [m, k], contiguous, on the GPU; m a multiple of 128 and k of 64.
            b: bf16 [n, k], as ``a``.
            c: float32 [m, n].
            stamps: the address that the recorder gives for this launch; 0 when it is not recorded.
        """
        import torch

        (m, k), n = a.shape, len(b)
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (a.data_ptr(), b.data_ptr(), c.data_ptr())
        if error := self._library.launch_gemm(*pointers, m, n, k, stamps, stream):
            raise RuntimeError(f"the GEMM was not launched: CUDA error {error}")


def blocks(m: int, n: int) -> int:
    """Of the grid."""
    return (m // TILE) * (n // TILE)


def error_over_bound(a: Tensor, b: Tensor, c: Tensor) -> float:
    """The largest error of c = a @ b.T, as a share of what rounding can explain; above 1 it is wrong.

    Products of bf16 are exact in float32, and a tensor core adds 16 of them at a time to a sum: k / 16 times
    an error of at most 2^-22 of the sum of the absolute products, for a core that truncates.
    """
    exact = a.double() @ b.double().T
    bound = (a.shape[1] / 16) * 2.0**-22 * (a.double().abs() @ b.double().abs().T)
    return float(((c.double() - exact).abs() / bound).nan_to_num(float("inf")).max())
