"""The sections of a report as lines of text, each from one answer of the analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from musetrace.cli.chart import MIN_CHART, Chart
from musetrace.cli.numbers import NOTHING, count, decimals_for, percent, us
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines, table_width

WIDE = 120  # from this width on, a table shows every percentile
_MOST_BLOCKS = 16  # beyond this, only the busiest, the median and the least busy block of each rank
_CHART_GAP = 2

Rows = list[dict[str, Any]]


def step_lines(table: pa.Table, screen: Screen) -> list[str]:
    """How long a step takes, by the device's clock and by the host's."""
    rows = table.to_pylist()
    columns = [
        Column("step", [row["clock"] for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        *_tenths(rows, "step", "us"),
    ]
    return table_lines(columns, screen.width)


def launch_lines(table: pa.Table, screen: Screen) -> list[str]:
    """How long a launch of each kind takes, and the gap to the next launch."""
    rows = table.to_pylist()
    columns = [
        Column("launch", [screen.shown(row["kind"]) for row in rows], left=True),
        Column("layers", [count(row["layers"]) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        *_tenths(rows, "launch", "us"),
        *_tenths(rows, "gap", "gap to next, us"),
    ]
    return table_lines(columns, screen.width)


def op_lines(table: pa.Table, screen: Screen) -> list[str]:
    """The timeline of a launch: a row for each op and kind of job, by begin, with a chart."""
    rows = sorted(table.to_pylist(), key=lambda row: (row["begin_p50_ns"], row["end_p50_ns"]))
    decimals = decimals_for(_longest(rows, "end_p90_ns"))
    wide = screen.width >= WIDE
    columns = [
        Column("op", [screen.shown(row["op"]) for row in rows], left=True),
        Column("kind", [row["kind"] for row in rows], left=True),
        *_times(rows, "begin", (10, 50, 90) if wide else (10, 50), decimals, "begin"),
        *_times(rows, "end", (10, 50, 90) if wide else (50, 90), decimals, "end"),
        *(_times(rows, "dur", (50,), decimals, "lasts") if wide else []),
        Column("blocks", [f"{row['blocks']}/{row['blocks_total']}" for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
    ]

    def bar(chart: Chart, row: dict[str, Any]) -> str:
        times = (row[f"{name}_ns"] for name in ("begin_p50", "end_p50", "begin_p10", "end_p90"))
        return chart.bar(row["kind"], *times)

    return _with_chart(columns, rows, _longest(rows, "end_p90_ns"), bar, screen)


def stop_lines(table: pa.Table, screen: Screen) -> list[str]:
    """The wait of each rank at each stop, and how often its data came last."""
    rows = table.to_pylist()
    decimals = decimals_for(_longest(rows, "wait_p90_ns"))
    columns = [
        Column("stop", [screen.shown(row["stop"]) for row in rows], left=True),
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        *_times(rows, "wait", (10, 50, 90), decimals, "waits, us"),
        Column("came last", [percent(row["last_share"]) for row in rows]),
    ]

    def bar(chart: Chart, row: dict[str, Any]) -> str:
        return chart.bar("wait", 0, row["wait_p50_ns"], 0, row["wait_p90_ns"])

    return _with_chart(columns, rows, _longest(rows, "wait_p90_ns"), bar, screen)


def ahead_lines(table: pa.Table, screen: Screen) -> list[str]:
    """How long before its op's compute each load began, across how many ops, and during which."""
    rows = table.to_pylist()
    decimals = decimals_for(_longest(rows, "ahead_p90_ns"))
    columns = [
        Column("load", [screen.shown(row["load"]) for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        *_times(rows, "ahead", (10, 50, 90), decimals, "ahead, us"),
        Column("across", [count(row["ops_between_p50"]) for row in rows]),
        Column("during", [screen.shown(row["during_op"] or NOTHING) for row in rows], left=True),
    ]

    def bar(chart: Chart, row: dict[str, Any]) -> str:
        return chart.bar("load", 0, row["ahead_p50_ns"], 0, row["ahead_p90_ns"])

    return _with_chart(columns, rows, _longest(rows, "ahead_p90_ns"), bar, screen)


def block_lines(table: pa.Table, screen: Screen) -> list[str]:
    """How the blocks' time divides, in us per launch."""
    every = table.to_pylist()
    rows = [{**row, "label": ""} for row in every] if len(every) <= _MOST_BLOCKS else _extremes(every)
    decimals = decimals_for(max((row["wall_ns"] // row["launches"] for row in rows), default=0))
    for row in rows:
        row["rest_ns"] = row["idle_ns"] - row["loading_ns"] - row["waiting_ns"]
    labels = [Column("", [row["label"] for row in rows], left=True)] if rows and rows[0]["label"] else []
    columns = [
        Column("rank", [str(row["rank"]) for row in rows]),
        Column("block", [str(row["block"]) for row in rows]),
        *labels,
        Column("launches", [count(row["launches"]) for row in rows]),
        *(
            Column(name, [us(row[f"{name}_ns"] / row["launches"], decimals) for row in rows])
            for name in ("busy", "loading", "waiting", "rest")
        ),
        Column("idle", [percent(_share(row["idle_ns"], row["wall_ns"])) for row in rows]),
    ]

    def bar(chart: Chart, row: dict[str, Any]) -> str:
        parts = (("busy", "busy_ns"), ("loading", "loading_ns"), ("waiting", "waiting_ns"))
        return chart.stacked([(style, row[name] // row["launches"]) for style, name in parts])

    longest = max((row["wall_ns"] // row["launches"] for row in rows), default=0)
    return _with_chart(columns, rows, longest, bar, screen)


def _extremes(rows: Rows) -> Rows:
    """The busiest, the median and the least busy block of each rank."""
    chosen: Rows = []
    for rank in dict.fromkeys(row["rank"] for row in rows):
        mine = [row for row in rows if row["rank"] == rank]
        mine.sort(key=lambda row: _share(row["busy_ns"], row["wall_ns"]) or 0.0, reverse=True)
        places = {"busiest": 0, "median": len(mine) // 2, "least busy": len(mine) - 1}
        chosen += [{**mine[place], "label": label} for label, place in places.items()]
    return chosen


def _with_chart(
    columns: Sequence[Column],
    rows: Rows,
    axis_ns: int,
    bar: Callable[[Chart, dict[str, Any]], str],
    screen: Screen,
) -> list[str]:
    """The table, with a bar for each row where there is room for bars."""
    chart = Chart(max(axis_ns, 1), screen.width - table_width(columns) - _CHART_GAP, screen.unicode)
    if chart.width < MIN_CHART or not rows:
        return table_lines(columns, screen.width)
    return table_lines(columns, screen.width, [bar(chart, row) for row in rows], chart.axis())


def _tenths(rows: Rows, prefix: str, over: str) -> list[Column]:
    return _times(rows, prefix, (10, 50, 90), decimals_for(_longest(rows, f"{prefix}_p90_ns")), over)


def _times(rows: Rows, prefix: str, percents: Sequence[int], decimals: int, over: str) -> list[Column]:
    columns = []
    for index, percentile in enumerate(percents):
        texts = [us(row[f"{prefix}_p{percentile}_ns"], decimals) for row in rows]
        group = (over, len(percents)) if index == 0 else ("", 1)
        columns.append(Column(f"p{percentile}", texts, over=group[0], spans=group[1]))
    return columns


def _longest(rows: Rows, name: str) -> int:
    return max((abs(row[name]) for row in rows if row[name] is not None), default=0)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
