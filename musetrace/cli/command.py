"""What a verb of the command line is."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from musetrace.errors import RecordError

EXIT_COMPLETE = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3  # readable, but incomplete or damaged


class Command(ABC):
    """One verb. A module of the verb's name holds the class; it is imported only when the verb is used."""

    name: ClassVar[str]
    help: ClassVar[str]  # one line, without a full stop

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments and options on its own parser."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Do the verb's work and return the exit code. Raises MusetraceError where it cannot."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option that every verb has: ``args.json`` asks for one JSON document on stdout."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document (times in ns) instead of text"
    )


def exit_code_of(verdict: str) -> int:
    """The exit code of a run that was read: 0 when it is complete, else 3."""
    return EXIT_COMPLETE if verdict == "complete" else EXIT_INCOMPLETE


@contextmanager
def needs_torch() -> Iterator[None]:
    """Around the imports of the built-in step. Raises RecordError where torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise RecordError("the built-in step needs torch: pip install 'musetrace[record]'") from error
