"""The causes of idle time over a whole step: means of each kind of launch times its launches in a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from musetrace.analysis.spans.run_like import RunLike

Row = dict[str, Any]


@dataclass(frozen=True)
class PerStep:
    """From the mean of a block of a launch to a step.

    ``launches`` are those of each kind, in ``steps`` steps x ranks.
    """

    launches: Mapping[str, int]
    steps: int
    step_mean_ns: int

    @classmethod
    def of(cls, steps: pa.Table, launches: pa.Table) -> PerStep | None:
        """None where no step has a time by the device's clock."""
        device = [row for row in steps.to_pylist() if row["clock"] == "device"]
        if not device:
            return None
        numbers = {row["kind"]: row["n"] for row in launches.to_pylist()}
        return cls(numbers, device[0]["n"], device[0]["step_mean_ns"])

    def of_launches(self, kind: str, total_ns: int, n: int) -> int:
        """A total over ``n`` blocks of launches of a kind, as the mean times the launches of a step."""
        return rounded(total_ns * self.launches[kind], n * self.steps)

    def bound(self, kind: str, uncertainty_ns: int, n: int) -> int:
        """The same of an uncertainty, rounded up."""
        return -(-uncertainty_ns * self.launches[kind] // (n * self.steps))

    def share(self, per_step_ns: int) -> float | None:
        """A time as a share of the mean step."""
        return per_step_ns / self.step_mean_ns if self.step_mean_ns else None


@dataclass
class Cause:
    """One cause of idle time: its rows of ``idle``, by kind of launch."""

    by_kind: dict[str, Row] = field(default_factory=dict)

    @property
    def any(self) -> Row:
        """One of the rows, for what they have in common."""
        return next(iter(self.by_kind.values()))

    def row(self, per_step: PerStep) -> Row:
        """The columns of ``findings`` that tell how long it is, and in which launches."""
        time_ns = sum(
            per_step.of_launches(kind, row["total_ns"], row["n"]) for kind, row in self.by_kind.items()
        )
        return {
            **{name: self.any[name] for name in ("cause", "op", "wait", "awaits")},
            "per_step_ns": time_ns,
            "per_step_uncertainty_ns": self._uncertainty_ns(per_step),
            "share_of_step": per_step.share(time_ns),
            "launches": [
                {
                    "kind": kind,
                    "per_step": per_step.launches[kind] / per_step.steps,
                    "idle_mean_ns": row["idle_mean_ns"],
                    "idle_mean_uncertainty_ns": row["idle_mean_uncertainty_ns"],
                }
                for kind, row in self.by_kind.items()
            ],
        }

    def _uncertainty_ns(self, per_step: PerStep) -> int | None:
        """Launches of two kinds are different launches, so that variances add up (``clock_quality``)."""
        offs = {kind: row["total_uncertainty_ns"] for kind, row in self.by_kind.items()}
        if None in offs.values():
            return None
        parts = [per_step.bound(kind, off, self.by_kind[kind]["n"]) for kind, off in offs.items()]
        square = sum(part * part for part in parts)
        root = math.isqrt(square)
        return root + (root * root < square)


def merged_causes(run: RunLike, idle: Mapping[str, pa.Table]) -> list[Cause]:
    """Causes over all kinds of launches, waits first; other people's kernels share no jobs."""
    apart = bool(run.job_table.kernels)
    found: dict[object, Cause] = {}
    for kind, table in idle.items():
        for row in table.to_pylist():
            key = (row["wait"] is None, row["cause"], row["wait"], kind if apart else None)
            found.setdefault(key, Cause()).by_kind[kind] = row
    # Sorting keeps the order of equals.
    return sorted(found.values(), key=lambda one: one.any["wait"] is None)


def rounded(part: int, whole: int) -> int:
    """``part / whole`` to the nearest whole number."""
    return (2 * part + whole) // (2 * whole)
