"""What a step would gain by changes: savings of each kind of launch (``what_ifs``), summed up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import combined_ns, places
from musetrace.job_table import JobTable

GONE, FASTER = "gone", "faster"
MOST_GAINS = 3  # of each way


@dataclass(frozen=True)
class Gain:
    """What a step would be shorter by; the uncertainty is that of the clock, None where it is not known."""

    saved_ns: int
    uncertainty_ns: int | None

    @property
    def is_told(self) -> bool:
        """Whether it is more than the clock leaves open."""
        return self.uncertainty_ns is not None and self.saved_ns >= max(self.uncertainty_ns, 1)


def gains(what_ifs: Mapping[str, pa.Table]) -> dict[tuple[str, str], Gain]:
    """Each change of a step, by (how, target), over all kinds of launches (``what_ifs`` by kind).

    The launches of a step follow each other, so savings add up, and so do the bounds of their uncertainty.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for table in what_ifs.values():
        for row in table.to_pylist():
            found[row["how"], row["target"]].append(row)
    return {
        change: Gain(
            sum(row["saved_step_ns"] for row in rows),
            combined_ns(*(row["saved_step_uncertainty_ns"] for row in rows)),
        )
        for change, rows in found.items()
    }


def best_gains(table: JobTable, all_gains: Mapping[tuple[str, str], Gain], how: str) -> list[dict[str, Any]]:
    """The largest gains of one way that the clock tells, at most :data:`MOST_GAINS`, with their ``place``.

    A wait of an op whose waits stand together as one change (a stop) is part of that, and left out.
    """
    op_of = {job.name: job.op for job in table.jobs}
    targets = {target for of, target in all_gains if of == how}
    chosen = {
        target: all_gains[how, target]
        for target in sorted(targets)
        if all_gains[how, target].is_told and op_of.get(target) not in targets - {target}
    }
    off = [gain.uncertainty_ns for gain in chosen.values()]
    found = places([-gain.saved_ns for gain in chosen.values()], off)
    rows: list[dict[str, Any]] = [
        {"place": place + 1, "how": how, "target": target, "gain": gain}
        for place, (target, gain) in zip(found, chosen.items(), strict=True)
    ]
    return sorted(rows, key=lambda row: int(row["place"]))[:MOST_GAINS]
