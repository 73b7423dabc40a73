"""Text on a terminal: names from files made harmless, widths in cells, lines that fit."""

from __future__ import annotations

import re
import unicodedata

_BREAK = re.compile(r" (?!%|us\b|ns\b)")
_SHORT_ESCAPE = 0x100
_LONG_ESCAPE = 0x10000


def shown(text: str, *, ascii_only: bool = False) -> str:
    """``text`` with everything that is not a printable character escaped (``\\x1b``, ``\\u202e``).

    Every name that comes from a file or a command line passes through here before a terminal sees it: it can
    neither move the cursor, nor colour, nor break a line, nor turn the direction of writing.
    """
    return "".join(
        char if char.isprintable() and (char.isascii() or not ascii_only) else _escape(char) for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    if code < _SHORT_ESCAPE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _LONG_ESCAPE else f"\\U{code:08x}"


def cells(text: str) -> int:
    """How many cells of a terminal ``text`` takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(char) for char in text)


def _cells_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """``text``, cut to ``width`` cells; a cut is marked with ``~``."""
    if cells(text) <= width:
        return text
    return _head(text, width - 1) + "~" if width > 0 else ""


def _head(text: str, width: int) -> str:
    """As much of the begin of ``text`` as fits in ``width`` cells."""
    used = 0
    for index, char in enumerate(text):
        used += _cells_of(char)
        if used > width:
            return text[:index]
    return text


def pad(text: str, width: int, *, right: bool = False) -> str:
    """``text`` cut or filled up to ``width`` cells, at its left when ``right``."""
    text = fit(text, width)
    fill = " " * (width - cells(text))
    return fill + text if right else text + fill


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken at spaces; those after the first are indented.

    A number and its unit stay together.
    """
    lines: list[str] = []
    line = ""
    for word in _BREAK.split(text):
        joined = f"{line} {word}" if line else word
        if cells(joined) <= width:
            line = joined
            continue
        if line.strip():
            lines.append(line)
        line = (indent if lines else "") + word
        while cells(line) > width:
            head = _head(line, width)
            lines.append(head)
            line = indent + line[len(head) :]
    if line.strip() or not lines:
        lines.append(line)
    return lines


LABEL_WIDTH = 9


def labelled_lines(label: str, text: str, width: int, most_lines: int) -> list[str]:
    """``label`` and a text beside it, in at most so many lines."""
    room = width - LABEL_WIDTH
    lines = wrap(text, room)
    if len(lines) > most_lines:
        lines = [*lines[: most_lines - 1], f"{fit(lines[most_lines - 1], room - 4)} ..."]
    return [f"{label if index == 0 else '':<{LABEL_WIDTH}}{line}" for index, line in enumerate(lines)]
