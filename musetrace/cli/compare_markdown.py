"""A comparison as Markdown, for the summary of a CI run or a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.difference import is_told
from musetrace.cli.compare_limit import Limit
from musetrace.cli.compare_sentences import (
    count_sentence,
    limit_sentence,
    rule_sentence,
    saved_sentence,
    share_text,
)
from musetrace.cli.numbers import bounded_us, us
from musetrace.cli.text import shown

_DECIMALS = 2
_MARKS = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_NUMBERS = ("A, us", "B, us", "B - A, us", "%", "95 %, us", "us a step", "verdict")


def markdown(a: str, b: str, found: Comparison, limit: Limit | None) -> str:
    """What differs in conditions, step and launches, ops that differ, what became of saved time."""
    times, ops = found.times.to_pylist(), found.ops.to_pylist()
    told = [row for row in ops if is_told(row)]
    blocks = [f"## {plain_text(f'musetrace compare: {b} against {a}')}"]
    if limit is not None:
        blocks.append(f"**{plain_text(limit_sentence(found, limit))}**")
    blocks.append("\n".join(f"- {plain_text(warning)}" for warning in found.warnings))
    blocks.append(_table(times, ("what", "of")))
    blocks.append(plain_text(count_sentence(found)))
    blocks.append(_table(told, ("launch", "op", "kind")) if told else "")
    blocks.append("\n".join(f"- {plain_text(saved_sentence(row))}" for row in found.saved.to_pylist()))
    blocks.append("\n".join(f"- {plain_text(_only_sentence(row))}" for row in found.only.to_pylist()))
    blocks.append(plain_text(rule_sentence(found)))
    return "\n\n".join(filter(None, blocks)) + "\n"


def plain_text(text: str) -> str:
    """``text`` with all that Markdown, or HTML in it, would take for a mark escaped."""
    return _MARKS.sub(r"\\\1", shown(text))


def _only_sentence(row: dict[str, Any]) -> str:
    name = f"{row['launch']} {row['op']} {row['kind']}"
    return f"only in {row['run'].upper()}: {name}, {us(row['time_ns'], _DECIMALS)} us"


def _table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    lines = [
        _line((*names, *_NUMBERS)),
        _line(["---"] * len(names) + ["---:"] * (len(_NUMBERS) - 1) + ["---"]),
    ]
    return "\n".join(
        [*lines, *(_line([plain_text(row[name]) for name in names] + _cells(row)) for row in rows)]
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        us(row["a_ns"], _DECIMALS),
        us(row["b_ns"], _DECIMALS),
        plain_text(bounded_us(row["difference_ns"], row["uncertainty_ns"], _DECIMALS)),
        share_text(row),
        f"{us(row['low_ns'], _DECIMALS)} to {us(row['high_ns'], _DECIMALS)}",
        us(row["per_step_ns"], _DECIMALS),
        row["verdict"],
    ]
