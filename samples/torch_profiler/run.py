"""Profiles a few layers with torch.profiler, and opens the one long bar of the GEMM in its trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

import musetrace
from musetrace.errors import MusetraceError
from musetrace.export.torch_profiler import lay_over

if TYPE_CHECKING:
    from torch import Tensor

OTHER_SAMPLE = Path(__file__).resolve().parent.parent / "your_own_kernel"
M, N, K = 1408, 1536, 2048


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", default="profiled-run", help="folder of the run (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace a run that is there")
    parser.add_argument("--steps", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--blocks", type=int, default=16, help="to show, of 132 (default: %(default)s)")
    parser.add_argument("--trace", default="trace.json", help="of torch.profiler (default: %(default)s)")
    parser.add_argument("--opened", default="opened.json", help="with the spans (default: %(default)s)")
    return parser.parse_args()


def load_gemm() -> Any:
    """The GEMM of the other sample, built by nvcc."""
    sys.path.insert(0, str(OTHER_SAMPLE))
    import gemm

    return gemm.Gemm(gemm.build_with_nvcc("register"))


def layer(gemm: Any, x: Tensor, weight: Tensor, out: Tensor, stamps: int) -> None:
    """A linear layer: the GEMM, and what torch does around it."""
    gemm(torch.nn.functional.silu(x), weight, out, stamps)
    out.relu_()


def profile_and_record(gemm: Any, arguments: argparse.Namespace) -> None:
    """Write the trace and the run, of the same launches."""
    x, weight = (torch.randn(rows, K, device="cuda").bfloat16() for rows in (M, N))
    out = torch.empty(M, N, device="cuda")
    layer(gemm, x, weight, out, 0)
    torch.cuda.synchronize()
    with musetrace.record(arguments.output, force=arguments.force, stamps="register") as recorder:
        stamped = recorder.attach(gemm.table, grid=(M // 128) * (N // 128), name="gemm")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(arguments.steps):
                with recorder.step(), stamped.launch() as stamps:
                    layer(gemm, x, weight, out, stamps.ptr)
            torch.cuda.synchronize()
        result = recorder.close()
    profiler.export_chrome_trace(arguments.trace)
    print(f"recorded {result.launches} launches, {result.stamps} stamps, {result.verdict}: {result.path}")


def main() -> None:
    """See the module."""
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA device")
    try:
        profile_and_record(load_gemm(), arguments)
        overlay = lay_over(
            arguments.output, arguments.trace, arguments.opened, blocks=range(arguments.blocks)
        )
    except MusetraceError as error:
        raise SystemExit(f"run.py: {error}") from None
    print(*overlay.sentences(), sep="\n")
    print(f"\nNext: open {overlay.path} in ui.perfetto.dev or chrome://tracing; look for 'inside gemm'")


if __name__ == "__main__":
    main()
