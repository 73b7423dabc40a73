"""The difference of one time in two runs, and what it allows to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.bootstrap import CONFIDENCE, LEAST_VALUES, least_values, median_difference
from musetrace.analysis.certainty.clock_quality import combined_ns, told_apart
from musetrace.analysis.comparing.step_series import Series, median

FASTER = "faster"
SLOWER = "slower"
SAME = "same"
CANNOT_TELL = "cannot tell"

DIFFERENCE_FIELDS = [
    ("steps_a", pa.uint32()),
    ("steps_b", pa.uint32()),
    ("n_a", pa.uint64()),
    ("n_b", pa.uint64()),
    ("launches_a", pa.uint32()),
    ("launches_b", pa.uint32()),
    ("a_ns", pa.int64()),
    ("b_ns", pa.int64()),
    ("difference_ns", pa.int64()),
    ("low_ns", pa.int64()),
    ("high_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("band_ns", pa.int64()),
    ("share", pa.float64()),
    ("per_step_ns", pa.int64()),
    ("verdict", pa.string()),
]


# Of the rows of a family, all at once.
CERTAIN_FIELDS = [("certain_low_ns", pa.int64()), ("certain_high_ns", pa.int64())]


@dataclass(frozen=True)
class Rule:
    """How verdicts are made: ``band`` is the share of A's time within which both are the same.

    ``family`` rows are looked at together; 0: the columns of ``CERTAIN_FIELDS`` are not made.
    """

    band: float = 0.01
    seed: int = 0
    family: int = 0

    @property
    def certain(self) -> float:
        """The confidence of one row's interval with which that of all rows' is 95 % (Bonferroni)."""
        return 1 - (1 - CONFIDENCE) / max(self.family, 1)


def difference(a: Series, b: Series, rule: Rule) -> dict[str, Any]:
    """The columns of ``DIFFERENCE_FIELDS``: medians over steps, B minus A with its 95 % interval, verdict.

    ``uncertainty_ns`` is what the clocks leave open in the difference, both together. ``band_ns`` is the
    rule's share of A's median, or that uncertainty where it is larger. ``share`` is of A's median, null where
    that is 0. ``per_step_ns`` is the difference times the launches of a step of A.
    """
    off, low, high = median_difference(a.step_ns, b.step_ns, rule.seed)
    a_ns = median(a.step_ns)
    uncertainty = combined_ns(a.uncertainty_ns, b.uncertainty_ns)
    band = None if uncertainty is None else max(round(rule.band * abs(a_ns)), uncertainty)
    steps = (len(a.step_ns), len(b.step_ns))
    return {
        "steps_a": steps[0],
        "steps_b": steps[1],
        "n_a": a.count,
        "n_b": b.count,
        "launches_a": a.launches,
        "launches_b": b.launches,
        "a_ns": a_ns,
        "b_ns": a_ns + off,
        "difference_ns": off,
        "low_ns": low,
        "high_ns": high,
        "uncertainty_ns": uncertainty,
        "band_ns": band,
        "share": off / abs(a_ns) if a_ns else None,
        "per_step_ns": off * a.launches,
        "verdict": CANNOT_TELL if min(steps) < LEAST_VALUES else verdict(off, low, high, uncertainty, band),
        **_certain(a, b, rule),
    }


def _certain(a: Series, b: Series, rule: Rule) -> dict[str, int]:
    """The interval that holds with all others of the family; none where there are too few steps for one."""
    if not rule.family or min(len(a.step_ns), len(b.step_ns)) < least_values(rule.certain):
        return {}
    _, low, high = median_difference(a.step_ns, b.step_ns, rule.seed, rule.certain)
    return {"certain_low_ns": low, "certain_high_ns": high}


def verdict(off: int, low: int, high: int, uncertainty: int | None, band: int | None) -> str:
    """What a difference in ns and its interval allow to say.

    ``slower`` or ``faster`` when zero lies outside of the interval and the difference is not below what the
    clocks leave open; ``same`` when the whole interval lies within the band; else ``cannot tell``.
    """
    if uncertainty is None or band is None:
        return CANNOT_TELL
    if told_apart(off, 0, uncertainty) and not low <= 0 <= high:
        return SLOWER if off > 0 else FASTER
    return SAME if -band <= low and high <= band else CANNOT_TELL


def is_told(row: dict[str, Any]) -> bool:
    """Whether a row says that one run is faster than the other."""
    return row["verdict"] in (FASTER, SLOWER)


def by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that tell a difference first, by what it means for the step; then by what is left open in one."""
    told = sorted(filter(is_told, rows), key=lambda row: -abs(row["per_step_ns"]))
    others = [row for row in rows if not is_told(row)]
    return [*told, *sorted(others, key=lambda row: -left_open_ns(row))]


def left_open_ns(row: dict[str, Any]) -> int:
    """How large the difference of a row may be, by its interval, over the launches of a step."""
    return int(max(abs(row["low_ns"]), abs(row["high_ns"])) * row["launches_a"])
