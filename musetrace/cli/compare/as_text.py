"""A comparison as a page of text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.difference import is_told
from musetrace.analysis.comparing.idle_series import BUSY, IDLE
from musetrace.analysis.comparing.launch_series import LAUNCH, STEP
from musetrace.cli.compare.blocks import block_rows
from musetrace.cli.compare.limit import Limit
from musetrace.cli.compare.sentences import (
    SKEW_SENTENCE,
    count_sentence,
    last_words,
    limit_sentence,
    observed_sentences,
    outputs_sentence,
    rule_sentence,
    saved_sentence,
    share_text,
)
from musetrace.cli.conditions import labelled, loss_summary
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.cli.time_table import longest
from musetrace.store import Run
from musetrace.wording.numbers import NOTHING, bounded_us, count, decimals_for, percent, us, whole_ns

_WIDE = 110  # from this width on, the interval, the clocks and the step are shown
_OTHER_OPS = 8  # rows that tell nothing, beside those that do
_OTHER_PARTS = 4
_FEW = 2  # more rows than these take no more lines than to say that they are not shown
# Of a launch: what is told of less than this takes no line of its own.
_LEAST_SHARE = 0.001
Rows = list[dict[str, Any]]


def page(
    a: Run, b: Run, found: Comparison, limit: Limit | None, screen: Screen, *, every: bool = False
) -> list[str]:
    """The comparison as lines: what is unlike, step and launches, ops, what blocks do, ops of one run.

    Of rows that tell no difference only the first are shown, unless ``every`` one is asked for.
    """
    lines = wrap("musetrace compare: B minus A, medians over steps", screen.width)
    for label, run in (("A", a), ("B", b)):
        text = f"{screen.shown(run.path)} is {run.verdict}; losses: {loss_summary(run)}"
        lines += labelled(label, text, screen)
    scope = f"ranks {', '.join(map(str, found.ranks))}"
    if found.layer_kind is not None:
        scope += f", launches of kind {screen.shown(found.layer_kind)}"
    lines += labelled("of", scope, screen, most_lines=2)
    lines += labelled("outputs", outputs_sentence(found.outputs), screen)
    for sentence in observed_sentences(found):
        lines += labelled("observed", sentence, screen)
    for warning in found.warnings:
        lines += labelled("warning", screen.shown(warning), screen)
    lines += _time_lines(found, screen) + _op_lines(found, screen, every) + _block_lines(found, screen, every)
    lines += (
        _saved_lines(found, screen) + _skew_lines(found, screen) + _only_lines(found.only.to_pylist(), screen)
    )
    if limit is not None:
        lines += ["", *wrap(screen.shown(limit_sentence(found, limit)), screen.width, indent="  ")]
    return [*lines, "", *wrap(rule_sentence(found), screen.width, indent="  ")]


def _time_lines(found: Comparison, screen: Screen) -> list[str]:
    rows = [row for row in found.times.to_pylist() if row["what"] not in (BUSY, IDLE)]
    launches = [row for row in rows if row["what"] != STEP]
    names = _names(rows, {"what": "time", "of": "of"}, screen)
    return ["", *difference_lines(rows, names, screen, decimals=_decimals(launches or rows))]


def _op_lines(found: Comparison, screen: Screen, every: bool) -> list[str]:
    rows, more = _shown(found.ops.to_pylist(), _OTHER_OPS, every)
    if not rows:
        return []
    names = _names(rows, {"launch": "launch", "op": "op", "kind": "kind"}, screen)
    lines = ["", *wrap(count_sentence(found), screen.width, indent="  ")]
    table = difference_lines(rows, names, screen, most_on=len(found.ranks) > 1)
    return [*lines, *table, *_more_lines(more, "ops", screen)]


def _block_lines(found: Comparison, screen: Screen, every: bool) -> list[str]:
    """For each kind of launch what a block does in it: all, what differs, then what takes most time."""
    lines: list[str] = []
    times = found.times.to_pylist()
    parts = block_rows(found)
    for launch, length_ns in {row["of"]: row["a_ns"] for row in times if row["what"] == LAUNCH}.items():
        least_ns = 0 if every else _LEAST_SHARE * length_ns
        whole = [row for row in parts if row["launch"] == launch and row["whole"]]
        of_launch = [row for row in parts if row["launch"] == launch and not row["whole"]]
        rows, more = _shown(sorted(of_launch, key=partial(_order, least_ns)), _OTHER_PARTS, every, least_ns)
        rows = whole + rows
        columns = [
            Column("a block in", [screen.shown(row["in"]) for row in rows], left=True),
            Column("for", [screen.shown(row["for"]) for row in rows], left=True, widest=18),
        ]
        title = f"{screen.shown(launch)}: busy time by op and idle time by cause, means per block and launch"
        lines += ["", *wrap(title, screen.width, indent="  ")]
        lines += difference_lines(rows, columns, screen, most_on=len(found.ranks) > 1)
        small = f", or one below {percent(_LEAST_SHARE)} of the launch" if least_ns else ""
        lines += _more_lines(more, "rows", screen, small)
    return lines


def _order(least_ns: float, row: dict[str, Any]) -> tuple[bool, int]:
    told = _is_shown(row, least_ns)
    return not told, -(abs(row["difference_ns"]) if told else max(row["a_ns"], row["b_ns"]))


def _is_shown(row: dict[str, Any], least_ns: float) -> bool:
    return is_told(row) and abs(row["difference_ns"]) >= least_ns


def _shown(rows: Rows, others: int, every: bool, least_ns: float = 0) -> tuple[Rows, int]:
    """All rows that tell a difference of so much, the first others, and how many rows that leaves out."""
    told = sum(_is_shown(row, least_ns) for row in rows)
    more = len(rows) - told - others
    return (rows, 0) if every or more <= _FEW else (rows[: told + others], more)


def _more_lines(more: int, what: str, screen: Screen, small: str = "") -> list[str]:
    text = f"... {more} more {what} of which no difference is told{small}: --all shows them"
    return wrap(text, screen.width, indent="  ") if more else []


def _saved_lines(found: Comparison, screen: Screen) -> list[str]:
    sentences = [screen.shown(saved_sentence(row)) for row in found.saved.to_pylist()]
    lines = [line for text in sentences for line in wrap(text, screen.width, indent="  ")]
    return ["", *lines] if lines else []


def _skew_lines(found: Comparison, screen: Screen) -> list[str]:
    """How far apart ranks arrive at stops, and who is last: of several ranks that can be compared."""
    rows = found.skew.to_pylist()
    if not rows:
        return []
    names = _names(rows, {"launch": "launch", "stop": "stop"}, screen)
    more = [Column(f"last in {run.upper()}", [last_words(row, run) for row in rows]) for run in "ab"]
    lines = ["", *wrap(SKEW_SENTENCE, screen.width, indent="  ")]
    return [*lines, *difference_lines(rows, names, screen, most_on=True, more=more)]


def _names(rows: Rows, titles: dict[str, str], screen: Screen) -> list[Column]:
    return [
        Column(title, [screen.shown(row[name]) for row in rows], left=True, widest=16)
        for name, title in titles.items()
    ]


def _decimals(rows: Rows) -> int:
    return decimals_for(max(longest(rows, "a_ns"), longest(rows, "b_ns")))


def difference_lines(
    rows: Rows,
    names: Sequence[Column],
    screen: Screen,
    *,
    most_on: bool = False,
    decimals: int | None = None,
    more: Sequence[Column] = (),
) -> list[str]:
    """A table of differences behind the columns that name a row; ``most_on``: with the rank of the most.

    Before the verdict there may be ``more`` columns.
    """
    if not rows:
        return []
    decimals = _decimals(rows) if decimals is None else decimals
    columns = [
        *names,
        Column("A", _times(rows, "a_ns", decimals), over="us", spans=3),
        Column("B", _times(rows, "b_ns", decimals)),
        Column("B - A", _bounded(rows, "difference_ns", decimals)),
        Column("%", [share_text(row) for row in rows]),
    ]
    if screen.width >= _WIDE:
        columns += [
            Column("from", _times(rows, "low_ns", decimals), over="95 %, us", spans=2),
            Column("to", _times(rows, "high_ns", decimals)),
            Column(f"{screen.plus_minus} ns", [whole_ns(row["uncertainty_ns"]) for row in rows]),
            Column("x", [count(row["launches_a"]) for row in rows], over="a step", spans=2),
            Column("us", _times(rows, "per_step_ns", decimals)),
        ]
        if most_on:
            columns.append(Column("most on", [_most_on(row, decimals) for row in rows]))
    columns += [*more, Column("verdict", [row["verdict"] for row in rows], left=True)]
    return table_lines(columns, screen.width)


def _times(rows: Rows, name: str, decimals: int) -> list[str]:
    return [us(row[name], decimals) for row in rows]


def _bounded(rows: Rows, name: str, decimals: int) -> list[str]:
    return [bounded_us(row[name], row["uncertainty_ns"], decimals) for row in rows]


def _most_on(row: dict[str, Any], decimals: int) -> str:
    if row.get("most_rank") is None:
        return NOTHING
    return f"r{row['most_rank']} {us(row['most_difference_ns'], decimals)}"


def _only_lines(rows: Rows, screen: Screen) -> list[str]:
    if not rows:
        return []
    decimals = decimals_for(longest(rows, "time_ns"))
    columns = [
        Column("only in", [row["run"].upper() for row in rows], left=True),
        *_names(rows, {"launch": "launch", "op": "op", "kind": "kind"}, screen),
        Column("us", [bounded_us(row["time_ns"], row["uncertainty_ns"], decimals) for row in rows]),
        Column("a step", [count(row["launches"]) for row in rows]),
    ]
    return ["", *table_lines(columns, screen.width)]
