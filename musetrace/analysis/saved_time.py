"""Did the time that ops saved turn into waiting?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis.busy_and_wait import BUSY, WAIT
from musetrace.analysis.clock_quality import combined_ns
from musetrace.analysis.difference import FASTER, SLOWER, Rule, difference
from musetrace.analysis.step_series import Name, Series

# "About as much": the waits grew by at least so much of what was saved.
MOST = 0.75
PART = 0.25

TURNED = "turned into waiting"
PARTLY = "partly turned into waiting"
NOT_TURNED = "did not turn into waiting"

_COLUMNS = ("a_ns", "b_ns", "difference_ns", "low_ns", "high_ns", "uncertainty_ns", "verdict")

WAITING_FIELDS = [
    ("launch", pa.string()),
    ("op", pa.string()),
    *(
        (f"{of}_{name}", pa.string() if name == "verdict" else pa.int64())
        for of in (BUSY, WAIT)
        for name in _COLUMNS
    ),
]
SAVED_FIELDS = [
    ("launch", pa.string()),
    ("saved_ns", pa.int64()),
    ("waits_grew_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("ops", pa.list_(pa.string())),
    ("waits", pa.list_(pa.string())),
    ("verdict", pa.string()),
]


def waiting_rows(a: Mapping[Name, Series], b: Mapping[Name, Series], rule: Rule) -> list[dict[str, Any]]:
    """Busy and waiting time per block and launch of each op that both runs have; 0 where it has none."""
    pairs = dict.fromkeys((launch, op) for launch, op, _ in a)
    in_b = {(launch, op) for launch, op, _ in b}
    return [
        {
            "launch": pair[0],
            "op": pair[1],
            **{
                f"{of}_{name}": value
                for of in (BUSY, WAIT)
                for name, value in difference(_of(a, pair, of), _of(b, pair, of), rule).items()
                if name in _COLUMNS
            },
        }
        for pair in pairs
        if pair in in_b
    ]


def _of(found: Mapping[Name, Series], pair: tuple[str, str], of: str) -> Series:
    series = found.get((*pair, of))
    if series is not None:
        return series
    other = found[(*pair, WAIT if of == BUSY else BUSY)]
    nothing = None if other.uncertainty_ns is None else 0
    return Series(np.zeros_like(other.step_ns), nothing, other.launches, 0)


def saved_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind of launch in which an op's busy time became less for certain.

    ``saved_ns`` is what those ops saved, ``waits_grew_ns`` what waits of the same kind of launch grew by,
    both per block and launch, and of told differences alone. ``share`` is the second of the first.
    """
    found = []
    for launch in dict.fromkeys(row["launch"] for row in rows):
        mine = [row for row in rows if row["launch"] == launch]
        saving = [row for row in mine if row["busy_verdict"] == FASTER]
        growing = [row for row in mine if row["wait_verdict"] == SLOWER]
        if not saving:
            continue
        saved = -sum(row["busy_difference_ns"] for row in saving)
        grew = sum(row["wait_difference_ns"] for row in growing)
        offs = [row["busy_uncertainty_ns"] for row in saving] + [
            row["wait_uncertainty_ns"] for row in growing
        ]
        found.append(
            {
                "launch": launch,
                "saved_ns": saved,
                "waits_grew_ns": grew,
                "uncertainty_ns": combined_ns(*offs),
                "share": grew / saved,
                "ops": [row["op"] for row in sorted(saving, key=lambda row: row["busy_difference_ns"])],
                "waits": [row["op"] for row in sorted(growing, key=lambda row: -row["wait_difference_ns"])],
                "verdict": _verdict(grew / saved),
            }
        )
    return found


def _verdict(share: float) -> str:
    if share >= MOST:
        return TURNED
    return PARTLY if share >= PART else NOT_TURNED
