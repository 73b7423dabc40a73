"""A comparison as Markdown, for the summary of a CI run or a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.difference import is_told
from musetrace.analysis.comparing.idle_series import BUSY, IDLE
from musetrace.cli.compare.blocks import block_rows
from musetrace.cli.compare.limit import Limit
from musetrace.cli.compare.sentences import (
    SKEW_SENTENCE,
    count_sentence,
    last_words,
    limit_sentence,
    observed_sentences,
    only_sentence,
    outputs_sentence,
    rule_sentence,
    saved_sentence,
    share_text,
)
from musetrace.cli.markdown import plain_text, table_line
from musetrace.wording.numbers import NOTHING, bounded_us, us

_DECIMALS = 2
_NUMBERS = ("A, us", "B, us", "B - A, us", "%", "95 %, us", "us a step", "verdict")


def markdown(a: str, b: str, found: Comparison, limit: Limit | None) -> str:
    """What differs in conditions, step and launches, ops and idle time that differ, what became of it."""
    times, ops = found.times.to_pylist(), found.ops.to_pylist()
    blocks = [f"## {plain_text(f'musetrace compare: {b} against {a}')}"]
    if limit is not None:
        blocks.append(f"**{plain_text(limit_sentence(found, limit))}**")
    blocks.append(_listed([f"outputs {outputs_sentence(found.outputs)}", *observed_sentences(found)]))
    blocks.append(_listed(found.warnings))
    of_launches = [row for row in times if row["what"] not in (BUSY, IDLE)]
    blocks.append(_table(of_launches, {name: name for name in ("what", "of")}))
    blocks.append(plain_text(count_sentence(found)))
    blocks.append(_table(list(filter(is_told, ops)), {name: name for name in ("launch", "op", "kind")}))
    parts = [{**row, "most": _most_words(row)} for row in block_rows(found) if row["whole"] or is_told(row)]
    several = {"most": "most on"} if len(found.ranks) > 1 else {}
    blocks.append("busy time by op and idle time by cause, means per block and launch" if parts else "")
    blocks.append(_table(parts, {"launch": "launch", "in": "a block in", "for": "for", **several}))
    blocks.append(_listed([saved_sentence(row) for row in found.saved.to_pylist()]))
    skew = [
        {**row, **{f"last_{run}": last_words(row, run) for run in "ab"}} for row in found.skew.to_pylist()
    ]
    blocks.append(plain_text(SKEW_SENTENCE) if skew else "")
    titles = {"launch": "launch", "stop": "stop", "last_a": "last in A", "last_b": "last in B"}
    blocks.append(_table(skew, titles))
    blocks.append(_listed([only_sentence(row) for row in found.only.to_pylist()]))
    blocks.append(plain_text(rule_sentence(found)))
    return "\n\n".join(filter(None, blocks)) + "\n"


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {plain_text(sentence)}" for sentence in sentences)


def _most_words(row: dict[str, Any]) -> str:
    if row.get("most_rank") is None:
        return NOTHING
    return f"rank {row['most_rank']}: {us(row['most_difference_ns'], _DECIMALS)} us"


def _table(rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> str:
    """Rows with the columns ``names`` (by field, their titles) in front; nothing for no rows."""
    if not rows:
        return ""
    lines = [
        table_line((*names.values(), *_NUMBERS)),
        table_line(["---"] * len(names) + ["---:"] * (len(_NUMBERS) - 1) + ["---"]),
    ]
    return "\n".join(
        [*lines, *(table_line([plain_text(row[name]) for name in names] + _cells(row)) for row in rows)]
    )


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
