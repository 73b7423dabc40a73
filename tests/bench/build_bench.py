"""Builds of the CUDA module beside each other: layers and verify passes of the TP8 slice, on an H200.

``python -m tests.bench.build_bench [--layers N] [--rounds N] NAME=FILE NAME=FILE...``. Each FILE is a
``_cuda`` extension. A build has a process of its own, for pybind11 makes a module once in a process; all of
them keep their graphs on one GPU and replay them in turn, forward and backward. The table gives medians with
95 % bootstrap intervals, and differences of neighbouring replays to the first build. Give the first build
twice, under two names: what two processes of one build differ by is what this bench cannot tell.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

from musetrace.analysis.certainty.bootstrap import bootstrap_median

MODULE = "musetrace._cuda"
# Launches in a graph of one kind of layer.
LAUNCHES = 16
WHAT = ("sliding", "global", "pass", "pass, register")


class Build:
    """A build in a process of its own; it answers one replay at a time."""

    def __init__(self, name: str, file: str, layers: int) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.bench.build_bench", "--serve", file, "--layers", str(layers)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ready(self) -> None:
        """Until its graphs are there."""
        self._answer()

    def us(self, what: str) -> float:
        """One replay, behind one that warms up, in us."""
        for _ in range(2):
            assert self._process.stdin is not None
            self._process.stdin.write(f"{what}\n")
            answer = float(self._answer())
        return answer

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self._process.wait()}")
        return line


def serve(file: str, layers: int) -> None:
    """Replay what is asked for on standard input, and print its us, of a layer or of a pass."""
    import musetrace

    spec = spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is no extension module")
    sys.modules[MODULE] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    musetrace._cuda = module  # type: ignore[attr-defined]
    from musetrace.muse.config import preset
    from tests.bench.layer_bench import Bench

    bench = Bench(preset("muse-spark-open-tp8-slice"), layers)
    graphs = {"pass": (bench.step_graph("off"), 1), "pass, register": (bench.step_graph("register"), 1)}
    for kind, found in bench.kinds().items():
        requests = [("layer", layer, 0, 1) for layer in (found * LAUNCHES)[:LAUNCHES]]
        graphs[kind] = (bench.mega.capture(requests, "off"), LAUNCHES)
    print("ready", flush=True)
    for line in sys.stdin:
        graph, launches = graphs[line.strip()]
        print(bench.mega_us(graph) / launches, flush=True)


def measure(builds: list[Build], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Us by (what, build), two for each round; the first round is the warm-up."""
    times: dict[tuple[str, str], list[float]] = {(what, one.name): [] for what in WHAT for one in builds}
    for number in range(rounds + 1):
        for order in (builds, builds[::-1]):
            for what in WHAT:
                for build in order:
                    us = build.us(what)
                    if number:
                        times[what, build.name].append(us)
    return times


def show(times: dict[tuple[str, str], list[float]], base: str) -> None:
    """The table."""
    for (what, name), us in times.items():
        median = bootstrap_median(np.array(us))
        more = bootstrap_median(np.array(us) - np.array(times[what, base]))
        row = (
            f"{what:16s}{name:12s}{median.median:9.2f} [{median.low:.2f} {median.high:.2f}] n {median.count}"
        )
        print(row if name == base else f"{row}, {more.median:+.2f} [{more.low:+.2f} {more.high:+.2f}]")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.layers)
        return
    named = [tuple(one.split("=", 1)) for one in args.builds if "=" in one]
    if len(named) < len(args.builds) or len({name for name, *_ in named}) < max(2, len(named)):
        parser.error("give two builds or more, NAME=FILE, each with a name of its own")
    for name, file in named:
        if not Path(file).is_file():
            parser.error(f"{name}: there is no file {file}")
    builds = [Build(name, file, args.layers) for name, file in named]
    for build in builds:
        build.ready()
    print(f"{args.layers} layers, us, median [95 % interval], difference to {builds[0].name}")
    show(measure(builds, args.rounds), builds[0].name)


if __name__ == "__main__":
    main()
