"""By how much run B may be slower: what ``--fail-over`` says, and what passes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.difference import SLOWER
from musetrace.analysis.step_series import HOST_LAUNCH, LAUNCH, STEP

Named = tuple[tuple[str, ...], dict[str, Any]]


def limited_rows(found: Comparison) -> Iterator[Named]:
    """The rows that a limit is about, each with its name: steps, launches, and ops but for their waits.

    A wait, idle time or a gap grows when something else is slower, or when something before it is faster:
    what that costs is in the launch and the step.
    """
    for row in found.times.to_pylist():
        if row["what"] in (STEP, LAUNCH, HOST_LAUNCH):
            yield (row["what"], row["of"]), row
    for row in found.ops.to_pylist():
        if row["kind"] != "wait":
            yield (row["launch"], row["op"], row["kind"]), row


@dataclass(frozen=True)
class Limit:
    """``share`` of A's time."""

    share: float

    def is_passed(self, row: dict[str, Any]) -> bool:
        """Whether a row is slower by more than the limit for certain: its interval lies above it."""
        return row["verdict"] == SLOWER and bool(row["low_ns"] > self.share * row["a_ns"])

    def passed(self, found: Comparison) -> list[tuple[str, ...]]:
        """The names of all rows that pass the limit."""
        return [name for name, row in limited_rows(found) if self.is_passed(row)]
