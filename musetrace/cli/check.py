"""``musetrace check``: reads a run's journals again, from begin to end, and compares the index with them."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musetrace.cli.command import EXIT_REFUSED, Command, add_json_option, exit_code_of
from musetrace.cli.conditions import loss_lines
from musetrace.cli.output import Screen, add_width_option, print_json, print_lines, screen_of
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.errors import TraceFileError
from musetrace.store import Run, open_run
from musetrace.store.index import index_into
from musetrace.store.journal_files import journal_paths
from musetrace.wording.numbers import count, size

SAME = "equals its journal"
NO_JOURNAL = "readable, no journal to compare with"
GROWING = "not compared, still being recorded"
WRONG = "wrong"
_REMEDY = "delete manifest.json, and the next report or info makes the index again"
_COMPARED = ("verdict", "blocks", "steps", "launches", "spans", "losses")


class CheckCommand(Command):
    """Every chunk is read and every row of the index compared; a line for each rank, and a verdict."""

    name = "check"
    help = "read a run's journals again and compare its index"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run."""
        parser.add_argument("run", help="the run's folder")
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Check; 0 complete, 3 incomplete or damaged, 1 when the index differs from the journals."""
        screen = screen_of(args)
        run = open_run(args.run)
        ranks = check(run)
        if args.json:
            print_json(document(run, ranks))
        else:
            print_lines(page(run, ranks, screen))
        return exit_code_of(run.verdict) if is_sound(ranks) else EXIT_REFUSED


@dataclass(frozen=True)
class CheckedRank:
    """One rank: its entry of the manifest, the state of its index, and the first thing wrong with that."""

    entry: dict[str, Any]
    index: str
    problem: str | None = None


def is_sound(ranks: list[CheckedRank]) -> bool:
    """Whether no index is wrong."""
    return all(rank.problem is None for rank in ranks)


def check(run: Run) -> list[CheckedRank]:
    """Read all of a run: the journals, if there are any, into a second index; and both indexes' rows."""
    if not journal_paths(run.path):
        return [_checked(run, entry, None) for entry in run.manifest["ranks"]]
    if run.is_being_recorded:
        return [CheckedRank(entry, GROWING) for entry in run.manifest["ranks"]]
    with tempfile.TemporaryDirectory(prefix="musetrace-check-") as folder:
        again = Run(run.path, Path(folder), index_into(run.path, Path(folder)))
        return [_checked(run, entry, again) for entry in run.manifest["ranks"]]


def _checked(run: Run, entry: dict[str, Any], again: Run | None) -> CheckedRank:
    """One rank of ``run``, compared with the same rank of the index that was just made, if there is one."""
    try:
        problem = _first_difference(run, int(entry["rank"]), again)
    except TraceFileError as error:
        problem = str(error)
    if problem is not None:
        return CheckedRank(entry, WRONG, problem)
    return CheckedRank(entry, NO_JOURNAL if again is None else SAME)


def _first_difference(run: Run, rank: int, again: Run | None) -> str | None:
    fresh = run if again is None else again
    told, found = (_entry(one, rank) for one in (run, fresh))
    for name in _COMPARED:
        if told.get(name) != found.get(name):
            return f"its index tells {name} {told.get(name)}, the journal has {found.get(name)}; {_REMEDY}"
    for name, table, same in (
        ("launches", run.launches(rank), fresh.launches(rank)),
        ("steps", run.steps(rank), fresh.steps(rank)),
    ):
        if not table.equals(same):
            return f"its {name} differ from those of the journal; {_REMEDY}"
    for step in run.step_ids(rank):
        if not run.spans(rank, step).equals(fresh.spans(rank, step)):
            return f"its spans of step {step} differ from those of the journal; {_REMEDY}"
    return None


def _entry(run: Run, rank: int) -> dict[str, Any]:
    entry: dict[str, Any] = next((one for one in run.manifest["ranks"] if one["rank"] == rank), {})
    return entry


def document(run: Run, ranks: list[CheckedRank]) -> dict[str, Any]:
    """What was found, as JSON."""
    names = ("rank", "file", "verdict", "steps", "launches", "spans", "bytes")
    return {
        "run": str(run.path),
        "verdict": run.verdict,
        "index_sound": is_sound(ranks),
        "ranks": [
            {**{name: rank.entry.get(name) for name in names}, "index": rank.index, "problem": rank.problem}
            for rank in ranks
        ],
        "losses": run.losses,
        "notes": list(run.notes),
    }


def page(run: Run, ranks: list[CheckedRank], screen: Screen) -> list[str]:
    """What was found, as lines."""
    columns = [
        Column("rank", [str(rank.entry["rank"]) for rank in ranks]),
        Column("verdict", [str(rank.entry["verdict"]) for rank in ranks], left=True),
        *(
            Column(name, [count(int(rank.entry[name])) for rank in ranks])
            for name in ("steps", "launches", "spans")
        ),
        Column("journal", [size(int(rank.entry["bytes"])) for rank in ranks]),
        Column("index", [screen.shown(rank.index) for rank in ranks], left=True, widest=screen.width),
    ]
    lines = [*table_lines(columns, screen.width), *loss_lines(run, screen, all_kinds=False)]
    for rank in ranks:
        if rank.problem is not None:
            lines += wrap(
                screen.shown(f"rank {rank.entry['rank']}: {rank.problem}"), screen.width, indent="  "
            )
    state = run.verdict if is_sound(ranks) else f"{run.verdict}, but its index is wrong"
    return [*lines, *wrap(f"{screen.shown(run.path)} is {state}", screen.width)]
