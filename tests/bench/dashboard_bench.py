"""Prints how quickly the dashboard answers on this machine, and what it takes of memory; asserts nothing.

    python -m tests.bench.dashboard_bench server [--spans 100e6] [--requests 40] [--run FOLDER] [--folder DIR]

``server`` asks the timeline's routes of a run of eight ranks (``tiled_run``; 100e6 spans take 5 GB on disk)
as its page does: rasters of 1,400 by 600 pixels. The server is a process of its own; every window is another
one, so that no answer is remembered, and steps are read as they come. Times are from the request to the last
byte, in ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode

from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.pyramid_cells import keep_pyramid
from musetrace.dashboard.server import DashboardServer
from musetrace.store import open_run
from tests.bench.tiled_run import LAYERS, TiledRun

Asked = tuple[str, dict[str, object]]  # a route and its fields

WIDTH, HEIGHT = 1_400, 600
CLIENTS = (1, 8)


@dataclass(frozen=True)
class Site:
    """A server and how to ask it."""

    port: int
    cookie: str
    process: int

    def ask(self, route: str, **fields: object) -> bytes:
        """The body of an answer. Raises RuntimeError for a refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/api/{route}?{urlencode(fields)}", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{route}: {answer.status} {body[:200]!r}")
        return body

    def processor_s(self) -> float:
        """Processor time that the server has used."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> dict[str, float]:
        """Resident memory now and at most."""
        told = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.process}/status").read_text().splitlines()
        )
        return {name: int(told[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def serve(run: Path, told: Connection) -> None:
    """The server's process; lives until the other end is closed."""
    with DashboardServer([run], port=0) as server:
        told.send((server.port, server.entry_url))
        told.recv()


