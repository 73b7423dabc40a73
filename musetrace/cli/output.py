"""What goes to stdout: lines for a person, or one JSON document for a program."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from musetrace.cli.text import shown
from musetrace.errors import UsageError

MIN_WIDTH = 60
MAX_WIDTH = 200  # a longer line is hard to read
WIDTH_OF_NO_TERMINAL = 80


@dataclass(frozen=True)
class Screen:
    """Where text is shown: its width in cells, and whether it can show more than ASCII."""

    width: int
    unicode: bool

    @property
    def plus_minus(self) -> str:
        """The sign before an uncertainty."""
        return "\N{PLUS-MINUS SIGN}" if self.unicode else "+-"

    def shown(self, text: object) -> str:
        """A name from a file, made harmless for this screen."""
        return shown(str(text), ascii_only=not self.unicode)


def add_width_option(parser: argparse.ArgumentParser) -> None:
    """The option ``--width``, for :func:`screen_of`."""
    parser.add_argument(
        "--width", type=int, metavar="N", help="columns to use (default: those of the terminal)"
    )


def screen_of(args: argparse.Namespace) -> Screen:
    """The screen that the options and stdout tell. Raises UsageError for a width that nothing fits in."""
    width = args.width
    if width is None:
        columns = shutil.get_terminal_size((WIDTH_OF_NO_TERMINAL, 24)).columns
        width = min(max(columns, MIN_WIDTH), MAX_WIDTH)
    if width < MIN_WIDTH:
        raise UsageError(f"--width {width} is too narrow: give at least {MIN_WIDTH}")
    return Screen(width, shows_unicode())


def shows_unicode() -> bool:
    """Whether stdout can show more than ASCII."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return encoding.startswith("utf")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, without blanks at their ends."""
    for line in lines:
        print(line.rstrip(" "))


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document in ASCII; a number that JSON does not have becomes null."""
    print(json.dumps(plain(document), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON has it: keys as text, a number that JSON does not have as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
