"""Under what conditions a run was recorded, and what is missing from it: the first and last thing to read."""

from __future__ import annotations

import json
from typing import Any

from musetrace.cli.clock_lines import clock_text
from musetrace.cli.numbers import count
from musetrace.cli.output import Screen
from musetrace.cli.text import fit, wrap
from musetrace.job_table import wait_sentence
from musetrace.store import Run
from musetrace.store.losses import LOSS_KINDS

_LABEL = 9
_LONGEST_VALUE = 60
_MISSING_SHOWN = 8
_REPORTS_SHOWN = 4


def labelled(label: str, text: str, screen: Screen, most_lines: int = 8) -> list[str]:
    """``label`` and a text beside it, in at most so many lines."""
    lines = wrap(text, screen.width - _LABEL)
    if len(lines) > most_lines:
        lines = [*lines[: most_lines - 1], f"{fit(lines[most_lines - 1], screen.width - _LABEL - 4)} ..."]
    return [f"{label if index == 0 else '':<{_LABEL}}{line}" for index, line in enumerate(lines)]


def described(section: Any, screen: Screen) -> str:
    """A section of the manifest in words: its name, then ``key value`` for the rest."""
    if not isinstance(section, dict):
        return "not known" if section is None else _value(section, screen)
    words = [_value(section["name"], screen)] if section.get("name") else []
    words += [
        f"{screen.shown(key)} {_value(value, screen)}"
        for key, value in section.items()
        if key != "name" and value not in (None, "", [], {})
    ]
    return ", ".join(words) or "not known"


def _value(value: Any, screen: Screen) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return fit(screen.shown(text), _LONGEST_VALUE)


def condition_lines(run: Run, screen: Screen, most_lines: int) -> list[str]:
    """Device, model, build, stamps, clock, and how much there is; each in at most so many lines."""
    manifest = run.manifest
    lines: list[str] = []
    for label in ("device", "model", "build"):
        if label == "model" and manifest.get(label) == {}:
            continue  # a kernel of somebody's has no model
        lines += labelled(label, described(manifest.get(label), screen), screen, most_lines)
    lines += labelled("stamps", _value(manifest.get("stamps") or "not known", screen), screen)
    lines += labelled("clock", clock_text(manifest.get("clock"), screen), screen)
    if manifest.get("clocks"):
        lines += labelled("clocks", described(manifest["clocks"], screen), screen)
    return lines + labelled("run", extent_text(run), screen)


def extent_text(run: Run) -> str:
    """Ranks, blocks, steps, launches and spans."""
    of = totals(run)
    found = len(run.ranks)
    ranks = _many(found, "rank") if found == of["world"] else f"{found} of {of['world']} ranks"
    return ", ".join(
        [
            f"{ranks} x {_many(run.blocks, 'block')}",
            _many(max((int(entry["steps"]) for entry in run.manifest["ranks"]), default=0), "step"),
            _many(of["launches"], "launch", "launches"),
            _many(of["spans"], "span"),
        ]
    )


def totals(run: Run) -> dict[str, int]:
    """World size, and launches, spans and journal bytes over all ranks."""
    sums = {
        name: sum(int(entry[name]) for entry in run.manifest["ranks"])
        for name in ("launches", "spans", "bytes")
    }
    return {"world": int(run.manifest["world"]), **sums}


def _many(number: int, one: str, several: str = "") -> str:
    return f"{count(number)} {one if number == 1 else several or one + 's'}"


def loss_summary(run: Run) -> str:
    """All losses in a few words."""
    losses = run.losses
    words = [f"{kind.name} {count(losses[kind.name])}" for kind in LOSS_KINDS if losses[kind.name]]
    if losses["missing_ranks"]:
        words.append(f"missing_ranks {len(losses['missing_ranks'])}")
    return ", ".join(words) or "none"


def _wait_words(run: Run, report: dict[str, Any], screen: Screen) -> str:
    """A wait report as a sentence; one of a shape that this version does not know, field by field."""
    try:
        return screen.shown(wait_sentence(report, run.job_table))
    except (KeyError, TypeError, ValueError):
        return described(report, screen)


def _told_apart(reports: list[Any]) -> tuple[list[Any], list[Any]]:
    """What the recorder said of kernels, and the wait reports."""
    of_kernels = [report for report in reports if "kernel" in report and isinstance(report.get("text"), str)]
    return of_kernels, [report for report in reports if report not in of_kernels]


def _reason_lines(run: Run, screen: Screen) -> list[str]:
    """How many launches were lost for which reason."""
    return [
        f"{'':<16}{count(launches):>9}  {screen.shown(reason.replace('_', ' '))}"
        for reason, launches in run.loss_reasons.items()
    ]


def loss_lines(run: Run, screen: Screen, *, all_kinds: bool) -> list[str]:
    """The table of losses with meaning and remedy for what there is, then wait reports and notes."""
    losses = run.losses
    lines: list[str] = []
    for kind in LOSS_KINDS:
        number = losses[kind.name]
        if number:
            text = f"{kind.name:<16}{count(number):>9}  {kind.meaning}; {kind.remedy}"
            lines += wrap(text, screen.width, indent=" " * 27)
            lines += _reason_lines(run, screen) if kind.name == "lost_launches" else []
        elif all_kinds:
            lines.append(f"{kind.name:<16}{0:>9}")
    missing = losses["missing_ranks"]
    if missing or all_kinds:
        names = [str(rank) for rank in missing[:_MISSING_SHOWN]] + ["..."] * (len(missing) > _MISSING_SHOWN)
        text = f"{'missing_ranks':<16}{count(len(missing)):>9}  {', '.join(names)}"
        lines += wrap(text, screen.width, indent=" " * 27)
    of_kernels, waits = _told_apart(run.manifest.get("reports", []))
    for report in waits[:_REPORTS_SHOWN]:
        lines += wrap(f"wait report: {_wait_words(run, report, screen)}", screen.width, indent="      ")
    for report in of_kernels:
        lines += wrap(f"note: {screen.shown(report['text'])}", screen.width, indent="      ")
    for note in run.notes:
        lines += wrap(f"note: {screen.shown(note)}", screen.width, indent="      ")
    return [fit(line, screen.width) for line in lines] or ["nothing was lost"]
