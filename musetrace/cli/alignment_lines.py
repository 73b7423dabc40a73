"""What a page says of a run whose ranks have several clocks: how they are aligned, and how well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musetrace import analysis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.wording.numbers import NOTHING, us

_METHODS = {
    "same_clock": "same clock",
    "peer_ping_pong": "peer ping-pong",
    "host_anchors": "host anchors",
    "unix_time": "Unix time only",
    "unknown": "nothing",
}
_SHOWN = 8
Row = dict[str, Any]


def alignment_sentence(run: RunLike, screen: Screen) -> str:
    """How far times of different ranks can be set against each other.

    Empty for a run of one clock that misses no rank.
    """
    missing = run.losses.get("missing_ranks")
    if missing:
        are = "is" if len(missing) == 1 else "are"
        return f"{_ranks(missing)} {are} missing: who came last is not judged"
    if not analysis.has_several_clocks(run):
        return ""
    rows = analysis.clocks(run).to_pylist()
    clocks = len({row["clock"] for row in rows})
    lost = [row["rank"] for row in rows if row["error_ns"] is None]
    if lost:
        are = "is" if len(lost) == 1 else "are"
        return f"{clocks} clocks, and {_ranks(lost)} {are} not aligned: who came last is not judged"
    worst = max(rows, key=lambda row: int(row["error_ns"]))
    error = us(analysis.alignment_error_ns(run), 2)
    return (
        f"{clocks} clocks: a time of one rank is good to {screen.plus_minus}{error} us against another's; "
        f"who came last by less is tied (worst: rank {worst['rank']}, by {_method(worst, screen)})"
    )


def alignment_lines(run: RunLike, screen: Screen) -> list[str]:
    """A line for each rank: how its clock stands to that of the first rank. None for a run of one clock."""
    if not analysis.has_several_clocks(run):
        return []
    rows = analysis.clocks(run).to_pylist()
    columns = [
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("clock of", [f"rank {row['clock']}" for row in rows], left=True),
        Column("aligned by", [_method(row, screen) for row in rows], left=True),
        Column("offset", [us(row["offset_ns"], 3) for row in rows]),
        Column(screen.plus_minus, [_error(row) for row in rows]),
        Column("n", [str(row["comparisons"]) if row["comparisons"] else NOTHING for row in rows]),
        Column("residual", [us(row["residual_ns"], 3) for row in rows]),
        Column("drift, ppb", [_drift(row, screen) for row in rows]),
    ]
    title = (
        f"clocks, in us: times of a rank plus its offset are those of rank {rows[0]['rank']}'s clock, by n "
        "comparisons"
    )
    lines = [*wrap(title, screen.width, indent="  "), *table_lines(columns, screen.width)]
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        of = _ranks([row["rank"] for row in rows if row["note"] == note])
        lines += wrap(f"{of}: {screen.shown(note)}", screen.width, indent="      ")
    return lines


def _method(row: Row, screen: Screen) -> str:
    return _METHODS.get(row["method"]) or screen.shown(row["method"])


def _error(row: Row) -> str:
    return "not aligned" if row["error_ns"] is None else us(row["error_ns"], 3)


def _drift(row: Row, screen: Screen) -> str:
    if row["drift_ppb"] is None:
        return NOTHING
    return f"{row['drift_ppb']:+,.0f} {screen.plus_minus}{row['drift_error_ppb']:,.0f}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"
