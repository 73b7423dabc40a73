"""The command lines in the READMEs of samples: what a reader would type."""

from __future__ import annotations

from pathlib import Path

FENCE = "```"


def commands(readme: Path) -> list[str]:
    """The lines of all code blocks in no language, in order, without comments."""
    fence, found = "", []
    for line in readme.read_text(encoding="utf-8").splitlines():
        if line.startswith(FENCE):
            fence = "" if fence else line
        elif fence == FENCE and (command := line.partition(" #")[0].strip()):
            found.append(command)
    return found
