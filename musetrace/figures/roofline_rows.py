"""How fast each launch, phase and op reads, beside what the device can read at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis.engines.moved_parts import LAUNCH, OP, PHASE, READS, TO_END
from musetrace.figures.interval_rows import STRONG, Band, IntervalRow, interval_rows_figure
from musetrace.figures.wording import exact_ns, plus_minus

DRAWN_PARTS = (LAUNCH, PHASE, OP)
_PERCENT = 100.0
Row = Mapping[str, Any]


def roofline_figure(
    table: pa.Table, theme_name: str, *, log: bool = False, ceiling_gb_s: Sequence[float] = ()
) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.roofline``: a row for each launch, phase and op that reads.

    x is in GB/s. A line reaches from the lowest bandwidth that bytes, time and clock leave open to the
    highest. ``ceiling_gb_s``: median, p10 and p90 of what was probed, drawn as a line in a band; empty where
    it is not known. Of parts that differ in their layers alone the one with most launches is drawn.
    """
    rows = drawn_rows(table.to_pylist())
    kinds = {row["kind"] for row in rows}
    before: tuple[str, str] | None = None
    drawn = []
    for row in rows:
        group = row["part"], row["kind"]
        drawn.append(_interval(row, len(kinds) > 1, opens=before is not None and group[0] != before[0]))
        before = group
    band = None
    if ceiling_gb_s:
        median, low, high = ceiling_gb_s
        band = Band(min(low, median), max(high, median), f"ceiling {median:,.0f} GB/s", median)
    return interval_rows_figure(drawn, "GB/s read, of all blocks of a rank", theme_name, log=log, band=band)


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that read known bytes, by part; of those that differ in layers alone that of most launches."""
    most: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = row["part"], row["kind"], row["name"]
        if row["part"] not in DRAWN_PARTS or row["way"] != READS or not row["bytes_low"]:
            continue
        if key not in most or row["n"] > most[key]["n"]:
            most[key] = row
    return sorted(most.values(), key=lambda row: DRAWN_PARTS.index(row["part"]))


def part_words(row: Row) -> str:
    """What a row is about: ``whole sliding``, ``to stop3``, ``to the end``, or the op."""
    if row["part"] == LAUNCH:
        return f"whole {row['name']}"
    if row["part"] == PHASE:
        return "to the end" if row["name"] == TO_END else f"to {row['name']}"
    name: str = row["name"]
    return name


def _interval(row: Row, with_kind: bool, *, opens: bool) -> IntervalRow:
    words = part_words(row)
    label = f"{row['kind']}: {words}" if with_kind and row["part"] != LAUNCH else words
    return IntervalRow(
        label=label,
        low=row["bandwidth_low_gb_s"],
        middle=row["bandwidth_gb_s"],
        high=row["bandwidth_high_gb_s"],
        hover=_hover(row, words),
        kind="load" if row["part"] == OP else STRONG,
        opens=opens,
        note="bytes not known of " + ", ".join(row["unknown_jobs"]) if row["unknown_jobs"] else "",
    )


def _hover(row: Row, words: str) -> tuple[str, ...]:
    lines = [f"{row['kind']}: {words}"]
    if row["bytes"] is not None:
        lines.append(f"{exact_ns(row['bytes'])} bytes of a launch")
    time = f"{exact_ns(row['covered_p50_ns'])} ns {plus_minus(row['covered_uncertainty_ns'])}"
    lines.append(f"in {time}, median of {row['n']:,}")
    if row["bandwidth_gb_s"] is not None:
        low, high = (_rate(row[f"bandwidth_{end}_gb_s"]) for end in ("low", "high"))
        lines.append(f"{_rate(row['bandwidth_gb_s'])} GB/s, {low} to {high}")
    if row["ceiling_share"] is not None:
        lines.append(f"{_PERCENT * row['ceiling_share']:.1f} % of the ceiling")
    return tuple([*lines, *([row["bytes_basis"]] if row["bytes_basis"] else [])])


def _rate(gb_s: float | None) -> str:
    return "?" if gb_s is None else f"{gb_s:,.1f}" if gb_s < 1_000 else f"{gb_s:,.0f}"  # noqa: PLR2004
