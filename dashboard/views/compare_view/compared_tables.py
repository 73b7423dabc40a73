"""The tables of a comparison: columns, and rows of numbers in us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.difference import is_told
from musetrace.analysis.comparing.idle_series import BUSY, IDLE
from musetrace.cli.compare.blocks import block_rows
from musetrace.cli.compare.sentences import last_words
from musetrace.dashboard.views.grid import Column
from musetrace.wording.numbers import NOTHING

Rows = list[dict[str, Any]]

_US = 1_000
_MICRO = "\N{MICRO SIGN}s"
_NUMBERS = (
    Column("a_us", f"A, {_MICRO}", 2, 92, "median over steps"),
    Column("b_us", f"B, {_MICRO}", 2, 92, "A's median and the difference"),
    Column("off_us", f"B - A, {_MICRO}", 2, 96, "the median difference"),
    Column("clock_ns", "\N{PLUS-MINUS SIGN} ns", 0, 72, "what the clocks leave open in the difference"),
    Column("share", "%", 1, 72, "of A"),
    Column("low_us", "95 % from", 2, 108, f"the interval of the difference, {_MICRO}"),
    Column("high_us", "to", 2, 84, f"the interval of the difference, {_MICRO}"),
    Column("step_us", f"a step, {_MICRO}", 2, 104, "the difference times the launches of a step"),
    Column("verdict", "verdict", width=104),
)
_MOST = Column("most_on", "most on", width=104, tip="the rank of the largest difference, if one is told")

TIME_COLUMNS = (Column("what", "time"), Column("of", "of"), *_NUMBERS)


SKEW_COLUMNS = (
    Column("launch", "launch"),
    Column("stop", "stop", width=84),
    *_NUMBERS,
    _MOST,
    Column("last_a", "last in A", width=96, tip="of the launches in which it was last for certain"),
    Column("last_b", "last in B", width=96, tip="of the launches in which it was last for certain"),
)


def op_columns(found: Comparison) -> tuple[Column, ...]:
    """Of the ops; with the rank of the most where several were compared."""
    names = (Column("launch", "launch"), Column("op", "op"), Column("kind", "kind", width=84))
    return (*names, *_NUMBERS, *_more(found))


def block_columns(found: Comparison) -> tuple[Column, ...]:
    """Of what a block does in a launch."""
    names = (Column("launch", "launch"), Column("in", "a block in"), Column("for", "for"))
    return (*names, *_NUMBERS, *_more(found))


def _more(found: Comparison) -> tuple[Column, ...]:
    return (_MOST,) if len(found.ranks) > 1 else ()


def with_numbers(rows: Sequence[Mapping[str, Any]], *names: str) -> Rows:
    """Rows of differences as the tables show them, with some of their own columns in front."""
    return [{**{name: row[name] for name in names}, **_numbers(row)} for row in rows]


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    most = row.get("most_rank")
    return {
        "a_us": row["a_ns"] / _US,
        "b_us": row["b_ns"] / _US,
        "off_us": row["difference_ns"] / _US,
        "clock_ns": row["uncertainty_ns"],
        "share": None if row["share"] is None else 100 * row["share"],
        "low_us": row["low_ns"] / _US,
        "high_us": row["high_ns"] / _US,
        "step_us": row["per_step_ns"] / _US,
        "verdict": row["verdict"],
        "most_on": NOTHING if most is None else f"rank {most}: {row['most_difference_ns'] / _US:+,.2f}",
    }


def time_rows(found: Comparison) -> Rows:
    """Steps, launches and gaps; what blocks do in a launch stands elsewhere."""
    return [row for row in found.times.to_pylist() if row["what"] not in (BUSY, IDLE)]


def skew_rows(found: Comparison) -> Rows:
    """How long ranks are through with each stop before the last one, and who was last."""
    rows = found.skew.to_pylist()
    words = [{f"last_{run}": last_words(row, run) for run in "ab"} for row in rows]
    return [
        {**numbers, **last} for numbers, last in zip(with_numbers(rows, "launch", "stop"), words, strict=True)
    ]


def told_first(rows: Rows) -> Rows:
    """Rows that tell a difference first, by its size; then the others, by their time."""
    told = sorted((row for row in rows if is_told(row)), key=lambda row: -abs(row["difference_ns"]))
    others = (row for row in rows if not is_told(row))
    return [*told, *sorted(others, key=lambda row: -max(row["a_ns"], row["b_ns"]))]


def parts_of_blocks(found: Comparison) -> Rows:
    """Busy time by op and idle time by cause, the whole of each kind of launch first, then told ones."""
    rows, parts = block_rows(found), []
    for kind in dict.fromkeys(row["launch"] for row in rows):
        of_kind = [row for row in rows if row["launch"] == kind]
        parts += [row for row in of_kind if row["whole"]]
        parts += told_first([row for row in of_kind if not row["whole"]])
    return parts


def idle_parts(found: Comparison) -> Rows:
    """Idle time by cause, told differences first, with the words of the blocks' table."""
    return told_first([row for row in block_rows(found) if "cause" in row])
