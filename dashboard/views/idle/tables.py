"""The idle view's tables: idle time by cause, behind each op, by rank and by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from dash import html

from musetrace.analysis.certainty.clock_quality import combined_ns, largest_first, places
from musetrace.dashboard.views.grid import Column, grid
from musetrace.dashboard.voice import VOICE
from musetrace.figures.wording import US, exact_ns
from musetrace.wording.idle_words import cause_words
from musetrace.wording.numbers import decimals_for

CAUSES, AFTER, BLOCKS, RANKS = "idle-causes", "idle-after", "idle-blocks", "idle-ranks"

Row = Mapping[str, Any]
_NOT_RANKED = "The clock's tick is not known, so nothing is ranked: causes in the order of the job table."
_MEAN = "per block of a launch, over all of them"
_OFF = "what the clock leaves open in the mean"


def key_of(row: Row) -> str:
    """A cause as the address bar has it: its wait, or what it is instead."""
    return str(row["wait"] or row["cause"])


def ranked_causes(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of ``musetrace.analysis.idle``, the largest first, as far as the clock tells."""
    return largest_first(table.to_pylist(), "total_ns", "total_uncertainty_ns")


def ranked_note(rows: Sequence[Row]) -> str:
    """What is to be said where nothing can be ranked."""
    return _NOT_RANKED if any(row["total_uncertainty_ns"] is None for row in rows) else ""


def sums(idle: pa.Table, blocks: pa.Table) -> html.P:
    """Busy and idle time make up the time of all blocks, and causes the idle time, to the nanosecond."""
    rows = blocks.to_pylist()
    busy, idle_ns, wall = (sum(row[f"{name}_ns"] for row in rows) for name in ("busy", "idle", "wall"))
    causes = sum(idle["total_ns"].to_pylist())
    holds = busy + idle_ns == wall and causes == idle_ns
    share = f" ({100 * idle_ns / wall:.1f} % idle)" if wall else ""
    told: list[Any] = ["the causes sum to ", _exact(causes), "\N{NO-BREAK SPACE}ns idle"]
    return html.P(
        [
            *("busy ", _exact(busy), " + idle ", _exact(idle_ns), " = wall ", _exact(wall), f" ns{share}; "),
            *told,
            "" if holds else "; these do not agree: the run changed while it was read, load the page again",
        ],
        className="sums" if holds else "sums tone-bad",
    )


def _exact(value: int) -> html.Data:
    return html.Data(exact_ns(value), value=str(value))


def cause_table(rows: Sequence[Row], chosen: str) -> Any:
    """Idle time by cause; a click chooses one."""
    decimals = _decimals(rows, "idle_mean_ns")
    columns = [
        Column("place", "", width=46, tip="equal places: the clock cannot tell them apart"),
        Column("cause", "idle: waits in", tip="or what it is instead of a wait"),
        Column("awaits", "for", tip="the job that it waits for"),
        Column("us", "us", decimals, 66, _MEAN),
        Column("off", "\N{PLUS-MINUS SIGN} ns", 0, 62, _OFF),
        Column("share", "% of idle", 1, 92, "of all idle time", _longest(rows, "share")),
        Column("of_time", "of time", 1, 78, "of all time of the blocks, in %"),
        Column("contested", "contested", 1, 92, "in % of it, waits of other jobs cover it too"),
    ]
    marks = _marks(rows, "total_ns", "total_uncertainty_ns")
    table = grid(
        CAUSES,
        columns,
        [_cause_row(row, mark, at) for at, (row, mark) in enumerate(zip(rows, marks, strict=True))],
        selected=True,
    )
    # By number, since a name may be anything.
    table.getRowId = "params.data.key"
    table.selectedRows = {"ids": [str(at) for at, row in enumerate(rows) if key_of(row) == chosen][:1]}
    return table


def _cause_row(row: Row, mark: str, at: int) -> dict[str, Any]:
    total = row["total_ns"]
    return {
        "key": str(at),
        "name": key_of(row),
        "place": mark,
        "cause": VOICE.shown(cause_words(row)),
        "awaits": VOICE.shown(row["awaits"] or "\N{EN DASH}"),
        "us": row["idle_mean_ns"] / US,
        "off": row["idle_mean_uncertainty_ns"],
        "share": 100 * row["share"],
        "of_time": 100 * row["share_of_time"],
        "contested": 100 * row["contested_ns"] / total if total else 0.0,
    }


