"""The report's sections on steps and launches: parts, edges of launches, spread of step times, slow steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.percentiles import TENTHS
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Block, Sentence, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, WIDE, Rows, longest, times
from musetrace.wording.numbers import NOTHING, bounded_us, count, decimals_for, percent, us
from musetrace.wording.step_sentences import alone_sentence, grown_words, launches_words, slow_step_words

MOST_GROWN = 5  # of each slow step
LEAST_SPREAD = 20  # fewer step times tell no distribution

_LONGEST_BAR = 40
_EDGES = (
    ("all in", "all_in"),
    ("first out", "first_out"),
    ("next in", "next_in"),
    ("works", "next_work"),
    ("next all in", "next_all_in"),
    ("lead", "lead"),
)
_ON_ROOMY = ("first_out", "next_work")


def part_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """The parts of a step: launches in them, how long they take, their share of the step."""
    rows = table.to_pylist()
    if len(rows) == 2:  # the step, and the one part that it has
        return [Sentence(alone_sentence(rows[0], rows[1], screen))]
    columns = [
        Column("part", [screen.shown(row["part"]) for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        Column("launches", [launches_words(row) for row in rows]),
        *times(rows, "part", TENTHS, "us", mean_on=screen if screen.width >= ROOMY else None),
        Column("of step", [percent(row["share"]) for row in rows]),
    ]
    return [Table(columns)]


def edge_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """When the blocks of launches come and go, and when the next launch takes over: medians."""
    rows = table.to_pylist()
    columns = [
        Column("launch", [screen.shown(row["kind"]) for row in rows], left=True),
        Column("next", [screen.shown(row["next_kind"] or NOTHING) for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        *(Column(title, _medians(rows, name)) for title, name in _edges(screen)),
        *([Column("overlap", [_overlap(row) for row in rows])] if screen.width >= WIDE else []),
    ]
    return [Table(columns)]


def histogram_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """How many steps lie in each bin of step times on the device."""
    rows = device_bins(table)
    most = max((row["n"] for row in rows), default=0)
    decimals = _decimals_of_bins(rows)
    full = "\N{FULL BLOCK}" if screen.unicode else "#"
    bars = [full * -(-row["n"] * _LONGEST_BAR // most) for row in rows] if most else []
    columns = [
        Column("us from", [us(row["from_ns"], decimals) for row in rows]),
        Column("to", [us(row["to_ns"], decimals) for row in rows]),
        Column("n", [count(row["n"]) for row in rows]),
        Column("", bars, left=True, widest=_LONGEST_BAR),
    ]
    return [Table(columns)]


def _decimals_of_bins(rows: Rows) -> int:
    """As many as tell the edge of one bin from that of the next."""
    width_ns = min((row["to_ns"] - row["from_ns"] for row in rows), default=1000)
    return next(
        decimals for decimals, unit_ns in ((0, 1000), (1, 100), (2, 10), (3, 1)) if width_ns >= unit_ns
    )


def device_bins(table: pa.Table) -> Rows:
    """The bins of the device's clock."""
    return [row for row in table.to_pylist() if row["clock"] == "device"]


def outlier_blocks(table: pa.Table, growth: pa.Table, screen: Screen) -> list[Block]:
    """The steps that are much longer than the others, and what grew most in each."""
    grown, outliers = growth.to_pylist(), table.to_pylist()
    told = {row["step"] for row in grown}
    blocks: list[Block] = []
    for row in outliers:
        if row["step"] in told:
            mine = [one for one in grown if one["step"] == row["step"]][:MOST_GROWN]
            what = ", ".join(grown_words(one, screen) for one in mine)
            blocks.append(Sentence(f"{slow_step_words(row)}: {what}", "  "))
    rest = [row for row in outliers if row["step"] not in told]
    if rest:
        blocks.append(Sentence("also: " + ", ".join(map(slow_step_words, rest[:MOST_GROWN])), "  "))
    if len(rest) > MOST_GROWN:
        blocks.append(Sentence(f"and {count(len(rest) - MOST_GROWN)} more"))
    return blocks


def _edges(screen: Screen) -> list[tuple[str, str]]:
    """Those that there is room for."""
    return [edge for edge in _EDGES if screen.width >= ROOMY or edge[1] not in _ON_ROOMY]


def _medians(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    decimals = decimals_for(longest(list(rows), f"{name}_p50_ns"))
    return [bounded_us(row[f"{name}_p50_ns"], row[f"{name}_uncertainty_ns"], decimals) for row in rows]


def _overlap(row: dict[str, Any]) -> str:
    if row["overlap_n"] is None or not row["next_n"]:
        return NOTHING
    return percent(row["overlap_n"] / row["next_n"])
