"""The parameters of the timeline's routes, read from a query and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from musetrace.analysis.spans.run_like import RunLike
from musetrace.dashboard.api.refusals import BadParameterError, NotThereError

MOST_NS = 1 << 53  # exact in a number of JavaScript
MOST_PX = 8_192
LONGEST_TEXT = 200
_NUMBER = re.compile(r"-?[0-9]{1,16}")
_BLOCK = re.compile(r"r([0-9]{1,9})b([0-9]{1,9})")


class Parameters:
    """The fields of a query."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """``fields`` as they were given."""
        self._fields = fields

    def number(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """A whole number in ``[least, most]``.

        Raises:
            BadParameterError: it is none, or missing and without a default.
        """
        text = self._fields.get(name, "")
        if text == "" and default is not None:
            return default
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise BadParameterError(f"{name} must be a whole number from {least} to {most}")
        return int(text)

    def time(self, name: str, default: int | None = None) -> int:
        """A time in ns from the run's origin."""
        return self.number(name, -MOST_NS, MOST_NS, default)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of some words."""
        text = self._fields.get(name, "") or default
        if text not in choices:
            raise BadParameterError(f"{name} must be one of {', '.join(choices)}")
        return text

    def text(self, name: str) -> str:
        """Any text, not a long one; empty where it is missing."""
        text = self._fields.get(name, "")
        if len(text) > LONGEST_TEXT:
            raise BadParameterError(f"{name} is longer than {LONGEST_TEXT} characters")
        return text

    def numbers(self, name: str, count: int) -> tuple[int, ...] | None:
        """So many numbers with dots between them; None where it is missing."""
        text = self._fields.get(name, "")
        if text == "":
            return None
        parts = text.split(".")
        if len(parts) != count or not all(_NUMBER.fullmatch(part) for part in parts):
            raise BadParameterError(f"{name} must be {count} whole numbers with dots between them")
        return tuple(int(part) for part in parts)

    def run_index(self, runs: int) -> int:
        """Which run: its place on the command line."""
        index = self.number("run", 0, 1 << 20, 0)
        if index >= runs:
            raise NotThereError(f"there is no run {index}: there are {runs}")
        return index

    def ranks(self, run: RunLike) -> tuple[int, ...]:
        """The ranks that ``ranks`` names, in their order; all of them for ``all``."""
        text = self._fields.get("ranks", "") or "all"
        if text == "all":
            return run.ranks
        parts = text.split(",")
        if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
            raise BadParameterError("ranks must be all, or numbers with commas between them")
        wanted = {int(part) for part in parts}
        for rank in sorted(wanted - set(run.ranks)):
            raise NotThereError(f"this run has no rank {rank}")
        return tuple(rank for rank in run.ranks if rank in wanted)

    def block(self) -> tuple[int, int]:
        """(rank, block) of ``block=r0b12``."""
        found = _BLOCK.fullmatch(self._fields.get("block", ""))
        if found is None:
            raise BadParameterError("rows=warps needs block=rRANKbBLOCK, such as r0b12")
        return int(found[1]), int(found[2])
