"""``musetrace compare``: what is faster or slower in run B than in run A."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from musetrace import analysis
from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.cli.command import EXIT_INCOMPLETE, Command, add_json_option, exit_code_of
from musetrace.cli.compare.as_junit import junit
from musetrace.cli.compare.as_markdown import markdown
from musetrace.cli.compare.as_text import page
from musetrace.cli.compare.limit import Limit
from musetrace.cli.output import add_width_option, print_json, print_lines, screen_of
from musetrace.cli.written_file import check_folder, write_text
from musetrace.errors import UsageError
from musetrace.store import Run, open_run

_BAND = 0.01
_STDOUT = "-"


class CompareCommand(Command):
    """Conditions that differ first, then step and launches, ops, idle time, ops of one run."""

    name = "compare"
    help = "print what is faster or slower in run B than in run A"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the runs, what of them, and what is written for CI."""
        parser.add_argument("a", metavar="A", help="the run to compare with")
        parser.add_argument("b", metavar="B", help="the run that may be faster or slower")
        parser.add_argument("--kind", help="only launches of this kind, or of this kernel")
        parser.add_argument("--rank", type=int, metavar="N", help="only this rank")
        parser.add_argument(
            "--band", metavar="P%", help="two times within this share of A's are the same (default 1%%)"
        )
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the bootstrap (default 0)")
        parser.add_argument(
            "--fail-over",
            metavar="P%",
            help="exit with 3 when the step, a launch or an op (no wait) is slower by more than this for "
            "certain: the whole interval lies above it, one that holds with those of all rows",
        )
        parser.add_argument(
            "--same-outputs",
            action="store_true",
            help="exit with 3 unless the outputs of all steps are known to be equal bit for bit",
        )
        parser.add_argument(
            "--all", action="store_true", help="show every op and cause, also those of which nothing is told"
        )
        parser.add_argument(
            "--md",
            metavar="FILE",
            help="also write the comparison as Markdown; - prints it instead of the page",
        )
        parser.add_argument(
            "--junit", metavar="FILE", help="also write JUnit XML; needs --fail-over or --same-outputs"
        )
        parser.epilog = (
            "exit codes: 0 compared, and no limit is passed; 3 a limit is passed, or a run is incomplete or "
            "damaged; 1 refused: not a run, or nothing to compare; 2 usage"
        )
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Compare, print and write; 3 when a run is incomplete or a limit was passed."""
        screen, limit = screen_of(args), _limit_of(args)
        rule = analysis.Rule(
            _BAND if args.band is None else share_of("--band", args.band), _checked_seed(args.seed)
        )
        _check_files(args, limit)
        a, b = open_run(args.a), open_run(args.b)
        for run in (a, b):
            keep_cubes(run)
        found = analysis.compare(a, b, layer_kind=args.kind, rank=args.rank, rule=rule)
        lines = page(a, b, found, limit, screen, every=args.all)
        text = "" if args.md is None else markdown(str(a.path), str(b.path), found, limit)
        if args.md not in (None, _STDOUT):
            write_text(Path(args.md), text)
        if args.junit is not None and limit is not None:
            recorded_at = b.manifest.get("recorded_at")
            write_text(Path(args.junit), junit(str(a.path), str(b.path), found, limit, recorded_at))
        if args.json:
            print_json(document(a, b, found, limit))
        else:
            print_lines(text.splitlines() if args.md == _STDOUT else lines)
        if limit is not None and limit.passed(found):
            return EXIT_INCOMPLETE
        return max(exit_code_of(a.verdict), exit_code_of(b.verdict))


def _limit_of(args: argparse.Namespace) -> Limit | None:
    if args.fail_over is None and not args.same_outputs:
        return None
    share = None if args.fail_over is None else share_of("--fail-over", args.fail_over)
    return Limit(share, args.same_outputs)


def _check_files(args: argparse.Namespace, limit: Limit | None) -> None:
    if args.junit is not None and limit is None:
        raise UsageError("--junit needs --fail-over, without which nothing can fail: add --fail-over 2%")
    if args.md == _STDOUT and args.json:
        raise UsageError("--md - and --json both print: name a file for one of them")
    for file in filter(None, (args.md, args.junit)):
        if file != _STDOUT:
            check_folder(Path(file))


def share_of(option: str, text: str) -> float:
    """``2%`` as 0.02. Raises UsageError for anything that is no percentage of 0 to 1000 %."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 1000:
        raise UsageError(f"{option} {text!r} is no percentage: give one like 2%")
    return percent / 100


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise UsageError(f"--seed {seed} is negative: give 0 or more")
    return seed


def document(a: Run, b: Run, found: analysis.Comparison, limit: Limit | None) -> dict[str, Any]:
    """The comparison as JSON: every table's rows, times in ns, B minus A."""
    tables = ("times", "ops", "only", "busy", "idle", "saved", "skew")
    return {
        "a": {"run": str(a.path), "verdict": a.verdict, "losses": a.losses},
        "b": {"run": str(b.path), "verdict": b.verdict, "losses": b.losses},
        "warnings": list(found.warnings),
        "observed": dict(zip("ab", found.observed, strict=True)),
        "outputs": asdict(found.outputs),
        "ranks": list(found.ranks),
        "kind": found.layer_kind,
        "band": found.rule.band,
        "seed": found.rule.seed,
        "fail_over": None if limit is None else limit.share,
        "same_outputs": limit is not None and limit.same_outputs,
        "failures": [] if limit is None else [list(name) for name in limit.passed(found)],
        **{name: getattr(found, name).to_pylist() for name in tables},
    }
