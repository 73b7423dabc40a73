"""``musetrace info``: what a run is, how complete it is, and what it lacks."""

from __future__ import annotations

import argparse
from typing import Any

from musetrace import analysis
from musetrace.analysis.certainty.clock_quality import tick_ns_of
from musetrace.cli.alignment_lines import alignment_lines
from musetrace.cli.clock_lines import seen_tick_ns, tick_text
from musetrace.cli.command import Command, add_json_option, exit_code_of
from musetrace.cli.conditions import condition_lines, labelled, loss_lines, totals
from musetrace.cli.output import Screen, add_width_option, print_json, print_lines, screen_of
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.store import Run, open_run
from musetrace.store.index import PROBE_KEY
from musetrace.store.kept_probe import UNREADABLE
from musetrace.wording.numbers import count, size

_RANK_FIELDS = (
    "rank",
    "file",
    "verdict",
    "end_reason",
    "steps",
    "launches",
    "spans",
    "bytes",
    "losses",
    "notes",
    "alignment",
)
_HEAD = ("format", "index_version", "recording_id", "recorded_at", "command")
_CONDITIONS = ("device", "model", "build", "stamps", "clock")


class InfoCommand(Command):
    """The conditions, a line for each rank, and the table of losses last."""

    name = "info"
    help = "print what a run is, and what it lacks"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run."""
        parser.add_argument("run", help="the run's folder; it may be one that is still being recorded")
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print it."""
        screen = screen_of(args)
        run = open_run(args.run)
        if args.json:
            print_json(document(run))
        else:
            print_lines(page(run, screen))
        return exit_code_of(run.verdict)


def document(run: Run) -> dict[str, Any]:
    """The run's description as JSON; times in ns, sizes in bytes."""
    manifest = run.manifest
    return {
        "run": str(run.path),
        "verdict": run.verdict,
        "being_recorded": run.is_being_recorded,
        **{name: manifest.get(name) for name in (*_HEAD, *_CONDITIONS)},
        **totals(run),
        "blocks": run.blocks,
        "tick_ns": tick_ns_of(manifest.get("clock")),
        "tick_seen_ns": seen_tick_ns(run),
        "jobs": len(run.job_table.jobs),
        "job_table": run.job_table.name,
        "alignment_error_ns": analysis.alignment_error_ns(run),
        "ranks": [{name: entry.get(name) for name in _RANK_FIELDS} for entry in manifest["ranks"]],
        "wait_reports": manifest.get("reports", []),
        "losses": run.losses,
        "notes": list(run.notes),
        "probe": manifest.get(PROBE_KEY),
    }


def page(run: Run, screen: Screen) -> list[str]:
    """The run's description as lines."""
    manifest = run.manifest
    state = f"{run.verdict}, still being recorded" if run.is_being_recorded else run.verdict
    lines = wrap(f"musetrace info: {screen.shown(run.path)} is {state}", screen.width)
    head = (
        ("format", f"{manifest['format']}, index {manifest['index_version']}"),
        ("id", manifest["recording_id"]),
        ("recorded", manifest.get("recorded_at") or "not known"),
        ("command", " ".join(map(str, manifest.get("command") or ["not known"]))),
    )
    for label, text in head:
        lines += labelled(label, screen.shown(text), screen)
    lines += condition_lines(run, screen, most_lines=20)
    lines += labelled("tick", tick_text(run), screen)
    jobs = run.job_table
    lines += labelled(
        "jobs", f"{screen.shown(jobs.name)}, {count(len(jobs.jobs))} jobs in {jobs.slots} slots", screen
    )
    lines += labelled("probe", screen.shown(probe_text(manifest.get(PROBE_KEY))), screen)
    lines += ["", *rank_lines(run, screen)]
    aligned = alignment_lines(run, screen)
    lines += ["", *aligned, "", "losses"] if aligned else ["", "losses"]
    return lines + loss_lines(run, screen, all_kinds=True)


def probe_text(probed: dict[str, Any] | None) -> str:
    """Which facts of its device are kept with a run, if any."""
    if probed is None:
        return "no facts of the device are kept here; musetrace probe --keep RUN measures them"
    if UNREADABLE in probed:
        return f"cannot be read: {probed[UNREADABLE]}; musetrace probe --keep RUN measures again"
    experiments = [entry for entry in probed.get("experiments", []) if entry.get("facts")]
    facts = sum(len(entry["facts"]) for entry in experiments)
    of = f"facts {count(facts)}, experiments {count(len(experiments))}"
    return f"{of}, measured {probed.get('measured_at')}; --json has them"


def rank_lines(run: Run, screen: Screen) -> list[str]:
    """A line for each rank: how complete its journal is, and how much is in it."""
    entries = run.manifest["ranks"]
    columns = [
        Column("rank", [str(entry["rank"]) for entry in entries]),
        Column("verdict", [str(entry["verdict"]) for entry in entries], left=True),
        *(
            Column(name, [count(int(entry[name])) for entry in entries])
            for name in ("blocks", "steps", "launches", "spans")
        ),
        Column("journal", [size(int(entry["bytes"])) for entry in entries]),
        Column("ended", [screen.shown(entry["end_reason"] or "no") for entry in entries], left=True),
    ]
    return table_lines(columns, screen.width)
