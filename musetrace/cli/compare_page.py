"""A comparison as a page of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musetrace.analysis import Comparison
from musetrace.cli.compare_limit import Limit
from musetrace.cli.compare_sentences import (
    count_sentence,
    limit_sentence,
    rule_sentence,
    saved_sentence,
    share_text,
)
from musetrace.cli.conditions import labelled, loss_summary
from musetrace.cli.numbers import bounded_us, count, decimals_for, us, whole_ns
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.cli.time_table import longest
from musetrace.store import Run

_WIDE = 110  # from this width on, the interval, the clocks and the step are shown
Rows = list[dict[str, Any]]


def page(a: Run, b: Run, found: Comparison, limit: Limit | None, screen: Screen) -> list[str]:
    """The comparison as lines: what is unlike, step and launches, ops, waiting, ops of one run."""
    lines = wrap("musetrace compare: B minus A, medians over steps", screen.width)
    for label, run in (("A", a), ("B", b)):
        text = f"{screen.shown(run.path)} is {run.verdict}; losses: {loss_summary(run)}"
        lines += labelled(label, text, screen)
    scope = f"ranks {', '.join(map(str, found.ranks))}"
    if found.layer_kind is not None:
        scope += f", launches of kind {screen.shown(found.layer_kind)}"
    lines += labelled("of", scope, screen, most_lines=2)
    for warning in found.warnings:
        lines += labelled("warning", screen.shown(warning), screen)
    lines += ["", *difference_lines(found.times.to_pylist(), {"what": "time", "of": "of"}, screen)]
    lines += ["", *wrap(count_sentence(found), screen.width, indent="  ")]
    lines += difference_lines(found.ops.to_pylist(), {"launch": "launch", "op": "op", "kind": "kind"}, screen)
    lines += _waiting_lines(found, screen) + _only_lines(found.only.to_pylist(), screen)
    if limit is not None:
        lines += ["", *wrap(screen.shown(limit_sentence(found, limit)), screen.width, indent="  ")]
    return [*lines, "", *wrap(rule_sentence(found), screen.width, indent="  ")]


def _names(rows: Rows, titles: dict[str, str], screen: Screen) -> list[Column]:
    return [
        Column(title, [screen.shown(row[name]) for row in rows], left=True, widest=16)
        for name, title in titles.items()
    ]


def difference_lines(rows: Rows, titles: dict[str, str], screen: Screen) -> list[str]:
    """A table of differences; ``titles`` are those of the columns that name a row."""
    decimals = decimals_for(max(longest(rows, "a_ns"), longest(rows, "b_ns")))
    columns = [*_names(rows, titles, screen), *_both(rows, "", decimals, "us")]
    columns.append(Column("%", [share_text(row) for row in rows]))
    if screen.width >= _WIDE:
        columns += [
            Column("from", [us(row["low_ns"], decimals) for row in rows], over="95 %, us", spans=2),
            Column("to", [us(row["high_ns"], decimals) for row in rows]),
            Column(f"{screen.plus_minus} ns", [whole_ns(row["uncertainty_ns"]) for row in rows]),
            Column("x", [count(row["launches_a"]) for row in rows], over="a step", spans=2),
            Column("us", [us(row["per_step_ns"], decimals) for row in rows]),
        ]
    columns.append(Column("verdict", [row["verdict"] for row in rows], left=True))
    return table_lines(columns, screen.width) if rows else []


def _both(rows: Rows, prefix: str, decimals: int, over: str) -> list[Column]:
    return [
        Column("A", [us(row[f"{prefix}a_ns"], decimals) for row in rows], over=over, spans=3),
        Column("B", [us(row[f"{prefix}b_ns"], decimals) for row in rows]),
        Column("B - A", _differences(rows, prefix, decimals)),
    ]


def _differences(rows: Rows, prefix: str, decimals: int) -> list[str]:
    return [
        bounded_us(row[f"{prefix}difference_ns"], row[f"{prefix}uncertainty_ns"], decimals) for row in rows
    ]


def _waiting_lines(found: Comparison, screen: Screen) -> list[str]:
    rows = found.waiting.to_pylist()
    if not rows:
        return []
    decimals = decimals_for(max(longest(rows, f"{of}_{run}_ns") for of in ("busy", "wait") for run in "ab"))
    columns = [
        *_names(rows, {"launch": "launch", "op": "op"}, screen),
        *_both(rows, "busy_", decimals, "busy, us"),
        *_both(rows, "wait_", decimals, "waiting, us"),
    ]
    title = "busy and waiting time of an op, per block and launch"
    sentences: Sequence[str] = [screen.shown(saved_sentence(row)) for row in found.saved.to_pylist()]
    wrapped = [line for text in sentences for line in wrap(text, screen.width, indent="  ")]
    return ["", *wrap(title, screen.width), *table_lines(columns, screen.width), *wrapped]


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