def after_table(table: pa.Table) -> Any:
    """How much idle time lies between the end of each op and the end of its launch."""
    rows = largest_first(table.to_pylist(), "total_ns", "total_uncertainty_ns")
    decimals = _decimals(rows, "after_p50_ns")
    columns = [
        Column("op", "behind the end of"),
        Column("after", "us to end", decimals, 92, "median time from there to the launch's end"),
        Column("us", "idle, us", decimals, 84, "of it, mean over the blocks of launches that run the op"),
        Column("off", "\N{PLUS-MINUS SIGN} ns", 0, 64, _OFF),
        Column("share", "% of idle", 1, 92, "of all idle time", _longest(rows, "share")),
        Column("of_time", "of time", 1, 78, "of all time, in %; less than of idle: it gathers here"),
    ]
    shown = [
        {
            "op": VOICE.shown(row["op"]),
            "after": row["after_p50_ns"] / US,
            "us": row["idle_mean_ns"] / US,
            "off": row["idle_mean_uncertainty_ns"],
            "share": _percent(row["share"]),
            "of_time": _percent(row["share_of_time"]),
        }
        for row in rows
    ]
    return grid(AFTER, columns, shown)


def block_table(busy: pa.Table, causes: pa.Table) -> Any:
    """Idle time of each block, the most idle first."""
    largest = _largest_cause(causes)
    rows = [_per_launch(row) for row in busy.to_pylist()]
    rows = largest_first(rows, "idle", "off")
    columns = [
        Column("place", "", width=52, tip="equal places: the clock cannot tell them apart"),
        Column("rank", "rank", 0, 66),
        Column("block", "block", 0, 70),
        Column("us", "idle, us", _decimals(rows, "idle"), 84, "per launch"),
        Column("off", "\N{PLUS-MINUS SIGN} ns", 0, 68, _OFF),
        Column("share", "% of its time", 1, 122, longest=_longest(rows, "of_time")),
        Column("most", "most of it"),
    ]
    marks = _marks(rows, "idle", "off")
    shown = [
        {
            "place": mark,
            "rank": row["rank"],
            "block": row["block"],
            "us": row["idle"] / US,
            "off": row["off"],
            "share": _percent(row["of_time"]),
            "most": VOICE.shown(largest.get((row["rank"], row["block"]), "\N{EN DASH}")),
        }
        for row, mark in zip(rows, marks, strict=True)
    ]
    return grid(BLOCKS, columns, shown)


def rank_table(busy: pa.Table) -> Any:
    """The same of each rank, where there are several."""
    of_rank: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in busy.to_pylist():
        of_rank[row["rank"]].append(row)
    rows = [_per_launch(_added(rank, mine)) for rank, mine in of_rank.items()]
    rows = largest_first(rows, "idle", "off")
    columns = [
        Column("place", "", width=52, tip="equal places: the clock cannot tell them apart"),
        Column("rank", "rank", 0, 66),
        Column("us", "idle, us", _decimals(rows, "idle"), 84, _MEAN),
        Column("off", "\N{PLUS-MINUS SIGN} ns", 0, 68, _OFF),
        Column("share", "% of its time", 1, None, longest=_longest(rows, "of_time")),
    ]
    shown = [
        {
            "place": mark,
            "rank": row["rank"],
            "us": row["idle"] / US,
            "off": row["off"],
            "share": _percent(row["of_time"]),
        }
        for row, mark in zip(rows, _marks(rows, "idle", "off"), strict=True)
    ]
    return grid(RANKS, columns, shown)


def _added(rank: int, rows: Sequence[Row]) -> dict[str, Any]:
    names = ("idle_ns", "wall_ns", "launches")
    # Blocks share the begins of their launches, so bounds add up.
    off = combined_ns(*(row["idle_uncertainty_ns"] for row in rows))
    return {
        "rank": rank,
        **{name: sum(row[name] for row in rows) for name in names},
        "idle_uncertainty_ns": off,
    }


def _per_launch(row: Row) -> dict[str, Any]:
    n, off = row["launches"], row["idle_uncertainty_ns"]
    return {
        **row,
        "idle": row["idle_ns"] / n,
        "off": None if off is None else -(-off // n),
        "of_time": row["idle_ns"] / row["wall_ns"] if row["wall_ns"] else None,
    }


def _largest_cause(table: pa.Table) -> dict[tuple[int, int], str]:
    """By rank and block the cause with most idle time, where the clock tells."""
    of_block: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        of_block[row["rank"], row["block"]].append(row)
    found = {}
    for place, rows in of_block.items():
        ranked = largest_first(rows, "total_ns", "total_uncertainty_ns")
        marks = _marks(ranked, "total_ns", "total_uncertainty_ns")
        found[place] = cause_words(ranked[0]) if marks[0] == "1." else "cannot tell"
    return found


def _marks(rows: Sequence[Row], name: str, uncertainty: str) -> list[str]:
    """``1.``, ``2=`` for each of those that are tied for a place, ``-`` where nothing is ranked."""
    off = [row[uncertainty] for row in rows]
    if None in off:
        return ["-"] * len(rows)
    found = places([-row[name] for row in rows], off)
    return [f"{found.index(place) + 1}{'=' if found.count(place) > 1 else '.'}" for place in found]


def _decimals(rows: Sequence[Row], name: str) -> int:
    return decimals_for(max((round(row[name]) for row in rows), default=0))


def _longest(rows: Sequence[Row], name: str) -> float:
    return max((100 * (row[name] or 0.0) for row in rows), default=0.0)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
