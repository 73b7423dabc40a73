"""One stop: how its arrivals are distributed, on each rank, and which of the blocks are late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis.gaps.one_stop import EARLY, LEAD
from musetrace.figures.stop_rows import MOST_RANKS, error_band
from musetrace.figures.strips import Strip, strips_figure
from musetrace.figures.wording import US, exact_ns, plus_minus

_TITLES = {
    EARLY: "\N{MICRO SIGN}s before the rank's last block; height: how many blocks",
    LEAD: "\N{MICRO SIGN}s before the last rank; height: in how many launches",
}
_PERCENT = 100.0
Row = Mapping[str, Any]


def histogram_figure(table: pa.Table, measure: str, theme_name: str, *, error_ns: int = 0) -> go.Figure:
    """Draw a measure of ``arrival_histogram``: a strip for each rank, all to the height of the fullest bin.

    What is beyond the bins is a number at the right.
    """
    rows = [row for row in table.to_pylist() if row["measure"] == measure]
    ranks = list(dict.fromkeys(row["rank"] for row in rows))[:MOST_RANKS]
    within = [row for row in rows if row["to_ns"] is not None]
    most = max((row["n"] for row in within), default=1)
    width = min((row["to_ns"] - row["from_ns"] for row in within), default=1)
    reach = max((row["to_ns"] for row in within), default=width)
    strips = []
    for rank in ranks:
        mine = {row["from_ns"]: row["n"] for row in within if row["rank"] == rank}
        beyond = sum(row["n"] for row in rows if row["rank"] == rank and row["to_ns"] is None)
        starts = list(range(0, reach, width))
        strips.append(
            Strip(
                label=f"rank {rank}",
                edges=[edge / US for edge in (*starts, reach)],
                heights=[mine.get(start, 0) / most for start in starts],
                hover=[_bin_words(rank, start, width, mine.get(start, 0)) for start in starts],
                kind="send",
                aside=f"{beyond:,} beyond" if beyond else "",
            )
        )
    band = error_band(error_ns) if measure == LEAD else None
    return strips_figure(strips, _TITLES[measure], theme_name, band=band)


def _bin_words(rank: int, start: int, width: int, n: int) -> list[str]:
    return [f"rank {rank}", f"{exact_ns(start)} to {exact_ns(start + width)} ns", f"{n:,}"]


def block_means_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw ``block_arrivals``: how early each block arrives on average, all ranks to the same height."""
    rows = table.to_pylist()
    most = max((row["early_mean_ns"] for row in rows), default=0) or 1

    def words(row: Row) -> list[str]:
        mean = f"{exact_ns(row['early_mean_ns'])} ns {plus_minus(row['early_mean_uncertainty_ns'])}"
        return [f"rank {row['rank']}, block {row['block']}", f"early by {mean}, mean of {row['n']:,}"]

    strips = _by_block(rows, lambda row: row["early_mean_ns"] / most, words, "wait")
    title = f"block; height: mean time before the last block, up to {most / US:,.2f} \N{MICRO SIGN}s"
    return strips_figure(strips, title, theme_name, is_time=False)


def block_lasts_figure(table: pa.Table, theme_name: str) -> go.Figure:
    """Draw ``block_arrivals``: how often each block was last for certain, all ranks to the same height."""
    rows = table.to_pylist()
    most = max((row["last_share"] or 0.0 for row in rows), default=0.0) or 1.0

    def words(row: Row) -> list[str]:
        share = "not known" if row["last_share"] is None else f"{_PERCENT * row['last_share']:.1f} %"
        last = f"last for certain in {exact_ns(row['last_n'])} launches, {share}"
        return [f"rank {row['rank']}, block {row['block']}", last]

    strips = _by_block(rows, lambda row: (row["last_share"] or 0.0) / most, words, "compute")
    title = f"block; height: share of launches in which it was last, up to {_PERCENT * most:.1f} %"
    return strips_figure(strips, title, theme_name, is_time=False)


def _by_block(rows: Sequence[Row], height: Any, words: Any, kind: str) -> list[Strip]:
    """A strip for each rank, with a step for each block up to the last that arrived on any."""
    ranks = list(dict.fromkeys(row["rank"] for row in rows))[:MOST_RANKS]
    last = max((row["block"] for row in rows), default=0)
    strips = []
    for rank in ranks:
        mine = {row["block"]: row for row in rows if row["rank"] == rank}
        blocks = range(last + 1)
        strips.append(
            Strip(
                label=f"rank {rank}",
                edges=[block - 0.5 for block in range(last + 2)],
                heights=[height(mine[block]) if block in mine else 0.0 for block in blocks],
                hover=[
                    words(mine[block])
                    if block in mine
                    else [f"rank {rank}, block {block}", "does not arrive"]
                    for block in blocks
                ],
                kind=kind,
            )
        )
    return strips
