"""Columns of times, with what the clock leaves open in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musetrace.cli.output import Screen
from musetrace.cli.table import Column
from musetrace.wording.numbers import bounded_us, decimals_for, whole_ns

WIDE = 120  # from this width on, a table shows every percentile and mean
ROOMY = 80  # from this width on, a table without a chart does

Rows = list[dict[str, Any]]


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
