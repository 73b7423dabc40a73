"""The report's sections on times: steps, launches, the timeline of a launch, stops, loads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import in_places
from musetrace.analysis.certainty.percentiles import TENTHS
from musetrace.analysis.priorities.late import leader
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Bars, Block, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, WIDE, Rows, longest, times
from musetrace.wording.numbers import NOTHING, count, decimals_for, percent


def step_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How long a step takes, by the device's clock and by the host's."""
    rows = table.to_pylist()
    columns = [
        Column("step", [row["clock"] for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        *times(rows, "step", TENTHS, "us", mean_on=_if_from(ROOMY, screen)),
    ]
    return [Table(columns)]


def launch_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How long a launch of each kind takes, and the gap to the next launch."""
    rows = table.to_pylist()
    columns = [
        Column("launch", [screen.shown(row["kind"]) for row in rows], left=True),
        Column("layers", [count(row["layers"]) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        *times(rows, "launch", TENTHS, "us", mean_on=_if_from(ROOMY, screen)),
        *times(rows, "gap", TENTHS, "gap to next, us", mean_on=_if_from(WIDE, screen)),
    ]
    return [Table(columns)]


def op_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """The timeline of a launch: a row for each op and kind of job, with a chart.

    Rows stand by their begin; those that the clock cannot tell apart in it stand in job-table order.
    """
    rows = _by_begin(table.to_pylist())
    decimals = decimals_for(longest(rows, "end_p90_ns"))
    wide = screen.width >= WIDE
    columns = [
        Column("op", [screen.shown(row["op"]) for row in rows], left=True),
        Column("kind", [row["kind"] for row in rows], left=True),
        *times(rows, "begin", TENTHS if wide else (10, 50), "begin", decimals=decimals),
        *times(rows, "end", TENTHS if wide else (50, 90), "end", decimals=decimals),
        *(times(rows, "dur", (50,), "lasts", decimals=decimals, mean_on=screen) if wide else []),
        Column("blocks", [f"{row['blocks']}/{row['blocks_total']}" for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        times = (row[f"{name}_ns"] for name in ("begin_p50", "end_p50", "begin_p10", "end_p90"))
        return chart.bar(row["kind"], *times)

    return [Table(columns, rows, longest(rows, "end_p90_ns"), bar, folded="the numbers")]


def stop_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """The wait of each rank at each stop, and how often its data came last."""
    rows = table.to_pylist()
    columns = [
        Column("stop", [screen.shown(row["stop"]) for row in rows], left=True),
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        *times(rows, "wait", TENTHS, "waits, us", mean_on=_if_from(WIDE, screen)),
        Column("came last", [percent(row["last_share"]) for row in rows]),
        Column("tied", [percent(row["tied_share"]) for row in rows]),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.bar("wait", 0, row["wait_p50_ns"], 0, row["wait_p90_ns"])

    return [Table(columns, rows, longest(rows, "wait_p90_ns"), bar)]


def arrival_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How far apart the blocks of a rank arrive at each stop, and how long before the last rank it does."""
    rows = table.to_pylist()
    wide = screen.width >= WIDE
    columns = [
        Column("stop", [screen.shown(row["stop"]) for row in rows], left=True),
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        *times(rows, "spread", TENTHS if wide else (50, 90), "apart, us"),
        *_mean(rows, "early", "early, us", screen),
        *(_mean(rows, "lead", "lead, us", screen) if _some(rows, "lead") else []),
        *([Column("last block", [_last_block(row) for row in rows], left=True)] if wide else []),
        *([Column("tied", [percent(row["cannot_tell_share"]) for row in rows])] if wide else []),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.bar("wait", 0, row["spread_p50_ns"], 0, row["spread_p90_ns"])

    return [Table(columns, rows, longest(rows, "spread_p90_ns"), bar)]


def _mean(rows: Rows, prefix: str, over: str, screen: Screen) -> list[Column]:
    """The mean of some times, with its uncertainty where there is room."""
    columns = times(rows, prefix, (), over, mean_on=screen)
    return columns if screen.width >= ROOMY else [Column(over, columns[0].cells)]


def _some(rows: Rows, prefix: str) -> bool:
    return any(row[f"{prefix}_mean_ns"] is not None for row in rows)


def _last_block(row: dict[str, Any]) -> str:
    """The block that was the last most often, if it leads beyond the clock and chance."""
    if row["last_blocks"] is None:
        return NOTHING
    first = leader(row["last_blocks"], row["cannot_tell_share"], row["n"])
    return "cannot tell" if first is None else f"b{first['block']} {percent(first['share'])}"


def ahead_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How long before its op's compute each load began, across how many ops, and during which."""
    rows = table.to_pylist()
    columns = [
        Column("load", [screen.shown(row["load"]) for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        *times(rows, "ahead", TENTHS, "ahead, us", mean_on=_if_from(WIDE, screen)),
        Column("across", [_across(row) for row in rows]),
        Column("during", [screen.shown(_during(row)) for row in rows], left=True),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.bar("load", 0, row["ahead_p50_ns"], 0, row["ahead_p90_ns"])

    return [Table(columns, rows, longest(rows, "ahead_p90_ns"), bar)]


def _across(row: dict[str, Any]) -> str:
    """How many op boundaries a load crossed, as far as the clock tells."""
    low, high = row["ops_between_low_p50"], row["ops_between_high_p50"]
    if low is None:
        return f"{count(row['ops_between_p50'])}?"
    return count(low) if low == high else f"{count(low)}-{count(high)}"


def _during(row: dict[str, Any]) -> str:
    return "cannot tell" if row["during_share"] is None else row["during_op"] or NOTHING


def _by_begin(rows: Rows) -> Rows:
    off = [row["begin_uncertainty_ns"] for row in rows]
    return in_places(rows, [row["begin_p50_ns"] for row in rows], off)


def _if_from(width: int, screen: Screen) -> Screen | None:
    """The screen, if it is so wide."""
    return screen if screen.width >= width else None
