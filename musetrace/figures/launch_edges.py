"""How launches follow each other: when all blocks are in, the gap to the next launch, and its lead (PDL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.interval_rows import IntervalRow, interval_rows_figure
from musetrace.figures.wording import US, exact_ns, plus_minus

Row = Mapping[str, Any]


def all_in_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Of an answer of ``musetrace.analysis.launches``: until the last block has come."""
    rows = [_interval(row, "all_in", row["n"], pair_words(row)) for row in table.to_pylist()]
    return interval_rows_figure(rows, "\N{MICRO SIGN}s until its last block comes", theme_name)


def lead_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Of the same: how long before a block of the launch was free the next one began; below 0 it waited."""
    pairs = [row for row in table.to_pylist() if row["next_kind"] is not None]
    rows = [_interval(row, "lead", row["next_n"], pair_words(row)) for row in pairs]
    return interval_rows_figure(rows, "\N{MICRO SIGN}s that the next is launched ahead", theme_name)


def gap_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Of an answer of ``musetrace.analysis.launch_times``: the gap to the next one; below 0 they overlap."""
    rows = [_interval(row, "gap", row["gap_n"], row["kind"], "nothing follows") for row in table.to_pylist()]
    return interval_rows_figure(rows, "\N{MICRO SIGN}s of gap to the next; below 0: overlap", theme_name)


def pair_words(row: Row) -> str:
    """A launch and the one that follows it."""
    kind: str = row["kind"]
    return kind if row["next_kind"] is None else f"{kind} \N{RIGHTWARDS ARROW} {row['next_kind']}"


def _interval(row: Row, name: str, n: int, label: str, otherwise: str = "not known") -> IntervalRow:
    tenths: Sequence[int | None] = [row[f"{name}_p{percent}_ns"] for percent in (10, 50, 90)]
    low, middle, high = (None if value is None else value / US for value in tenths)
    hover = (
        label,
        *(f"p{percent} {exact_ns(value)} ns" for percent, value in zip((10, 50, 90), tenths, strict=True)),
        f"each {plus_minus(row[f'{name}_uncertainty_ns'])}, n {n:,}",
    )
    return IntervalRow(label, low, middle, high, hover, note=otherwise)
