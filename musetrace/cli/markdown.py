"""Markdown that shows names literally."""

from __future__ import annotations

import re
from collections.abc import Sequence

from musetrace.cli.text import shown

_MARKS = re.compile(r"([\\`*_{}\[\]<>|#~&])")
# At the begin of a line these open a list or underline a heading.
_OPENING = re.compile(r"^(\d{1,9}(?=[.)])|(?=[-+=]))")
_TICKS = re.compile(r"`+")


def plain_text(text: str) -> str:
    """``text`` with all that Markdown, or HTML in it, would take for a mark escaped."""
    return _MARKS.sub(r"\\\1", shown(text))


def paragraph(text: str) -> str:
    """:func:`plain_text` that stands at the begin of a line."""
    return _OPENING.sub(r"\1\\", plain_text(text))


def table_line(cells: Sequence[str]) -> str:
    """One line of a table, of cells that are Markdown already."""
    return f"| {' | '.join(cells)} |"


def fenced(lines: Sequence[str]) -> str:
    """Lines as they are, in a fence that nothing in them ends."""
    longest = max((len(found) for line in lines for found in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])
