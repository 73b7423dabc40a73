"""A report as one JSON document: every answer's rows, times in ns."""

from __future__ import annotations

from typing import Any

from musetrace import analysis
from musetrace.cli.conditions import totals
from musetrace.cli.observed_json import observed_json
from musetrace.cli.report.answers import Answer, Answers
from musetrace.cli.report.questions import QUESTIONS

_CONDITIONS = ("recording_id", "device", "model", "build", "stamps", "clock", "recorded_at")


def json_document(answers: Answers) -> dict[str, Any]:
    """Conditions, scope and clocks, then the answers in the order of the page, losses last."""
    run, scope = answers.run, answers.scope
    blocks = answers.table("blocks")
    found = {question.key: answers[question.key] for question in QUESTIONS}
    left_out = {question.key for question in QUESTIONS if question.only_if_any and not found[question.key]}
    return {
        "run": str(run.path),
        "verdict": run.verdict,
        "conditions": {
            **{name: run.manifest.get(name) for name in _CONDITIONS},
            "tick_ns": analysis.tick_ns(run),
            "ranks": list(run.ranks),
            "blocks": run.blocks,
            **totals(run),
        },
        "scope": {"kind": scope.kind, "rank": scope.rank, "step": scope.step},
        "thresholds": answers.thresholds.to_json(),
        "ignored_spans": analysis.ignored_spans(blocks),
        "below_tick_spans": analysis.below_tick_spans(blocks),
        "observed": observed_json({key: answer for key, answer in found.items() if key not in left_out}),
        "clocks": analysis.clocks(run).to_pylist(),
        "alignment_error_ns": analysis.alignment_error_ns(run),
        **{key: _rows(answer) for key, answer in found.items() if key not in left_out},
        "losses": run.losses,
        "notes": list(run.notes),
    }


def _rows(answer: Answer) -> Any:
    if isinstance(answer, dict):
        return {kind: table.to_pylist() for kind, table in answer.items()}
    return answer.to_pylist()
