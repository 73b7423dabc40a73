"""Prints how fast expert weights stream through the GPU's ring, and what using them costs; asserts nothing.

    python -m tests.bench.expert_bench [--rounds 30] [--launches 40] [--stages 71]

Each variant is a CUDA graph of launches that read random weights (6.9 GB at 40 launches), interleaved forward
and backward. 71 stages on 132 SMs are the experts of one layer at 49 experts, one rank of 8.
"""

from __future__ import annotations

import argparse
import time

from musetrace import _cuda

BLOCKS = 132
LIMIT = 48 * 1024  # csrc/sync/gpu_ring.cuh
ALL_STAGES = 2**32 - 1
VARIANTS = [
    ("stream", False, 18_432),
    ("stream", False, LIMIT),
    ("stream", False, ALL_STAGES),
    ("stream", True, LIMIT),
    ("dequant", False, LIMIT),
    ("dequant", True, LIMIT),
    ("multiply", False, LIMIT),
    ("multiply", True, LIMIT),
    ("multiply", True, ALL_STAGES),
]


def main() -> None:
    """Run all variants and print one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--launches", type=int, default=40)
    parser.add_argument("--stages", type=int, default=71, help="of 18,432 bytes, for each block")
    arguments = parser.parse_args()
    begin_s = time.perf_counter()
    timings = _cuda.expert_times(VARIANTS, BLOCKS, arguments.stages, arguments.launches, arguments.rounds)
    print(
        "| work | setmaxnreg | limit in flight | us a launch [p10 p90] | TB/s | registers |\n"
        "|---|---|---|---|---|---|"
    )
    for row in timings:
        limit = "all" if row["in_flight_bytes"] == ALL_STAGES else f"{row['in_flight_bytes']:,}"
        print(
            f"| {row['work']} | {'yes' if row['move_registers'] else 'no'} | {limit} | {row['us_p50']:.2f} "
            f"[{row['us_p10']:.2f} {row['us_p90']:.2f}] | {row['tb_per_s']:.2f} | {row['registers']} |"
        )
    total_s = time.perf_counter() - begin_s
    print(f"{timings[0]['samples']} samples of {arguments.launches} launches each; {total_s:.1f} s in all")


if __name__ == "__main__":
    main()
