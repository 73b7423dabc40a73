"""Prints what index, report, idle time, waits and compare take on this machine; asserts nothing.

    python -m tests.bench.analysis_bench [--spans 10e6] [--repeats 3] [--folder DIR]

Two runs of eight ranks are made, one with a quicker op (``tiled_run``). Every figure is of a process of its
own, median and range of the repeats; files are in the page cache. Twice 100e6 spans take 8 GB on disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from musetrace import analysis
from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.store import open_run
from musetrace.store.cube_store import CUBES
from musetrace.store.index import index_run
from tests.bench.tiled_run import RANKS, TiledRun

Numbers = dict[str, float]


def index(folder: Path, _: Path) -> Numbers:
    """Index a run, then make its cubes."""
    begin_s = time.perf_counter()
    index_run(folder)
    indexed_s = time.perf_counter()
    keep_cubes(open_run(folder))
    done_s = time.perf_counter()
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "index without cubes, s": indexed_s - begin_s,
        "cubes, s": done_s - indexed_s,
        "index with cubes, s": done_s - begin_s,
        "processor time of both, s": time.process_time(),
        "memory of both at most, MiB": most_mb,
    }


def gaps(folder: Path, _: Path) -> Numbers:
    """Idle time and waits of one step of all ranks, from its spans."""
    run = open_run(folder)
    begin_s, used_s = time.perf_counter(), time.process_time()
    analysis.idle(run, step=0)
    idle_s = time.perf_counter()
    analysis.attribution(run, step=0)
    done_s = time.perf_counter()
    return {
        "processor time of these two, s": time.process_time() - used_s,
        "idle of one step, s": idle_s - begin_s,
        "attribution of one step, s": done_s - idle_s,
        "these two, s": done_s - begin_s,
    }


def answers(folder: Path, _: Path) -> Numbers:
    """Every question that the index keeps sums of, over the whole run."""
    run = open_run(folder)
    asked: dict[str, Callable[..., object]] = {
        "op_timeline": analysis.op_timeline,
        "block_busy": analysis.block_busy,
        "stops": analysis.stops,
        "ring_ahead": analysis.ring_ahead,
        "idle": analysis.idle,
        "idle_after": analysis.idle_after,
        "attribution": analysis.attribution,
        "launches": analysis.launches,
        "step_growth": analysis.step_growth,
    }
    found = {}
    for name, ask in asked.items():
        begin_s = time.perf_counter()
        ask(run)
        found[f"{name} from cubes, s"] = time.perf_counter() - begin_s
    return {**found, "all of these, s": sum(found.values())}


def command(name: str) -> Callable[[Path, Path], Numbers]:
    """A verb as a user runs it."""

    def run(folder: Path, other: Path) -> Numbers:
        runs = [folder, other] if name == "compare" else [folder]
        begin_s = time.perf_counter()
        subprocess.run([sys.executable, "-m", "musetrace", name, *runs], check=True, capture_output=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            f"{name} as a process, s": time.perf_counter() - begin_s,
            f"processor time of {name}, s": used.ru_utime + used.ru_stime,
        }

    return run


MEASURES: dict[str, Callable[[Path, Path], Numbers]] = {
    "index": index,
    "gaps": gaps,
    "answers": answers,
    "report": command("report"),
    "compare": command("compare"),
}


def measured(name: str, folder: Path, other: Path) -> Numbers:
    """One measure in a process of its own."""
    if name == "index":
        for left in ("manifest.json", CUBES):
            target = folder / left
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    command_line = [sys.executable, "-m", "tests.bench.analysis_bench", "--measure", name, folder, other]
    done = subprocess.run(command_line, check=True, capture_output=True, text=True)
    return {what: float(value) for what, value in (line.rsplit("=", 1) for line in done.stdout.splitlines())}


def show(name: str, folder: Path, other: Path, repeats: int) -> None:
    """Median and range of some repeats."""
    found = [measured(name, folder, other) for _ in range(repeats)]
    for what in found[0]:
        values = [one[what] for one in found]
        low, high, middle = min(values), max(values), statistics.median(values)
        print(f"{what:<32} {middle:9.2f}  ({low:.2f} to {high:.2f}, n = {repeats})", flush=True)


def make(root: Path, spans: float) -> tuple[Path, Path]:
    """The two runs' journals."""
    folders = root / "a", root / "b"
    for folder, faster in zip(folders, ({}, {"gemm2": 0.2}), strict=True):
        run = TiledRun(faster=faster)
        steps = max(round(spans / run.spans_per_step), 1)
        run.write(folder, steps)
        print(
            f"{folder.name}: {RANKS} ranks, {steps} steps, {steps * run.spans_per_step:,} spans", flush=True
        )
    return folders


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=float, default=10e6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--measure", nargs=3, metavar=("NAME", "A", "B"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, folder, other = args.measure
        for what, value in MEASURES[name](Path(folder), Path(other)).items():
            print(f"{what}={value}")
        return
    root = Path(tempfile.mkdtemp(prefix="musetrace-bench-", dir=args.folder))
    try:
        a, b = make(root, args.spans)
        keep_cubes(open_run(b))
        print(f"load of the machine at first     {os.getloadavg()[0]:9.2f}")
        for name in MEASURES:
            show(name, a, b, args.repeats)
        print(f"load of the machine at last      {os.getloadavg()[0]:9.2f}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
