"""``musetrace report``: where the time of a run went, and what to fix first."""

from __future__ import annotations

import argparse
from pathlib import Path

from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.cli.command import Command, add_json_option, exit_code_of
from musetrace.cli.output import Screen, add_width_option, print_json, print_lines, screen_of
from musetrace.cli.report.answers import Answers, Scope
from musetrace.cli.report.as_html import HTML_SCREEN, html_text
from musetrace.cli.report.as_json import json_document
from musetrace.cli.report.as_markdown import MARKDOWN_WIDTH, markdown_text
from musetrace.cli.report.as_text import text_lines
from musetrace.cli.report.html_figures import require_plotly
from musetrace.cli.report.page import report_document
from musetrace.cli.report.questions import ASKS
from musetrace.cli.report.thresholds import Thresholds, add_threshold_options
from musetrace.cli.written_file import check_folder, write_text
from musetrace.errors import UsageError
from musetrace.store import open_run

_STDOUT = "-"


class ReportCommand(Command):
    """Conditions and steps, what to fix first, then a section for each question; losses last."""

    name = "report"
    help = "print where the time of a run went"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what to report on."""
        parser.add_argument("run", help="the run's folder")
        parser.add_argument(
            "--kind", help="only launches of this kind (sliding, global, entry, head), or of this kernel"
        )
        parser.add_argument("--rank", type=int, metavar="N", help="only this rank")
        parser.add_argument("--step", type=int, metavar="N", help="only this step")
        parser.add_argument(
            "--md",
            nargs="?",
            const=_STDOUT,
            metavar="FILE",
            help="also write the report as Markdown; without FILE it is printed in place of the text",
        )
        parser.add_argument(
            "--html",
            metavar="FILE",
            help="also write it as one HTML file with pictures, which needs no network",
        )
        parser.add_argument(
            "--what-if",
            action="append",
            default=[],
            metavar="CHANGE",
            help="how long a launch would be: OP=0, OP=-10%% (its jobs take so much less) or STOP=gone "
            "(nobody waits in it); an op, a stop or a job; may be given several times",
        )
        add_threshold_options(parser)
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the report."""
        screen = screen_of(args)
        thresholds = Thresholds.of(args)
        _check_files(args)
        run = open_run(args.run)
        if args.step is None:
            keep_cubes(run)
        answers = Answers(run, Scope(args.kind, args.rank, args.step), thresholds, ASKS, args.what_if)
        if args.md not in (None, _STDOUT):
            write_text(Path(args.md), _markdown(answers, unicode=True))
        if args.html is not None:
            write_text(Path(args.html), html_text(report_document(answers, HTML_SCREEN, lists_pages=False)))
        if args.json:
            print_json(json_document(answers))
        elif args.md == _STDOUT:
            print_lines(_markdown(answers, unicode=screen.unicode).splitlines())
        else:
            print_lines(text_lines(report_document(answers, screen), screen))
        return exit_code_of(run.verdict)


def _markdown(answers: Answers, *, unicode: bool) -> str:
    screen = Screen(MARKDOWN_WIDTH, unicode)
    return markdown_text(report_document(answers, screen), screen)


def _check_files(args: argparse.Namespace) -> None:
    """Raises, before any work is done, where a file cannot be made."""
    if args.json and args.md == _STDOUT:
        raise UsageError("--json and --md both print to stdout: give --md a FILE")
    for file in (args.md, args.html):
        if file not in (None, _STDOUT):
            check_folder(Path(file))
    if args.html is not None:
        require_plotly()
