"""How long critical paths and what-ifs take: wall and CPU time, in ns a span.

python -m tests.bench.critical_bench RUN               of a recording (indexed when it is first opened)
python -m tests.bench.critical_bench RUN --tiled 2     of a run of two steps, made there if it is missing:
                                                       8 ranks, 5 M spans a step
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from musetrace import analysis
from musetrace.store import Run, open_run
from tests.bench.tiled_run import TiledRun

Result = TypeVar("Result")


def timed(name: str, ask: Callable[[], Result], spans: int = 0) -> Result:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = ask()
    took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    each = f", {cpu / spans * 1e9:,.0f} ns of CPU a span" if spans else ""
    print(f"  {name}: {took:.3f} s, {cpu:.3f} s of CPU{each}")
    return result


def report(run: Run) -> None:
    """What the report asks, on a bounded number of launches of each kind."""
    for kind in analysis.launch_times(run)["kind"].to_pylist():
        print(f"{kind}:")
        sampled = timed("graphs", lambda of=kind: analysis.sampled_graphs(run, layer_kind=of))
        spans = sum(len(graph.job) for graph in sampled.graphs)
        path = timed("paths", lambda of=sampled: analysis.critical_path(run, sampled=of), spans)
        table = timed("what-ifs", lambda of=sampled: analysis.what_ifs(run, sampled=of), spans)
        print(f"  {path.n} of {path.of_n} launches, {spans:,} spans, {table.num_rows} what-ifs")


def whole(run: Run, step: int) -> None:
    """All launches of one step."""
    spans = sum(run.spans(rank, step).num_rows for rank in run.ranks)
    print(f"step {step}, {spans:,} spans:")
    timed("its launches", lambda: analysis.critical_path(run, step=step), spans)
    timed("it as a whole", lambda: analysis.critical_path(run, step=step, whole_steps=True), spans)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--tiled", type=int, metavar="STEPS")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.tiled and not args.run.exists():
        timed("made", lambda: TiledRun().write(args.run, args.tiled))
    run = timed("opened", lambda: open_run(args.run))
    for _ in range(args.rounds):
        report(run)
        whole(run, run.step_ids(run.ranks[0])[0])


if __name__ == "__main__":
    main()
