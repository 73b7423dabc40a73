"""``musetrace record``: records decode steps of the built-in model, or a program of the user's."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from musetrace.cli.command import Command, add_json_option, exit_code_of, needs_torch
from musetrace.cli.conditions import loss_summary, totals
from musetrace.cli.output import print_json
from musetrace.cli.progress import ProgressBar
from musetrace.cli.text import shown
from musetrace.errors import NotARunError, UsageError
from musetrace.record.output import OutputFolder
from musetrace.record.process import run_command
from musetrace.record.process_place import ProcessPlace, process_place
from musetrace.record.recorder import OUTPUT_VARIABLE, STAMPS_VARIABLE, Recorder
from musetrace.record.source import SLOT_BYTES_OF_STAMPS
from musetrace.store import Run, open_run
from musetrace.wording.numbers import count

_SEPARATOR = "--"
_NUMBERS = (
    ("steps", "decode steps (default 20)"),
    ("tp", "ranks that share the model (default 2, at full width 8, for a slice its own number)"),
    ("blocks", "blocks of a rank (default 2 on the CPU, on a GPU its SMs divided by the ranks it holds)"),
    ("seed", "of weights and prompt (default 0)"),
    ("layers", "run the first N layers only, to save memory; GPU (default all)"),
    ("context", "positions in front of the verified tokens; slice and full width (default 4096)"),
    (
        "batch",
        "sequences at once (default 1); several run on the ordinary chain of kernels, which has no stamps: a "
        "token of each a step, and the host's times",
    ),
)


class RecordCommand(Command):
    """Checks the output before anything is started, and ends with what was recorded and what to type next."""

    name = "record"
    help = "record a decode step, or a program of yours"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the output, the built-in step's options and the command."""
        parser.usage = "musetrace record -o RUN [options] [-- COMMAND ...]"
        parser.add_argument("-o", "--output", required=True, metavar="RUN", help="folder to make for the run")
        parser.add_argument("--force", action="store_true", help="replace RUN if it is an earlier run")
        parser.add_argument(
            "--stamps",
            choices=sorted(SLOT_BYTES_OF_STAMPS),
            default="register",
            help="how the device keeps its stamps (default register)",
        )
        _add_step_options(parser.add_argument_group("the built-in decode step"))
        parser.add_argument(
            "command",
            nargs=argparse.REMAINDER,
            metavar="-- COMMAND ...",
            help="a program that calls musetrace.record() instead of the built-in step",
        )
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Record."""
        command = _command_of(args)
        place = process_place(os.environ)
        if not command:
            return _record_step(Path(args.output), place, args)
        if place is not None:
            raise UsageError(
                f"this is process {place.process} of {place.processes}; record around torchrun instead of "
                "under it: musetrace record -o RUN -- torchrun ..."
            )
        return _record_program(command, OutputFolder(Path(args.output), force=args.force), args)


def _add_step_options(step: argparse._ArgumentGroup) -> None:
    step.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="auto (default): a GPU of compute capability 9.0 when there is one and this build can use it, "
        "else the CPU; a slice needs a GPU",
    )
    step.add_argument(
        "--model",
        metavar="NAME",
        help="default mini. muse-spark-open-tp8-slice: one rank of eight on one GPU, which plays back what "
        "its peers would send. muse-spark-open: all eight under torchrun, on 2, 4 or 8 GPUs. Unless a "
        "checkpoint is given, weights of both are random, and what they decode is no text",
    )
    for name, text in _NUMBERS:
        step.add_argument(f"--{name}", type=int, metavar="N", help=text)
    step.add_argument(
        "--weights",
        metavar="DIR",
        help="folder with the model's weights under their public names, and the draft's in its folder draft "
        "(default: synthetic ones)",
    )
    step.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what to go on from, where a tokenizer is beside the weights (samples/train_mini makes both)",
    )
    step.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="draw tokens at this temperature, by --seed (default: the most probable ones); whole steps",
    )
    step.add_argument(
        "--stop4",
        choices=("sumsq", "gather"),
        help="what ranks send each other of the experts' outputs: sums of squares (default), or all; GPU",
    )
    step.add_argument(
        "--guesses",
        choices=("tree", "chain", "none"),
        help="what a step verifies of the draft's guesses: a tree of 15 (default), or one for each of 15 "
        "positions; none: a step is a verify pass alone, as it is with fewer --layers",
    )
    for launches, text in (
        ("graph", "a step as one CUDA graph, drained at its end (default, but for verify passes of mini)"),
        ("eager", "one launch after the other, each drained at its end: less is lost if the program dies"),
    ):
        step.add_argument(
            f"--{launches}", dest="launches", action="store_const", const=launches, help=f"{text}; GPU"
        )


def _command_of(args: argparse.Namespace) -> list[str]:
    """The program to run, empty for the built-in step. Raises UsageError."""
    words: list[str] = args.command
    if not words:
        return []
    if words[0] != _SEPARATOR:
        raise UsageError(f"unexpected {words[0]!r}: name the run with -o, and put -- before a command")
    if len(words) == 1:
        raise UsageError("there is no command behind --: name the program to record")
    given = [value if name == "launches" else name for name, value in _step_options(args).items()]
    if given:
        raise UsageError(f"--{given[0]} is for the built-in step: leave it out, or leave the command out")
    return words[1:]


def _step_options(args: argparse.Namespace) -> dict[str, Any]:
    """Those of ``DecodeOptions`` that were given; a COMMAND takes none of them."""
    from musetrace.muse.decode_options import DecodeOptions

    names = [one.name for one in fields(DecodeOptions)]
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def _record_step(path: Path, place: ProcessPlace | None, args: argparse.Namespace) -> int:
    """The built-in step; of several processes, the first one tells what they recorded."""
    with needs_torch():
        from musetrace.muse.decode import record_decode
        from musetrace.muse.decode_options import DecodeOptions
    leads = place is None or place.process == 0
    bar = ProgressBar(sys.stderr if leads else io.StringIO(), "recording", "steps")
    with Recorder(path, force=args.force, stamps=args.stamps) as recorder, bar:
        decoded = record_decode(recorder, DecodeOptions(**_step_options(args)), bar.show)
    if not leads:
        return exit_code_of(recorder.close().verdict)
    run = open_run(path)
    document = {"decoded": {"tokens": decoded.tokens, "prompt": decoded.prompt, "text": decoded.text}}
    if decoded.text is not None and not args.json:
        print("\n".join(map(shown, f"{decoded.prompt} | {decoded.text}".splitlines())))
    _tell(run, args.json, {"state": recorder.state, **document}, decoded.tokens)
    return exit_code_of(run.verdict)


def _record_program(command: list[str], output: OutputFolder, args: argparse.Namespace) -> int:
    """Run a program with the recorder switched on; its exit code is the result."""
    output.clear()
    path = output.path.absolute()
    code = run_command(command, {OUTPUT_VARIABLE: os.fspath(path), STAMPS_VARIABLE: args.stamps})
    try:
        run = open_run(output.path)
    except NotARunError:
        line = f"{command[0]} ended with {code} and recorded nothing: does it call musetrace.record()?"
        print(f"musetrace: {shown(line)}", file=sys.stderr)
        return code
    _tell(run, args.json, {"exit_code": code})
    return code


def _tell(run: Run, as_json: bool, more: dict[str, Any], tokens: int | None = None) -> None:
    steps = max((int(entry["steps"]) for entry in run.manifest["ranks"]), default=0)
    of = totals(run)
    follow_up = ["musetrace", "report", str(run.path)]
    if as_json:
        document = {"run": str(run.path), "verdict": run.verdict, "ranks": len(run.ranks), "steps": steps}
        print_json({**document, **of, "losses": run.losses, "next": follow_up, **more})
        return
    decoded = "" if tokens is None or not steps else f"{count(tokens)} tokens ({tokens / steps:.2f} a step), "
    ranks = f"{len(run.ranks)} rank{'s' * (len(run.ranks) != 1)}"
    print(
        f"{shown(str(run.path))} is {run.verdict}: {count(steps)} steps, {decoded}"
        f"{count(of['launches'])} launches, {count(of['spans'])} spans on {ranks}; "
        f"losses: {loss_summary(run)}"
    )
    print(f"next: {shown(shlex.join(follow_up))}")
