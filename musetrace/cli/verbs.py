"""The list of verbs. A verb's module is imported only when the verb is used."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module

from musetrace.cli.command import Command


@dataclass(frozen=True)
class Verb:
    """Where a verb's class stands, and the line that the list of verbs shows."""

    module: str
    class_name: str
    help: str


VERBS = {
    "record": Verb("musetrace.cli.record", "RecordCommand", "record a decode step, or a program of yours"),
    "report": Verb("musetrace.cli.report.command", "ReportCommand", "print where the time of a run went"),
    "explain": Verb(
        "musetrace.cli.explain",
        "ExplainCommand",
        "print how an answer is made and when it lies",
    ),
    "compare": Verb(
        "musetrace.cli.compare.command",
        "CompareCommand",
        "print what is faster or slower in run B than in run A",
    ),
    "view": Verb("musetrace.cli.view", "ViewCommand", "show a run in the browser, or several to compare"),
    "overhead": Verb(
        "musetrace.cli.overhead",
        "OverheadCommand",
        "measure what stamps cost, and that they change nothing else",
    ),
    "probe": Verb("musetrace.cli.probe", "ProbeCommand", "measure what this device can do"),
    "info": Verb("musetrace.cli.info", "InfoCommand", "print what a run is, and what it lacks"),
    "check": Verb("musetrace.cli.check", "CheckCommand", "read a run's journals again and compare its index"),
}


def load_verb(name: str) -> Command:
    """An instance of the verb's command."""
    verb = VERBS[name]
    command: Command = getattr(import_module(verb.module), verb.class_name)()
    return command


def resembling(name: str) -> str | None:
    """The verb that a mistyped one most likely means."""
    return next(iter(difflib.get_close_matches(name, VERBS, n=1)), None)
