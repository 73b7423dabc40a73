"""The report's sections on gaps: what idle blocks wait for, and whose work each wait waited for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import largest_first
from musetrace.analysis.gaps.idle_after import gathering
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Block, Sentence, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, WIDE, Rows, longest, times
from musetrace.wording.idle_sentences import after_sentence
from musetrace.wording.idle_words import cause_words
from musetrace.wording.numbers import NOTHING, bounded_us, count, decimals_for, percent, us, whole_ns

MOST_ROWS = 5


def idle_blocks(table: pa.Table, after: pa.Table, named: Collection[str], screen: Screen) -> list[Block]:
    """The largest causes of idle time, in us per block of a launch, and behind which op it gathers.

    Causes that are ``named`` elsewhere, by their wait or what they are instead, are among them.
    """
    every = table.to_pylist()
    rows = _largest(every, named)
    decimals = decimals_for(longest(rows, "idle_mean_ns"))
    columns = [
        Column("idle: waits in", [screen.shown(cause_words(row)) for row in rows], left=True),
        Column("for", [screen.shown(row["awaits"] or NOTHING) for row in rows], left=True),
        *(_means(rows, decimals, screen)),
        Column("of idle", [percent(row["share"]) for row in rows]),
        *([Column("of time", [percent(row["share_of_time"]) for row in rows])] if _roomy(screen) else []),
        *([Column("contested", [percent(_contested(row)) for row in rows])] if _wide(screen) else []),
    ]
    total = sum(row["total_ns"] for row in every)
    whole = f"idle {us(total / every[0]['n'], decimals)} us per block of a launch, {_of_time(every)}"
    return [Sentence(whole), Table(columns), *after_blocks(after, screen)]


def after_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """The op behind which idle time gathers most: where its share exceeds that of the time by most."""
    row = gathering(table)
    if row is None:
        return []
    return [Sentence(after_sentence(row, screen))]


def wait_blocks(table: pa.Table, named: Collection[str], screen: Screen) -> list[Block]:
    """The pairs of wait and awaited job with most waiting; most often last is named where that is certain.

    Waits that are ``named`` elsewhere are among them.
    """
    rows = _largest(table.to_pylist(), named)
    columns = [
        Column("wait", [screen.shown(row["wait"]) for row in rows], left=True),
        Column("for", [screen.shown(row["awaits"]) for row in rows], left=True),
        *([Column("of its", [row["scope"] for row in rows], left=True)] if _roomy(screen) else []),
        *([Column("n", [count(row["n"]) for row in rows])] if _wide(screen) else []),
        *times(rows, "wait", (50,), "us", decimals=decimals_for(longest(rows, "wait_p50_ns"))),
        Column("share", [percent(row["share"]) for row in rows]),
        *([Column("not ready", [percent(_not_ready(row)) for row in rows])] if _roomy(screen) else []),
        *([Column("last most often", [_last(row) for row in rows], left=True)] if _wide(screen) else []),
        *([Column("tied", [percent(row["cannot_tell_share"]) for row in rows])] if _wide(screen) else []),
    ]
    return [Table(columns)]


def _largest(rows: Rows, named: Collection[str]) -> Rows:
    """The rows with the largest totals, and the named ones.

    Those that the clock cannot tell apart stand in job-table order.
    """
    ranked = largest_first(rows, "total_ns", "total_uncertainty_ns")
    return [row for at, row in enumerate(ranked) if at < MOST_ROWS or _name(row) in named]


def _name(row: dict[str, Any]) -> str:
    name: str = row["wait"] or row["cause"]
    return name


def _means(rows: Rows, decimals: int, screen: Screen) -> list[Column]:
    means = [bounded_us(row["idle_mean_ns"], row["idle_mean_uncertainty_ns"], decimals) for row in rows]
    columns = [Column("us", means)]
    if _roomy(screen):
        off = [whole_ns(row["idle_mean_uncertainty_ns"]) for row in rows]
        columns.append(Column(f"{screen.plus_minus} ns", off))
    return columns


def _contested(row: dict[str, Any]) -> float | None:
    return row["contested_ns"] / row["total_ns"] if row["wait"] and row["total_ns"] else None


def _of_time(rows: Rows) -> str:
    return f"{percent(sum(row['share_of_time'] for row in rows))} of its time; largest causes:"


def _not_ready(row: dict[str, Any]) -> float | None:
    return (row["before_ns"] + row["under_way_ns"]) / row["total_ns"] if row["total_ns"] else None


def _last(row: dict[str, Any]) -> str:
    """The block that was last for certain in most waits, if more than it would lead by is not left open."""
    blocks = row["last_blocks"]
    if not blocks:
        return NOTHING if blocks is None else "cannot tell" if row["cannot_tell_share"] else "none so often"
    second = blocks[1]["share"] if len(blocks) > 1 else 0.0
    if blocks[0]["share"] - second <= row["cannot_tell_share"]:
        return "cannot tell"
    first = blocks[0]
    return f"r{first['rank']} b{first['block']} {percent(first['share'])}"


def _roomy(screen: Screen) -> bool:
    return screen.width >= ROOMY


def _wide(screen: Screen) -> bool:
    return screen.width >= WIDE
