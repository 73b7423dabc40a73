"""``musetrace overhead``: what stamps cost, and that they change nothing else."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musetrace.cli.command import (
    EXIT_COMPLETE,
    EXIT_INCOMPLETE,
    Command,
    add_json_option,
    needs_torch,
)
from musetrace.cli.output import add_width_option, plain, print_json, print_lines, screen_of
from musetrace.cli.overhead_page import code_lines, page
from musetrace.cli.progress import ProgressBar
from musetrace.cli.whole_step_page import whole_step_page
from musetrace.errors import OverheadError, UsageError
from musetrace.overhead.machine_code import compare_files
from musetrace.overhead.result import OverheadResult
from musetrace.store.whole_file import write_atomically

if TYPE_CHECKING:
    from musetrace.overhead.built_in.whole_step.measure import WholeStep

_ROUNDS_OF_PROGRAM, _WARM_UP = 30, 2
_MODEL_NUMBERS = (
    ("tp", "ranks that share the model (default 2, at full width 8, for a slice its own number)"),
    ("blocks", "blocks of a rank (default 2 on the CPU, on a GPU its SMs divided by the ranks it holds)"),
    ("layers", "run the first N layers only, to save memory; GPU (default all)"),
    ("context", "positions in front of the verified tokens; slice (default 4096)"),
)
_SCHEDULE_NUMBERS = (
    ("rounds", "of ABBA for each build; fewer than 6 tell nothing (default 30, on the CPU device 10)"),
    ("steps", "back to back in a turn (default 1, for the built-in step on a GPU 4)"),
    ("warm-up", f"turns of each build before the first round (default {_WARM_UP})"),
    ("seed", "of weights, input and bootstrap (default 0)"),
)
# What makes sense for one subject only; all are None or False where they were not given.
_OF_MODEL = ("model", "tp", "blocks", "layers", "context", "no_recorder")
_OF_MEASUREMENT = (*_OF_MODEL, "device", "rounds", "steps", "warm_up", "seed", "stamps", "call", "whole_step")
_NOT_OF_WHOLE_STEP = ("blocks", "layers", "no_recorder", "steps", "warm_up", "stamps", "call")


class OverheadCommand(Command):
    """The built-in step, a program of the user's, or two files of machine code."""

    name = "overhead"
    help = "measure what stamps cost, and that they change nothing else"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what is measured, and how."""
        parser.add_argument(
            "--call",
            metavar="M:F",
            help="measure a program of yours: module:function or file.py:function, which is called with off, "
            "register and store, and returns what runs a step (musetrace.overhead in Python)",
        )
        parser.add_argument(
            "--cubins",
            nargs=2,
            metavar=("OFF", "ABSENT"),
            help="compare the machine code of two files, and measure nothing",
        )
        parser.add_argument(
            "--whole-step",
            action="store_true",
            help="time whole decode steps of the built-in model instead: draft, verify, accept, stamps on "
            "and off, and the chain of ordinary kernels beside them; GPU",
        )
        parser.add_argument(
            "--device", choices=("auto", "cpu", "cuda"), help="default auto: a GPU where there is one"
        )
        parser.add_argument("--model", metavar="NAME", help="of the built-in step (default mini)")
        for name, text in (*_MODEL_NUMBERS, *_SCHEDULE_NUMBERS):
            parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
        parser.add_argument(
            "--stamps", metavar="WAY,...", help="ways of stamping beside off (default register,store)"
        )
        parser.add_argument(
            "--no-recorder", action="store_true", help="leave out the built-in step with a recorder attached"
        )
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="also write the JSON document to a new file"
        )
        parser.add_argument("--force", action="store_true", help="replace FILE")
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Measure, or compare."""
        screen = screen_of(args)
        output = None if args.output is None else _checked_output(Path(args.output), force=args.force)
        if args.cubins is not None:
            _refuse(args, _OF_MEASUREMENT, "--cubins compares files and measures nothing")
            kernels = compare_files(*map(Path, args.cubins))
            equal = all(kernel.difference is None for kernel in kernels)
            document: dict[str, Any] = {"equal": equal, "kernels": [kernel.to_json() for kernel in kernels]}
            lines = code_lines(tuple(kernels), screen)
        elif args.whole_step:
            step = _whole_step(args)
            equal, document, lines = True, step.to_json(), whole_step_page(step, screen)
        else:
            result = _measured(args)
            equal, document = result.sound, result.to_json()
            lines = page(result, screen)
        if output is not None:
            _write(output, document)
        if args.json:
            print_json(document)
        else:
            print_lines(lines)
        return EXIT_COMPLETE if equal else EXIT_INCOMPLETE


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UsageError for the first of some options that was given."""
    for name in names:
        if getattr(args, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} does not fit: {why}")


def _measured(args: argparse.Namespace) -> OverheadResult:
    bar = ProgressBar(sys.stderr, "measuring", "rounds")
    with bar:
        return _of_program(args, bar) if args.call is not None else _of_model(args, bar)


def _stamps(args: argparse.Namespace) -> tuple[str, ...]:
    return ("register", "store") if args.stamps is None else tuple(args.stamps.split(","))


def _whole_step(args: argparse.Namespace) -> WholeStep:
    _refuse(args, _NOT_OF_WHOLE_STEP, "--whole-step replays graphs of all builds and parts in turn")
    with needs_torch():
        from musetrace.overhead.built_in.whole_step.measure import WholeStepOptions, measure_whole_step
    options = WholeStepOptions(
        device=args.device or "auto",
        model=args.model or "mini",
        tp=args.tp,
        context=args.context,
        seed=args.seed or 0,
        rounds=args.rounds,
    )
    with ProgressBar(sys.stderr, "measuring", "rounds") as bar:
        return measure_whole_step(options, bar.show)


def _of_program(args: argparse.Namespace, bar: ProgressBar) -> OverheadResult:
    from musetrace.overhead.measure import measure_program
    from musetrace.overhead.program import load_function

    _refuse(args, _OF_MODEL, "it is for the built-in step, and --call measures a program")
    return measure_program(
        load_function(args.call),
        rounds=_ROUNDS_OF_PROGRAM if args.rounds is None else args.rounds,
        steps=1 if args.steps is None else args.steps,
        warm_up=_WARM_UP if args.warm_up is None else args.warm_up,
        stamps=_stamps(args),
        device=args.device or "auto",
        seed=args.seed or 0,
        name=args.call,
        progress=bar.show,
    )


def _of_model(args: argparse.Namespace, bar: ProgressBar) -> OverheadResult:
    with needs_torch():
        from musetrace.overhead.built_in.measure import BuiltInOptions, measure_built_in
    options = BuiltInOptions(
        device=args.device or "auto",
        model=args.model or "mini",
        tp=args.tp,
        blocks=args.blocks,
        layers=args.layers,
        context=args.context,
        seed=args.seed or 0,
        rounds=args.rounds,
        steps=args.steps,
        warm_up=_WARM_UP if args.warm_up is None else args.warm_up,
        stamps=_stamps(args),
        recorder=not args.no_recorder,
    )
    return measure_built_in(options, bar.show)


def _checked_output(path: Path, *, force: bool) -> Path:
    """Raises OverheadError, before anything is measured, where the file cannot be made."""
    if not path.absolute().parent.is_dir():
        raise OverheadError(
            f"the folder {path.absolute().parent} of {path.name} does not exist; make it first"
        )
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise OverheadError(f"{path} cannot be written; choose another output")
    if path.exists() and not force:
        raise OverheadError(f"{path} exists; add --force to replace it, or choose another output")
    return path


def _write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(plain(document), indent=1, allow_nan=False) + "\n"
    try:
        write_atomically(path, text)
    except OSError as error:
        raise OverheadError(f"cannot write {path}: {error.strerror}; choose another output") from error
