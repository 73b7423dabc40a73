"""``musetrace probe``: what this device can do, measured on it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from musetrace.cli.command import EXIT_COMPLETE, EXIT_INCOMPLETE, Command, add_json_option
from musetrace.cli.output import Screen, add_width_option, print_json, print_lines, screen_of
from musetrace.cli.probe_page import list_lines, page
from musetrace.cli.probe_targets import checked_targets
from musetrace.cli.progress import ProgressBar
from musetrace.errors import UsageError
from musetrace.probe.cpu import Cpu, open_cpu
from musetrace.probe.document import document
from musetrace.probe.experiments import EXPERIMENTS, chosen, run
from musetrace.probe.gpu import Gpu, gpu_is_usable, require_gpu
from musetrace.probe.reading import read_document


class ProbeCommand(Command):
    """A table of facts for each experiment, and where the facts are to be kept or drawn."""

    name = "probe"
    help = "measure what this device can do"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the device, the experiments, and where the facts go."""
        parser.add_argument(
            "--device",
            choices=("auto", "cpu", "cuda"),
            help="auto (default): a GPU of compute capability 9.0 when there is one and this build can use "
            "it, else the CPU",
        )
        parser.add_argument("--only", metavar="NAME[,NAME]", help="run these experiments alone")
        parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
        parser.add_argument("--list", action="store_true", help="print the experiments and measure nothing")
        parser.add_argument(
            "--from",
            dest="source",
            metavar="FILE",
            help="measure nothing; take the facts that --json printed into FILE",
        )
        parser.add_argument("--plot", metavar="FILE", help="write the four curves of a GPU as a page (HTML)")
        parser.add_argument(
            "--keep", metavar="RUN", help="keep the facts with a run that was recorded on this device"
        )
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Measure and print; 0, or 3 when an experiment failed."""
        screen = screen_of(args)
        if args.list:
            return _print_list(args.json, screen)
        # Whatever can be refused is refused before anything is measured.
        if args.source is not None:
            probed = _read(args)
            targets = checked_targets(args.plot, args.keep, probed["device"])
        else:
            device = _device(args.device, args.quick)
            experiments = chosen(device.device["kind"], None if args.only is None else args.only.split(","))
            targets = checked_targets(args.plot, args.keep, device.device)
            with ProgressBar(sys.stderr, "measuring", "experiments") as bar:
                probed = document(device.device, run(device, experiments, bar.show))
        if args.json:
            print_json(probed)
        else:
            print_lines(page(probed, screen))
        targets.write(probed)
        return EXIT_COMPLETE if probed["complete"] else EXIT_INCOMPLETE


def _print_list(as_json: bool, screen: Screen) -> int:
    if as_json:
        kinds = {kind: {one.name: one.title for one in there} for kind, there in EXPERIMENTS.items()}
        print_json({"experiments": kinds})
    else:
        print_lines(list_lines(screen))
    return EXIT_COMPLETE


def _read(args: argparse.Namespace) -> dict[str, Any]:
    """The facts of an earlier probe. Raises UsageError beside options that say how to measure."""
    for name in ("device", "only", "quick"):
        if getattr(args, name):
            raise UsageError(
                f"--{name} says how to measure, and --from measures nothing: leave one of them out"
            )
    return read_document(Path(args.source))


def _device(name: str | None, quick: bool) -> Gpu | Cpu:
    if name == "cuda" or (name != "cpu" and gpu_is_usable()):
        return require_gpu(quick)
    return open_cpu(quick)
