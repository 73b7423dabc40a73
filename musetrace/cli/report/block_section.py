"""The report's section on blocks: where the time of each goes, and which are busiest, if that is certain."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import share_uncertainty, told_apart
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Bars, Block, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, Rows
from musetrace.wording.numbers import count, decimals_for, percent, us, whole_ns

MOST_BLOCKS = 16  # beyond this, only the busiest, the median and the least busy block of each rank

_PARTS = ("busy", "loading", "waiting", "rest")


def busy_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How the blocks' time divides, in us per launch."""
    every = table.to_pylist()
    picked = len(every) > MOST_BLOCKS
    rows = _extremes(every) if picked else every
    longest = max((row["wall_ns"] // row["launches"] for row in rows), default=0)
    roomy = screen.width >= ROOMY or not picked
    columns = [
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("block", [str(row["block"]) for row in rows]),
        *([Column("", [row["label"] for row in rows], left=True)] if picked else []),
        *([Column("tied", [count(row["tied"]) for row in rows])] if picked else []),
        *([Column("launches", [count(row["launches"]) for row in rows])] if roomy else []),
        *(
            Column(name, [us(row[f"{name}_ns"] / row["launches"], decimals_for(longest)) for row in rows])
            for name in _PARTS
        ),
        *([Column(f"{screen.plus_minus} ns", [_per_launch(row) for row in rows])] if roomy else []),
        Column("idle", [percent(_share(row["idle_ns"], row["wall_ns"])) for row in rows]),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.stacked([(part, row[f"{part}_ns"] // row["launches"]) for part in _PARTS[:3]])

    return [Table(columns, rows, longest, bar)]


def _per_launch(row: dict[str, Any]) -> str:
    """The largest uncertainty among a block's times, each the sum of its launches by their number."""
    largest = [row[f"{part}_uncertainty_ns"] for part in _PARTS]
    return whole_ns(None if None in largest else -(-max(largest) // row["launches"]))


def _extremes(rows: Rows) -> Rows:
    """The busiest, the median and the least busy block of each rank, and how many others are tied with it."""
    chosen: Rows = []
    for rank in dict.fromkeys(row["rank"] for row in rows):
        mine = [row for row in rows if row["rank"] == rank]
        mine.sort(key=lambda row: _busy_share(row)[0], reverse=True)
        found = {"busiest": 0, "median": len(mine) // 2, "least busy": len(mine) - 1}
        for label, place in found.items():
            tied = sum(_is_tied(mine[place], other) for other in mine) - 1
            chosen.append({**mine[place], "label": label, "tied": tied})
    return chosen


def _is_tied(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the clock cannot tell which of two blocks is busier."""
    (share, off), (other_share, other_off) = _busy_share(one), _busy_share(other)
    return not told_apart(share, other_share, None if off is None or other_off is None else off + other_off)


def _busy_share(row: dict[str, Any]) -> tuple[float, float | None]:
    """The share of its time in which a block is busy, and the uncertainty of that."""
    names = ("busy_ns", "busy_uncertainty_ns", "wall_ns", "wall_uncertainty_ns")
    return _share(row["busy_ns"], row["wall_ns"]) or 0.0, share_uncertainty(*(row[name] for name in names))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
