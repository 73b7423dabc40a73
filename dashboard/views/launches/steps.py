"""How long steps take by each clock, and of which parts they are made: note and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musetrace.analysis import (
    step_parts,
    step_times,
)
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import Column, grid

_PERCENT = 100.0
_OFF = "\N{PLUS-MINUS SIGN}"
STEP_COLUMNS = (
    Column("what", "part"),
    Column("n", "n", 0, 80, "steps times ranks"),
    Column("launches", "launches", None, 110, "kernels in one step, p10 to p90"),
    Column("p10", "ns p10", 0, 110),
    Column("p50", "p50", 0, 110),
    Column("p90", "p90", 0, 110),
    Column("off", f"{_OFF} ns", 0, 80, "what the clock leaves open in each of them"),
    Column("mean", "mean", 0, 110),
    Column("mean_off", f"{_OFF} ns", 0, 80),
    Column("share", "% of steps", 1, 116),
)


def list_steps(run: RecordedRun, scope: Scope) -> tuple[str, Any]:
    """The note on kernels per step, and the table of steps by each clock and of their parts."""

    def make() -> tuple[str, Any]:
        within = {"rank": scope.arguments["rank"], "step": scope.arguments["step"]}
        parts, times = step_parts(run, **within).to_pylist(), step_times(run, **within).to_pylist()
        rows = [
            *(_step_row(row, f"step ({row['clock']})", "step", _launches(parts, row)) for row in times),
            *(_step_row(row, row["part"], "part", _count(row)) for row in parts[1:]),
        ]
        if not rows:
            return "No step was timed in what was chosen.", None
        return steps_note(parts, times), grid("steps-grid", STEP_COLUMNS, rows)

    return or_sentence(make, lambda sentence: (sentence, None))


def steps_note(parts: list[dict[str, Any]], times: list[dict[str, Any]]) -> str:
    """Of what a step is made, and what the two clocks' difference is."""
    words = []
    if len(parts) == 2:  # noqa: PLR2004
        words.append(f"a step is {parts[1]['part']} alone, {_count(parts[0])} launches")
    elif parts:
        words.append(f"{_count(parts[0])} launches a step")
    if len(times) > 1:
        words.append("the host's step has launching and waiting in it, the device's none of both")
    return "; ".join(words)


def _launches(parts: list[dict[str, Any]], row: Mapping[str, Any]) -> str:
    return _count(parts[0]) if parts and row["clock"] == "device" else ""


def _count(row: Mapping[str, Any]) -> str:
    low, high = row["launches_p10"], row["launches_p90"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _step_row(row: Mapping[str, Any], what: str, prefix: str, launched: str) -> dict[str, Any]:
    names = {"p10": "p10", "p50": "p50", "p90": "p90", "off": "uncertainty", "mean": "mean"}
    share = row.get("share")
    return {
        "what": what,
        "n": row["n"],
        "launches": launched,
        **{field: row[f"{prefix}_{name}_ns"] for field, name in names.items()},
        "mean_off": row[f"{prefix}_mean_uncertainty_ns"],
        "share": None if share is None else _PERCENT * share,
    }
