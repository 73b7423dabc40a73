"""``musetrace record``: records decode steps of the built-in model, or a program of the user's."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from musetrace.cli.command import Command, add_json_option, exit_code_of
from musetrace.cli.conditions import loss_summary, totals
from musetrace.cli.numbers import count
from musetrace.cli.output import print_json
from musetrace.cli.progress import ProgressBar
from musetrace.cli.text import shown
from musetrace.errors import NotARunError, RecordError, UsageError
from musetrace.record.output import OutputFolder
from musetrace.record.process import run_command
from musetrace.record.recorder import OUTPUT_VARIABLE, STAMPS_VARIABLE, Recorder
from musetrace.record.source import SLOT_BYTES_OF_STAMPS
from musetrace.store import Run, open_run

_SEPARATOR = "--"
# What the built-in step does when nothing is said; a COMMAND takes none of these options.
_STEP_DEFAULTS = {"device": "auto", "model": "mini", "steps": 20, "tp": 2, "blocks": 2, "seed": 0}


class RecordCommand(Command):
    """Checks the output before anything is started, and ends with what was recorded and what to type next."""

    name = "record"
    help = "record a decode step, or a program of yours"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the output, the built-in step's options and the command."""
        told = _STEP_DEFAULTS
        parser.usage = "musetrace record -o RUN [options] [-- COMMAND ...]"
        parser.add_argument("-o", "--output", required=True, metavar="RUN", help="folder to make for the run")
        parser.add_argument("--force", action="store_true", help="replace RUN if it is an earlier run")
        parser.add_argument(
            "--stamps",
            choices=sorted(SLOT_BYTES_OF_STAMPS),
            default="register",
            help="how the device keeps its stamps (default register)",
        )
        step = parser.add_argument_group("the built-in decode step")
        step.add_argument("--device", choices=("auto", "cpu", "cuda"), help=f"default {told['device']}")
        step.add_argument("--model", metavar="NAME", help=f"default {told['model']}")
        for name, text in (
            ("steps", "decode steps"),
            ("tp", "ranks"),
            ("blocks", "blocks of a rank on the CPU device"),
            ("seed", "of weights and prompt"),
        ):
            step.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} (default {told[name]})")
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
        output = OutputFolder(Path(args.output), force=args.force)
        if command:
            return _record_program(command, output, args)
        return _record_step(output.path, args)


def _command_of(args: argparse.Namespace) -> list[str]:
    """The program to run, empty for the built-in step. Raises UsageError."""
    words: list[str] = args.command
    if not words:
        return []
    if words[0] != _SEPARATOR:
        raise UsageError(f"unexpected {words[0]!r}: name the run with -o, and put -- before a command")
    if len(words) == 1:
        raise UsageError("there is no command behind --: name the program to record")
    given = [f"--{name}" for name in _STEP_DEFAULTS if getattr(args, name) is not None]
    if given:
        raise UsageError(f"{given[0]} is for the built-in step: leave it out, or leave the command out")
    return words[1:]


def _record_step(path: Path, args: argparse.Namespace) -> int:
    try:
        from musetrace.muse.decode import DecodeOptions, record_decode
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise RecordError("the built-in step needs torch: pip install 'musetrace[record]'") from error
    told = {name: getattr(args, name) for name in _STEP_DEFAULTS}
    chosen: dict[str, Any] = {
        name: default if told[name] is None else told[name] for name, default in _STEP_DEFAULTS.items()
    }
    bar = ProgressBar(sys.stderr, "recording", "steps")
    with Recorder(path, force=args.force, stamps=args.stamps) as recorder, bar:
        record_decode(recorder, DecodeOptions(**chosen), bar.show)
    run = open_run(path)
    _tell(run, args.json, {"state": recorder.state})
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


def _tell(run: Run, as_json: bool, more: dict[str, Any]) -> None:
    steps = max((int(entry["steps"]) for entry in run.manifest["ranks"]), default=0)
    of = totals(run)
    follow_up = ["musetrace", "report", str(run.path)]
    if as_json:
        document = {"run": str(run.path), "verdict": run.verdict, "ranks": len(run.ranks), "steps": steps}
        print_json({**document, **of, "losses": run.losses, "next": follow_up, **more})
        return
    ranks = f"{len(run.ranks)} rank{'s' * (len(run.ranks) != 1)}"
    print(
        f"{shown(str(run.path))} is {run.verdict}: {count(steps)} steps, {count(of['launches'])} launches, "
        f"{count(of['spans'])} spans on {ranks}; losses: {loss_summary(run)}"
    )
    print(f"next: {shown(shlex.join(follow_up))}")
