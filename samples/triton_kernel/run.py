"""Checks the Triton kernel against torch, records some launches of it and says what to type next."""

from __future__ import annotations

import argparse

import torch
from matmul import TABLE, WARPS, matmul

import musetrace
import musetrace.triton as stamp
from musetrace.errors import MusetraceError

TILE, DEPTH = 128, 64


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", default="triton-run", help="folder of the run (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace a run that is there")
    parser.add_argument(
        "--stamps", choices=("register", "store", "off"), default="register", help="default: %(default)s"
    )
    parser.add_argument(
        "--num-stages", type=int, default=1, help="Triton's software pipelining (default: none)"
    )
    parser.add_argument("--steps", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--shape", type=int, nargs=3, metavar=("M", "N", "K"), default=(1408, 1536, 2048))
    arguments = parser.parse_args()
    m, n, k = arguments.shape
    if min(m, n, k) <= 0 or m % TILE or n % TILE or k % DEPTH:
        parser.error(f"M and N are multiples of {TILE}, K of {DEPTH}")
    return arguments


class Product:
    """The kernel, for tensors of one shape."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Random inputs, and an output that is filled with NaN."""
        m, n, k = arguments.shape
        self.a, self.b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
        self.c = torch.full((m, n), float("nan"), device="cuda")
        self.grid = (n // TILE, m // TILE)
        self._options = {"num_warps": WARPS, "num_stages": arguments.num_stages}

    def launch(self, stamps: int, jobs: stamp.Jobs) -> None:
        """Launch it; ``stamps`` is the address that the recorder gave, 0 when it is not recorded."""
        (n, k), tiles = self.b.shape, {"TILE": TILE, "DEPTH": DEPTH}
        matmul[self.grid](self.a, self.b, self.c, n, k, stamps, JOBS=jobs, **tiles, **self._options)

    def check(self) -> float:
        """The largest error as a share of what rounding explains. Raises SystemExit above 1.

        Products of bf16 are exact in float32, and a tensor core adds 16 of them at a time to a sum: k / 16
        times an error of at most 2^-22 of the sum of the absolute products, for a core that truncates.
        """
        a, b = self.a.double(), self.b.double()
        bound = (a.shape[1] / 16) * 2.0**-22 * (a.abs() @ b.abs().T)
        error = float(((self.c.double() - a @ b.T).abs() / bound).nan_to_num(float("inf")).max())
        if error > 1:
            raise SystemExit(f"the product is wrong: an error of {error:.1f} times what rounding can explain")
        self.c.fill_(float("nan"))
        return error


def record(product: Product, jobs: stamp.Jobs, arguments: argparse.Namespace) -> None:
    """Record ``steps`` launches, each a step."""
    columns, rows = product.grid
    with musetrace.record(arguments.output, force=arguments.force, stamps=arguments.stamps) as recorder:
        stamped = recorder.attach(TABLE, grid=columns * rows, name="matmul")
        for _ in range(arguments.steps):
            with recorder.step():
                with stamped.launch() as stamps:
                    product.launch(stamps.ptr, jobs)
                torch.cuda.synchronize()
        result = recorder.close()
    print(f"recorded {result.launches} launches, {result.stamps} stamps, {result.verdict}: {result.path}")
    print(f"\nNext: musetrace report {result.path}\n      musetrace view {result.path}")


def main() -> None:
    """See the module."""
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA device")
    jobs, product = stamp.jobs(TABLE, arguments.stamps), Product(arguments)
    product.launch(0, jobs)
    m, n, k = arguments.shape
    error = product.check()
    print(f"C = A * B^T, {m} x {n} x {k}: as torch's, errors up to {error:.0%} of what rounding explains")
    if arguments.stamps == "off":
        print("compiled without stamps: nothing to record")
        return
    try:
        record(product, jobs, arguments)
    except MusetraceError as error:
        raise SystemExit(f"run.py: {error}") from None
    product.check()


if __name__ == "__main__":
    main()
