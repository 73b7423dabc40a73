"""What run B may not be: slower by more than ``--fail-over`` says, or other in its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.difference import SLOWER
from musetrace.analysis.comparing.launch_series import HOST_LAUNCH, LAUNCH, STEP

Named = tuple[tuple[str, ...], dict[str, Any]]
OUTPUTS = "outputs"


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
    """``share`` of A's time, None for any; ``same_outputs``: those of B must be known to be A's."""

    share: float | None
    same_outputs: bool = False

    def is_passed(self, row: dict[str, Any]) -> bool:
        """Whether a row is slower by more than the limit for certain.

        Its interval lies above it, and is that of all rows together: with a hundred rows, each with a
        confidence of 95 % for itself, some would pass a limit by chance.
        """
        if self.share is None or row["certain_low_ns"] is None:
            return False
        return row["verdict"] == SLOWER and bool(row["certain_low_ns"] > self.share * row["a_ns"])

    def outputs_fail(self, found: Comparison) -> bool:
        """Whether outputs must be equal and are not, or nobody knows."""
        of = found.outputs
        return self.same_outputs and (not of.compared or of.equal < of.compared)

    def slower(self, found: Comparison) -> list[tuple[str, ...]]:
        """The names of all rows that pass the limit of time."""
        return [name for name, row in limited_rows(found) if self.is_passed(row)]

    def passed(self, found: Comparison) -> list[tuple[str, ...]]:
        """The names of all that fails."""
        return self.slower(found) + ([(OUTPUTS,)] if self.outputs_fail(found) else [])
