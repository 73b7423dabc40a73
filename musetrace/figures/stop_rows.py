"""The stops between ranks: how long each rank waits there, how far apart blocks arrive, and ranks, and who is
last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.interval_rows import STRONG, Band, IntervalRow, interval_rows_figure
from musetrace.figures.wording import US, exact_ns, plus_minus

MOST_RANKS = 16
_PERCENT, _ROOM_PERCENT = 100.0, 4.0
_NAMED, _EVERY_OF_MANY = 8, 4  # up to so many ranks each has its label, of more every fourth
Row = Mapping[str, Any]
Keys = Sequence[tuple[str, int]]


def wait_figure(table: pa.Table, keys: Keys, picked: str, theme_name: str) -> go.Figure:
    """Of an answer of ``musetrace.analysis.stops``: the waits of each rank at each stop, in us."""
    title = "\N{MICRO SIGN}s that a warp waits for ranks"
    return interval_rows_figure(stop_rows(table, "wait", "n", keys, picked), title, theme_name)


def spread_figure(table: pa.Table, keys: Keys, picked: str, theme_name: str) -> go.Figure:
    """Of an answer of ``musetrace.analysis.arrivals``: from a rank's first block to its last, in us."""
    title = "\N{MICRO SIGN}s from first block to last"
    return interval_rows_figure(stop_rows(table, "spread", "n", keys, picked), title, theme_name)


def lead_figure(table: pa.Table, keys: Keys, picked: str, error_ns: int, theme_name: str) -> go.Figure:
    """Of the same: how long before the last rank each rank arrives, in us, with the band of the error."""
    rows = stop_rows(table, "lead", "lead_n", keys, picked)
    title = "\N{MICRO SIGN}s before the last rank"
    return interval_rows_figure(rows, title, theme_name, band=error_band(error_ns))


def last_figure(table: pa.Table, keys: Keys, picked: str, theme_name: str) -> go.Figure:
    """Of an answer of ``musetrace.analysis.stops``: in how many launches each rank was last, in percent.

    From where it was for certain to where it may have been: it was tied.
    """
    rows = {(row["stop"], row["rank"]): row for row in table.to_pylist()}
    found = [_last_row(rows.get(key), row) for key, row in zip(keys, _labelled(keys, picked), strict=True)]
    title = "% of launches it was last; line: with ties"
    figure = interval_rows_figure(found, title, theme_name)
    return figure.update_xaxes(range=[-_ROOM_PERCENT, _PERCENT + _ROOM_PERCENT], zeroline=False, dtick=25)


def error_band(error_ns: int) -> Band | None:
    """Within what the ranks' clocks are off against each other; None for one clock."""
    return Band(0.0, error_ns / US, "within the error of the clocks") if error_ns else None


def keys_of(*tables: pa.Table) -> list[tuple[str, int]]:
    """The stops and ranks of some answers, of the first MOST_RANKS ranks: the rows of all pictures."""
    every = dict.fromkeys((row["stop"], row["rank"]) for table in tables for row in table.to_pylist())
    ranks = sorted({rank for _, rank in every})[:MOST_RANKS]
    stops = dict.fromkeys(stop for stop, _ in every)
    return [(stop, rank) for stop in stops for rank in ranks if (stop, rank) in every]


def stop_rows(table: pa.Table, name: str, count: str, keys: Keys, picked: str) -> list[IntervalRow]:
    """A row for each of ``keys``; those of the ``picked`` stop stand out."""
    rows = {(row["stop"], row["rank"]): row for row in table.to_pylist()}
    kind = "wait" if name == "wait" else "send"
    return [
        _row(rows.get(key), name, count, empty)
        for key, empty in zip(keys, _labelled(keys, picked, kind), strict=True)
    ]


def _labelled(keys: Keys, picked: str, kind: str = "send") -> list[IntervalRow]:
    """The rows without their numbers."""
    ranks = list(dict.fromkeys(rank for _, rank in keys))
    named = set(ranks[:: 1 if len(ranks) <= _NAMED else _EVERY_OF_MANY])
    found, before = [], None
    for stop, rank in keys:
        opens, before = stop != before, stop
        of_rank = f"r{rank}" if rank in named or opens else ""
        label = stop if len(ranks) == 1 else f"{stop}  {of_rank}" if opens else of_rank
        of_kind = STRONG if stop == picked else kind
        found.append(IntervalRow(label, None, None, None, (), of_kind, opens, note="none", key=stop))
    return found


def _last_row(row: Row | None, empty: IntervalRow) -> IntervalRow:
    if row is None:
        return empty
    if row["last_share"] is None:
        return replace(empty, note="not known")
    last, tied = _PERCENT * row["last_share"], _PERCENT * row["tied_share"]
    hover = (
        f"{row['stop']}, rank {row['rank']}",
        f"last for certain in {last:.1f} % of {row['last_n']:,} launches",
        f"tied in {tied:.1f} %",
    )
    return replace(empty, low=last, middle=last, high=last + tied, hover=hover)


def _row(row: Row | None, name: str, count: str, empty: IntervalRow) -> IntervalRow:
    if row is None:
        return empty
    tenths: Sequence[int | None] = [row[f"{name}_p{percent}_ns"] for percent in (10, 50, 90)]
    low, middle, high = (None if value is None else value / US for value in tenths)
    times = "  ".join(f"p{p} {exact_ns(value)}" for p, value in zip((10, 50, 90), tenths, strict=True))
    hover = (
        f"{row['stop']}, rank {row['rank']}",
        f"{times} ns",
        f"each {plus_minus(row[f'{name}_uncertainty_ns'])}",
        f"mean {exact_ns(row[f'{name}_mean_ns'])} ns {plus_minus(row[f'{name}_mean_uncertainty_ns'])}",
        f"n {row[count]:,}",
    )
    return replace(empty, low=low, middle=middle, high=high, hover=hover, note="not known")
