"""Critical paths and what-ifs in a report: the option, the questions, and their sections in order."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from musetrace import analysis
from musetrace.cli.critical_section import asked_lines, critical_lines, what_if_lines
from musetrace.cli.output import Screen
from musetrace.store import Run

CRITICAL_ANSWERS = ("critical_path", "critical_edges", "what_ifs", "what_if")

Section = tuple[list[str], pa.Table, Callable[[pa.Table, Screen], list[str]]]


def add_what_if_option(parser: argparse.ArgumentParser) -> None:
    """The option ``--what-if``, which may be given several times."""
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="how long a launch would be: OP=0, OP=-10%% (its jobs take so much less) or STOP=gone "
        "(nobody waits in it); an op, a stop or a job; may be given several times",
    )


def ask_critical(
    run: Run, kinds: Sequence[str], rank: int | None, step: int | None, changes: Sequence[str]
) -> dict[str, dict[str, pa.Table]]:
    """:data:`CRITICAL_ANSWERS`, each by kind of launch and all of the same launches.

    ``what_if`` is empty where no change was asked for.
    """
    samples = {kind: analysis.sampled_graphs(run, layer_kind=kind, rank=rank, step=step) for kind in kinds}
    asked = {kind: analysis.what_if(run, changes, sampled=sampled) for kind, sampled in samples.items()}
    paths = {kind: analysis.critical_path(run, sampled=sampled) for kind, sampled in samples.items()}
    return {
        "critical_path": {kind: path.parts for kind, path in paths.items()},
        "critical_edges": {kind: path.edges for kind, path in paths.items()},
        "what_ifs": {kind: analysis.what_ifs(run, sampled=sampled) for kind, sampled in samples.items()},
        "what_if": asked if changes else {},
    }


def critical_json(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of each answer by kind."""
    return {
        name: {kind: table.to_pylist() for kind, table in answers[name].items()} for name in CRITICAL_ANSWERS
    }


def critical_sections(answers: Mapping[str, Any], screen: Screen) -> list[Section]:
    """For each kind what held up its launches and what changes would bring; then what was asked for."""
    found: list[Section] = []
    for kind, table in answers["critical_path"].items():
        title = f"{screen.shown(kind)}: what held up the end of a launch"
        found.append(([title], table, partial(critical_lines, answers["critical_edges"][kind])))
        found.append(([], answers["what_ifs"][kind], what_if_lines))
    asked = answers["what_if"]
    for table in [table for table in asked.values() if table.num_rows][:1]:
        found.append((["what if"], table, lambda _, screen: asked_lines(asked, screen)))
    return found