def cookie_of(port: int, entry_url: str) -> str:
    """What a browser keeps after it opened the printed address."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", entry_url.split(str(port), 1)[1])
    answer = connection.getresponse()
    return str(answer.headers["Set-Cookie"]).split(";", 1)[0]


class Windows:
    """Windows as somebody asks for them who looks around: of a length, anywhere in the run."""

    def __init__(self, document: dict[str, object], seed: int) -> None:
        """``document`` of the run."""
        self._to = int(str(document["to"]))
        steps = document["steps"]
        assert isinstance(steps, list)
        self._step = max(step["to"] - step["from"] for step in steps)
        self._random = random.Random(seed)

    def of(self, scale: str, ranks: str) -> dict[str, object]:
        """The fields of a request; no two are alike."""
        part = {"run": None, "step": 1.0, "launch": 1 / LAYERS, "tenth": 0.1 / LAYERS}[scale]
        length = self._to if part is None else int(self._step * part * self._random.uniform(0.9, 1.1))
        from_ns = (
            self._random.randrange(max(self._to - length, 1)) if part else -self._random.randrange(1_000_000)
        )
        strips = 1 if ranks == "all" else 4
        return {
            "from": from_ns, "to": from_ns + length, "ranks": ranks, "strips": strips,
            "width": WIDTH, "height": HEIGHT,
        }  # fmt: skip


@dataclass(frozen=True)
class Looking:
    """What each of some clients asks for."""

    document: dict[str, object]
    scale: str
    ranks: str
    requests: int

    def __call__(self, client: int) -> list[Asked]:
        """Windows that nobody asked for before."""
        windows = Windows(self.document, hash((client, self.scale, self.ranks, self.requests)))
        return [("window", windows.of(self.scale, self.ranks)) for _ in range(self.requests)]


def timed(site: Site, asked: list[Asked]) -> list[tuple[float, int]]:
    """ms and bytes of each answer."""
    found = []
    for route, fields in asked:
        begin_s = time.perf_counter()
        body = site.ask(route, **fields)
        found.append(((time.perf_counter() - begin_s) * 1e3, len(body)))
    return found


def together(site: Site, clients: int, asked: Callable[[int], list[Asked]]) -> list[float]:
    """ms of all answers to some clients that ask at once."""
    found: list[tuple[float, int]] = []
    threads = [
        threading.Thread(target=lambda at=at: found.extend(timed(site, asked(at)))) for at in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ms for ms, _ in found]


def show(what: str, values: list[float], used_s: float | None = None) -> None:
    """Median, 95th percentile and range, and what the server used of processors where that was measured."""
    ordered = sorted(values)
    p95 = ordered[max(-(-95 * len(ordered) // 100), 1) - 1]
    used = "" if used_s is None else f"; processor {used_s * 1e3 / len(ordered):.1f} each"
    print(
        f"{what:<46} p50 {statistics.median(ordered):7.1f}  p95 {p95:7.1f}  "
        f"({ordered[0]:.1f} to {ordered[-1]:.1f}, n = {len(ordered)}){used}",
        flush=True,
    )


def measure(site: Site, requests: int) -> None:
    """All figures of the server."""
    begin_s = time.perf_counter()
    document = json.loads(site.ask("run"))
    print(f"{'first document of the run, ms':<46} {(time.perf_counter() - begin_s) * 1e3:.1f}", flush=True)
    while document["minimap"] is None:
        time.sleep(1)
        document = json.loads(site.ask("run"))
    for clients in CLIENTS:
        for ranks in ("all", "0"):
            for scale in ("run", "step", "launch", "tenth"):
                looking = Looking(document, scale, ranks, max(requests // clients, 5))
                used_s = site.processor_s()
                values = together(site, clients, looking)
                show(
                    f"window, {scale}, ranks {ranks}, {clients} at once", values, site.processor_s() - used_s
                )
    print({name: round(mb) for name, mb in site.memory_mb().items()}, "MiB", flush=True)
    for name, asked in questions(document, requests).items():
        used_s = site.processor_s()
        values = [ms for ms, _ in timed(site, asked)]
        show(name, values, site.processor_s() - used_s)
    print({name: round(mb) for name, mb in site.memory_mb().items()}, "MiB", flush=True)


def questions(document: dict[str, object], requests: int) -> dict[str, list[Asked]]:
    """Areas, searches, spans."""
    windows, chance = Windows(document, 5), random.Random(9)
    steps = document["steps"]
    assert isinstance(steps, list)

    def areas(scale: str, ranks: str) -> list[Asked]:
        every = [windows.of(scale, ranks) for _ in range(requests)]
        return [("area", {name: one[name] for name in ("from", "to", "ranks")}) for one in every]

    def spans() -> Iterator[Asked]:
        for _ in range(requests):
            step = chance.choice(steps)["step"]
            yield "span", {"rank": chance.randrange(8), "step": step, "id": chance.randrange(600_000)}

    return {
        "area, a step of one rank": areas("step", "0"),
        "area, a step of all ranks": areas("step", "all"),
        "area, a launch of all ranks": areas("launch", "all"),
        "area, the whole run": [("area", {})],
        "search in a step of all ranks": [
            ("search", {**fields, "op": "gemm", "min_ns": 3_000}) for _, fields in areas("step", "all")
        ],
        "search in the whole run": [("search", {"op": "gemm", "min_ns": 3_000})],
        "a span with its flows": list(spans()),
    }


def server(args: argparse.Namespace) -> None:
    """Make a run unless one is given, serve it, ask."""
    root = None if args.run else Path(tempfile.mkdtemp(prefix="musetrace-bench-", dir=args.folder))
    try:
        run = args.run or made(root, args.spans)
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(run, theirs), daemon=True)
        print(f"load of the machine at first {os.getloadavg()[0]:.2f}")
        process.start()
        port, entry_url = ours.recv()
        assert process.pid is not None
        measure(Site(port, cookie_of(port, entry_url), process.pid), args.requests)
        print(f"load of the machine at last {os.getloadavg()[0]:.2f}")
        ours.send("end")
        process.join(30)
    finally:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)


def made(root: Path | None, spans: float) -> Path:
    """A run with its index, cubes and pyramid."""
    assert root is not None
    tiled = TiledRun()
    steps = max(round(spans / tiled.spans_per_step), 1)
    path = tiled.write(root / "run", steps)
    run = open_run(path)
    keep_cubes(run)
    begin_s = time.perf_counter()
    keep_pyramid(Timeline.of(run, LaneMemory(0)))
    print(f"{steps} steps, {steps * tiled.spans_per_step:,} spans", flush=True)
    kept_bytes = (path / "cubes" / "pyramid.arrow").stat().st_size
    print(f"pyramid: {time.perf_counter() - begin_s:.1f} s, {kept_bytes / 1e6:.0f} MB", flush=True)
    return path


def main() -> None:
    """Run the part that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["server"])
    parser.add_argument("--spans", type=float, default=100e6)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    server(parser.parse_args())


if __name__ == "__main__":
    main()
