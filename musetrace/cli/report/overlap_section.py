"""The report's section on engines: what is at work beside what, and over the time of a launch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from musetrace.cli.chart import Chart
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Bars, Block, Sentence, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, Rows, longest
from musetrace.wording.numbers import NOTHING, bounded_us, decimals_for, percent

_TITLE_OF_STATE = {
    "loads_and_compute": "loads, compute",
    "loads_and_communication": "loads, comm.",
    "compute_and_communication": "compute, comm.",
    "all_three": "all three",
    "waiting_only": "waits only",
}
_KIND_OF_STATE = {"loads": "load", "communication": "send", "waiting_only": "wait", "nothing": "wait"}
_OVER_TIME = ("loads", "compute", "communication", "waiting_only")
_UNICODE_LEVELS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " .:-=+*#@"
_MOST_CELLS = 100
_LEAST_CELLS = 20


def overlap_blocks(table: pa.Table, over_time: pa.Table, screen: Screen) -> list[Block]:
    """A row for each set of engines that is ever at work with its share of the blocks' time, then each engine
    over that time.
    """
    rows = [row for row in table.to_pylist() if row["total_ns"]]
    if not rows:
        return [Sentence("no block has any time of its own")]
    decimals = decimals_for(longest(rows, "mean_ns"))
    n = rows[0]["n"]
    off = [
        None if row["total_uncertainty_ns"] is None else -(-row["total_uncertainty_ns"] // n) for row in rows
    ]
    means = [bounded_us(row["mean_ns"], of, decimals) for row, of in zip(rows, off, strict=True)]
    columns = [
        Column("at work", [_TITLE_OF_STATE.get(row["state"], row["state"]) for row in rows], left=True),
        Column("of time", [percent(row["share"]) for row in rows]),
        Column(screen.plus_minus, [_off(row) for row in rows]),
        Column("and no other", [percent(row["only_share"]) for row in rows]),
        *([Column("us per block", means)] if screen.width >= ROOMY else []),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.bar(_KIND_OF_STATE.get(row["state"], "compute"), 0, row["mean_ns"], 0, row["mean_ns"])

    table = Table(columns, rows, longest(rows, "mean_ns"), bar)
    return [table, *over_time_lines(over_time, screen)]


def over_time_lines(table: pa.Table, screen: Screen) -> list[str]:
    """For each engine the share of blocks in which it is at work, a cell for each piece of the launch."""
    rows = table.to_pylist()
    titles = [_TITLE_OF_STATE.get(state, state) for state in _OVER_TIME]
    room = max(map(len, titles)) + 2
    cells = min(screen.width - room, _MOST_CELLS, len(rows))
    if cells < min(_LEAST_CELLS, len(rows)) or not rows:
        return []
    levels = _UNICODE_LEVELS if screen.unicode else _ASCII_LEVELS
    lines = [
        f"{title:<{room}}" + "".join(_level(levels, share) for share in _shares(rows, state, cells))
        for title, state in zip(titles, _OVER_TIME, strict=True)
    ]
    axis = Chart(rows[-1]["end_ns"], cells, screen.unicode).axis()
    return [f"{'blocks at it':<{room}}{axis}", *lines]


def _shares(rows: Rows, state: str, cells: int) -> list[float | None]:
    """The share of each cell's time, of whole bins: no cell has less than one."""
    shares = []
    for cell in range(cells):
        of = rows[cell * len(rows) // cells : (cell + 1) * len(rows) // cells]
        whole = sum(row["block_ns"] for row in of)
        shares.append(sum(row[f"{state}_ns"] for row in of) / whole if whole else None)
    return shares


def _level(levels: str, share: float | None) -> str:
    """A character as high as the share; no share at all leaves the cell empty, any share does not."""
    if not share:
        return levels[0]
    return levels[max(1, round(share * (len(levels) - 1)))]


def _off(row: dict[str, Any]) -> str:
    return NOTHING if row["share_uncertainty"] is None else percent(row["share_uncertainty"])
