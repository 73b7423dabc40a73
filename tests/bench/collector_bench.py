"""Prints what the collector and the index do on this machine; asserts nothing.

    python -m tests.bench.collector_bench [--stamps 100000000] [--repeats 5] [--folder DIR]

Full synthetic buffers of 132 blocks x 256 slots go through the real collector, drain thread and journal; then
the journal is indexed. Prints medians and ranges of the repeats. The journal takes 8 bytes a stamp on disk.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from musetrace.record.recorder import Recorder
from musetrace.record.source import LaunchInfo
from musetrace.store.index import index_run
from tests.builders import wide_table
from tests.host_device import HostDevice, already_done

BLOCKS, SLOTS, LAUNCHES_PER_STEP = 132, 256, 64
STAMPS_PER_LAUNCH = BLOCKS * SLOTS


def rss_bytes() -> int:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def record(folder: Path, launches: int, watch: Callable[[int], None]) -> tuple[float, int]:
    """Record as fast as the drain takes it; returns (stamps per second, times that no buffer was free)."""
    device = HostDevice(blocks=BLOCKS, table=wide_table(SLOTS))
    recorder = Recorder(folder, stamps="store")
    collector = recorder.attach(device.source())
    layout = device.source().layout
    busy, free = 0, recorder._drain.free  # type: ignore[union-attr]
    begin_s = time.perf_counter()
    for number in range(launches):
        step, launch = divmod(number, LAUNCHES_PER_STEP)
        while not free:
            busy += 1
            time.sleep(0.00002)
        lease = collector.acquire(LaunchInfo(step, launch, launch, "sliding"))
        assert lease is not None
        headers, slots = layout.headers(lease.buffer.memory), layout.stamps(lease.buffer.memory)
        t0 = time.monotonic_ns()
        headers["time_ns"], headers["epoch"] = t0, lease.epoch
        np.add(TEMPLATE, np.uint64(t0), out=slots)
        collector.submit(lease, already_done)
        watch(number)
    recorder._close("closed", index=False, timeout_s=None)
    return launches * STAMPS_PER_LAUNCH / (time.perf_counter() - begin_s), busy


TEMPLATE = HostDevice(blocks=BLOCKS, table=wide_table(SLOTS)).times(0)


def show(name: str, values: list[float], unit: str) -> None:
    """Median and range of some repeats."""
    low, high, middle = min(values) / 1e6, max(values) / 1e6, statistics.median(values) / 1e6
    print(f"{name:<28} {middle:8.1f} M {unit}  ({low:.1f} to {high:.1f}, n = {len(values)})")


def measure_long(folder: Path, launches: int) -> float:
    """Record many launches, print the memory that it took, and return stamps per second."""
    memory: list[int] = []
    every = max(launches // 20, 1)

    def watch(number: int) -> None:
        if number % every == 0:
            memory.append(rss_bytes())

    rate, busy = record(folder, launches, watch)
    shutil.rmtree(folder)
    begin, most = memory[len(memory) // 10] / 2**20, max(memory[len(memory) // 10 :]) / 2**20
    print(f"{launches * STAMPS_PER_LAUNCH:,} stamps, {launches} launches, {busy} pauses for a free buffer")
    print(f"memory while recording       {begin:.1f} MiB after a tenth, {most:.1f} MiB at most after that")
    return rate


def measure_index(folder: Path) -> float:
    """Index a run and return spans per second."""
    gc.collect()
    begin_s = time.perf_counter()
    manifest = index_run(folder)
    return float(manifest["ranks"][0]["spans"] / (time.perf_counter() - begin_s))


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stamps", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="musetrace-bench-", dir=args.folder))
    try:
        rate = measure_long(root / "long", args.stamps // STAMPS_PER_LAUNCH)
        launches = max(args.stamps // STAMPS_PER_LAUNCH // 5, 1)
        rates = [record(root / f"run{n}", launches, lambda _: None)[0] for n in range(args.repeats)]
        show("collector and journal", [rate, *rates], "stamps/s")
        show("index", [measure_index(root / f"run{n}") for n in range(args.repeats)], "spans/s")
        print(f"memory after indexing        {rss_bytes() / 2**20:.1f} MiB")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
