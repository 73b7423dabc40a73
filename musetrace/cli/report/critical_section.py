"""The report's sections on what held up launches: critical path, its edges, and what a change would bring."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import largest_first
from musetrace.cli.output import Screen
from musetrace.cli.path_words import edge_words, launches_words, part_words, replayed_words
from musetrace.cli.report.document import Bars, Block, Sentence, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, WIDE, Rows, longest
from musetrace.wording.numbers import NOTHING, bounded_us, count, decimals_for, percent, us, whole_ns

MOST_PARTS, MOST_EDGES, MOST_CHANGES = 8, 5, 6


def critical_blocks(table: pa.Table, edges: pa.Table, screen: Screen) -> list[Block]:
    """What a launch's end waited for: the largest parts of its critical path, and where it changes warps."""
    rows = largest_first(table.to_pylist(), "total_ns", "total_uncertainty_ns")
    shown, rest = rows[:MOST_PARTS], rows[MOST_PARTS:]
    n, length_ns = rows[0]["n"], sum(row["total_ns"] for row in rows)
    decimals = decimals_for(longest(rows, "mean_ns"))
    columns = [
        Column("critical path", [_part(row, screen) for row in shown], left=True),
        Column("kind", [row["kind"] if row["op"] else NOTHING for row in shown], left=True),
        *_bounded(shown, "mean", "us", decimals, screen),
        Column("share", [percent(row["share"]) for row in shown]),
        *([Column("launches", [f"{row['with_n']}/{n}" for row in shown])] if _wide(screen) else []),
    ]

    def bar(chart: Bars, row: dict[str, Any]) -> str:
        return chart.bar(row["kind"], 0, row["mean_ns"], 0, row["mean_ns"])

    whole = f"{us(length_ns / n, decimals)} us a launch, mean of {launches_words(n, rows[0]['of_n'])}"
    blocks: list[Block] = [Sentence(f"{whole}; the path is what its end waited for")]
    blocks.append(Table(columns, shown, longest(shown, "mean_ns"), bar))
    if rest:
        less = sum(row["total_ns"] for row in rest)
        share = percent(less / length_ns if length_ns else None)
        blocks.append(Sentence(f"and {us(less / n, decimals)} us, {share}, in {len(rest)} more"))
    return [*blocks, *edge_blocks(edges, screen)]


def edge_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """The ways between warps on which paths lose most time, from the end of one job to the next."""
    rows = largest_first(table.to_pylist(), "hop_total_ns", "hop_total_uncertainty_ns")
    shown = [row for row in rows if row["hop_total_ns"] > 0][:MOST_EDGES]
    if not shown:
        return []
    decimals = decimals_for(longest(shown, "hop_p50_ns"))
    columns = [
        Column("way from", [screen.shown(row["from_job"]) for row in shown], left=True),
        Column("to", [screen.shown(row["job"]) for row in shown], left=True),
        *([Column("how", [edge_words(row) for row in shown], left=True)] if _roomy(screen) else []),
        Column("n", [count(row["n"]) for row in shown]),
        *_bounded(shown, "hop_p50", "us p50", decimals, screen, "hop"),
        *([Column("other block", [_share(row, "other_block_n") for row in shown])] if _roomy(screen) else []),
        *([Column("other rank", [_share(row, "other_rank_n") for row in shown])] if _wide(screen) else []),
    ]
    return [Table(columns)]


def what_if_blocks(table: pa.Table, named: Collection[str], screen: Screen) -> list[Block]:
    """What a launch would be shorter: for each op at no time and a little faster, and without waits.

    Waits that are ``named`` elsewhere are among them.
    """
    rows = table.to_pylist()
    if not rows:
        return []
    ops = {row["target"]: row for row in rows if row["how"] == "zero"}
    faster = {row["target"]: row for row in rows if row["how"] == "faster"}
    best = [faster[name] for name in faster if _told(faster[name])][:MOST_CHANGES]
    told = [row["target"] for row in _waits(rows)][:MOST_CHANGES]
    waits = [
        row for row in rows if row["how"] == "gone" and (row["target"] in told or row["target"] in named)
    ]
    decimals = decimals_for(longest(rows, "saved_mean_ns"))
    blocks: list[Block] = [Sentence(replayed_words(rows[0]))]
    if best:
        zero = [ops[row["target"]] for row in best]
        columns = [
            Column("if", [screen.shown(row["target"]) for row in best], left=True),
            *_bounded(best, "saved_mean", "10 % faster: us saved", decimals, screen),
            Column("of launch", [percent(row["saved_share"]) for row in best]),
            *_bounded(zero, "saved_mean", "no time: us saved", decimals, screen),
            *(
                [Column("on path", [us(row["on_path_mean_ns"], decimals) for row in zero])]
                if _wide(screen)
                else []
            ),
        ]
        blocks.append(Table(columns))
    if waits:
        columns = [
            Column("without the wait", [screen.shown(row["target"]) for row in waits], left=True),
            *_bounded(waits, "saved_mean", "us saved", decimals, screen),
            Column("of launch", [percent(row["saved_share"]) for row in waits]),
        ]
        blocks.append(Table(columns))
    return blocks


def asked_blocks(tables: dict[str, pa.Table], screen: Screen) -> list[Block]:
    """What the changes that were asked for would bring, for each kind of launch."""
    rows = [{**row, "kind": kind} for kind, table in tables.items() for row in table.to_pylist()]
    if not rows:
        return []
    decimals = decimals_for(longest(rows, "length_mean_ns"))
    columns = [
        Column("what if", [screen.shown(row["change"]) for row in rows], left=True, widest=36),
        Column("launch", [screen.shown(row["kind"]) for row in rows], left=True),
        Column("n", [f"{row['n']}/{row['of_n']}" for row in rows]),
        Column("us", [us(row["length_mean_ns"], decimals) for row in rows]),
        Column("then", [us(row["new_mean_ns"], decimals) for row in rows]),
        *_bounded(rows, "saved_mean", "saved", decimals, screen),
        Column("share", [percent(row["saved_share"]) for row in rows]),
    ]
    return [Table(columns)]


def _bounded(
    rows: Rows, name: str, title: str, decimals: int, screen: Screen, error: str | None = None
) -> list[Column]:
    """A time, and where there is room what is open in it."""
    off = f"{error or name}_uncertainty_ns"
    columns = [Column(title, [bounded_us(row[f"{name}_ns"], row[off], decimals) for row in rows])]
    if _roomy(screen):
        columns.append(Column(f"{screen.plus_minus} ns", [whole_ns(row[off]) for row in rows]))
    return columns


def _waits(rows: Rows) -> Rows:
    """Waits that would save something; of a stop the stop as a whole, not its waits one by one."""
    gone = [row for row in rows if row["how"] == "gone" and _told(row)]
    names = [row["target"] for row in gone]
    return [row for row in gone if not any(row["target"].startswith(f"{name}_") for name in names)]


def _told(row: dict[str, Any]) -> bool:
    """Whether a saving is more than what the clock leaves open."""
    off = row["saved_mean_uncertainty_ns"]
    return off is not None and row["saved_mean_ns"] >= off


def _part(row: dict[str, Any], screen: Screen) -> str:
    return screen.shown(part_words(row))


def _share(row: dict[str, Any], name: str) -> str:
    return percent(row[name] / row["n"])


def _roomy(screen: Screen) -> bool:
    return screen.width >= ROOMY


def _wide(screen: Screen) -> bool:
    return screen.width >= WIDE
