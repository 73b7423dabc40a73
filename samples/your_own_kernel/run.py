"""Builds the GEMM, checks it against torch, records some launches of it and says what to type next."""

from __future__ import annotations

import argparse

import torch
from gemm import DEPTH, MODES, TILE, Gemm, blocks, build_with_nvcc, build_with_torch, error_over_bound

import musetrace
from musetrace.errors import MusetraceError


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default="gemm-run", help="folder of the run (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace a run that is there")
    parser.add_argument("--build", choices=("nvcc", "torch"), default="nvcc", help="default: %(default)s")
    parser.add_argument("--stamps", choices=MODES, default="register", help="default: %(default)s")
    parser.add_argument("--graph", action="store_true", help="a CUDA graph, replayed, in place of launches")
    parser.add_argument("--steps", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--shape", type=int, nargs=3, metavar=("M", "N", "K"), default=(1408, 1536, 2048))
    arguments = parser.parse_args()
    m, n, k = arguments.shape
    if min(m, n, k) <= 0 or m % TILE or n % TILE or k % DEPTH:
        parser.error(f"M and N are multiples of {TILE}, K of {DEPTH}")
    return arguments


def record(gemm: Gemm, tensors: tuple[torch.Tensor, ...], arguments: argparse.Namespace) -> None:
    """Record ``steps`` launches, each a step."""
    m, n, _ = arguments.shape
    with musetrace.record(arguments.output, force=arguments.force, stamps=arguments.stamps) as recorder:
        stamped = recorder.attach(gemm.table, grid=blocks(m, n), name="gemm")
        graph = torch.cuda.CUDAGraph() if arguments.graph else None
        if graph is not None:
            with torch.cuda.graph(graph), stamped.launch() as stamps:
                gemm(*tensors, stamps.ptr)
        for _ in range(arguments.steps):
            with recorder.step():
                if graph is not None:
                    graph.replay()
                else:
                    with stamped.launch() as stamps:
                        gemm(*tensors, stamps.ptr)
                torch.cuda.synchronize()
            recorder.wait_for_room()  # a decode step takes longer than this one, and than to drain it
        result = recorder.close()
    print(f"recorded {result.launches} launches, {result.stamps} stamps, {result.verdict}: {result.path}")
    print(f"\nNext: musetrace report {result.path}\n      musetrace view {result.path}")


def main() -> None:
    """See the module."""
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA device")
    gemm = Gemm({"nvcc": build_with_nvcc, "torch": build_with_torch}[arguments.build](arguments.stamps))
    m, n, k = arguments.shape
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    c = torch.full((m, n), float("nan"), device="cuda")
    gemm(a, b, c, 0)
    if (error := error_over_bound(a, b, c)) > 1:
        raise SystemExit(f"the GEMM is wrong: an error of {error:.1f} times what rounding can explain")
    print(f"C = A * B^T, {m} x {n} x {k}: as torch's, errors up to {error:.0%} of what rounding explains")
    c.fill_(float("nan"))
    if arguments.stamps == "off":
        print("built without stamps: nothing to record")
        return
    try:
        record(gemm, (a, b, c), arguments)
    except MusetraceError as error:
        raise SystemExit(f"run.py: {error}") from None
    if error_over_bound(a, b, c) > 1:
        raise SystemExit("the GEMM is wrong while it is recorded")


if __name__ == "__main__":
    main()
