"""Tables of times: columns with what the clock leaves open in them, and a chart beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from musetrace.cli.chart import MIN_CHART, Chart
from musetrace.cli.numbers import bounded_us, decimals_for, whole_ns
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines, table_width

WIDE = 120  # from this width on, a table shows every percentile and mean
ROOMY = 80  # from this width on, a table without a chart does

_CHART_GAP = 2

Rows = list[dict[str, Any]]


def with_chart(
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


def times(
    rows: Rows,
    prefix: str,
    percents: Sequence[int],
    over: str,
    *,
    decimals: int | None = None,
    mean_on: Screen | None = None,
) -> list[Column]:
    """Columns of percentiles under ``over``, then the mean and its uncertainty where ``mean_on`` is given.

    A time that is smaller than its uncertainty is shown as being below it.
    """
    if decimals is None:
        decimals = decimals_for(longest(rows, f"{prefix}_p90_ns"))
    names = [f"p{percent}" for percent in percents]
    cells = [_cells(rows, f"{prefix}_{name}_ns", f"{prefix}_uncertainty_ns", decimals) for name in names]
    if mean_on is not None:
        off = f"{prefix}_mean_uncertainty_ns"
        names += ["mean", f"{mean_on.plus_minus} ns"]
        cells += [_cells(rows, f"{prefix}_mean_ns", off, decimals), [whole_ns(row[off]) for row in rows]]
    groups = [(over, len(names)), *[("", 1)] * (len(names) - 1)]
    return [
        Column(name, of, over=group, spans=spans)
        for name, of, (group, spans) in zip(names, cells, groups, strict=True)
    ]


def _cells(rows: Rows, name: str, uncertainty: str, decimals: int) -> list[str]:
    return [bounded_us(row[name], row[uncertainty], decimals) for row in rows]


def longest(rows: Rows, name: str) -> int:
    """The largest magnitude in a column, 0 where it has none."""
    return max((abs(row[name]) for row in rows if row[name] is not None), default=0)
