"""Under what conditions a run was recorded, and what is missing from it: the first and last thing to read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.compute as pc

from musetrace.cli.clock_lines import clock_text
from musetrace.cli.output import Screen
from musetrace.cli.text import fit, labelled_lines, wrap
from musetrace.job_table import wait_sentence
from musetrace.store import Run
from musetrace.store.losses import LOSS_KINDS
from musetrace.wording.numbers import count

_LONGEST_VALUE = 60
_MISSING_SHOWN = 8
_REPORTS_SHOWN = 4


def labelled(label: str, text: str, screen: Screen, most_lines: int = 8) -> list[str]:
    """``label`` and a text beside it, in at most so many lines."""
    return labelled_lines(label, text, screen.width, most_lines)


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
    """Device, model and build, each in at most so many lines; stamps, clock, and how much there is."""
    lines = [line for entry in made_of(run, screen) for line in labelled(*entry, screen, most_lines)]
    return lines + [line for entry in stamped_by(run, screen) for line in labelled(*entry, screen)]


def made_of(run: Run, screen: Screen) -> list[tuple[str, str]]:
    """Device, model and build: labels with a text each."""
    # A kernel of somebody's has no model.
    labels = ["device", *(["model"] if run.manifest.get("model") != {} else []), "build"]
    return [(label, described(run.manifest.get(label), screen)) for label in labels]


def stamped_by(run: Run, screen: Screen) -> list[tuple[str, str]]:
    """Stamps, clock, and how much there is: labels with a text each."""
    clocks = run.manifest.get("clocks")
    return [
        ("stamps", _value(run.manifest.get("stamps") or "not known", screen)),
        ("clock", clock_text(run.manifest.get("clock"), screen)),
        *([("clocks", described(clocks, screen))] if clocks else []),
        ("run", extent_text(run)),
        *([("decoded", decoded)] if (decoded := decoded_text(run)) else []),
    ]


def decoded_text(run: Run) -> str:
    """Tokens that the steps decoded, a step and a second; empty for a run that decodes none.

    All ranks work on the same tokens: those of the first one are counted. A second is one within steps, by
    the host's clock.
    """
    if not run.ranks:
        return ""
    steps = run.steps(run.ranks[0])
    tokens = int(pc.sum(steps["tokens"]).as_py() or 0)
    if not tokens:
        return ""
    lengths = [
        row["host_end_ns"] - row["host_begin_ns"]
        for row in steps.select(["host_begin_ns", "host_end_ns"]).to_pylist()
        if row["host_end_ns"] > row["host_begin_ns"] > 0
    ]
    whole = len(lengths) == steps.num_rows
    speed = f", {tokens / sum(lengths) * 1e9:,.1f} a second of steps by the host's clock" if whole else ""
    return f"{_many(tokens, 'token')}, {tokens / steps.num_rows:.2f} a step{speed}"


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


def _reason_texts(run: Run, screen: Screen) -> list[tuple[str, str | None]]:
    """How many launches were lost for which reason."""
    return [
        (f"{'':<16}{count(launches):>9}  {screen.shown(reason.replace('_', ' '))}", None)
        for reason, launches in run.loss_reasons.items()
    ]


def loss_lines(run: Run, screen: Screen, *, all_kinds: bool) -> list[str]:
    """The table of losses with meaning and remedy for what there is, then wait reports and notes."""
    texts = loss_texts(run, screen, all_kinds=all_kinds)
    lines: list[str] = []
    for text, indent in texts:
        lines += [text] if indent is None else wrap(text, screen.width, indent=indent)
    return [fit(line, screen.width) for line in lines]


def loss_texts(run: Run, screen: Screen, *, all_kinds: bool) -> list[tuple[str, str | None]]:
    """What :func:`loss_lines` says: texts, and what stands before their second lines; None: none."""
    losses, hanging = run.losses, " " * 27
    texts: list[tuple[str, str | None]] = []
    for kind in LOSS_KINDS:
        number = losses[kind.name]
        if number:
            texts.append((f"{kind.name:<16}{count(number):>9}  {kind.meaning}; {kind.remedy}", hanging))
            texts += _reason_texts(run, screen) if kind.name == "lost_launches" else []
        elif all_kinds:
            texts.append((f"{kind.name:<16}{0:>9}", ""))
    missing = losses["missing_ranks"]
    if missing or all_kinds:
        names = [str(rank) for rank in missing[:_MISSING_SHOWN]] + ["..."] * (len(missing) > _MISSING_SHOWN)
        texts.append((f"{'missing_ranks':<16}{count(len(missing)):>9}  {', '.join(names)}", hanging))
    of_kernels, waits = _told_apart(run.manifest.get("reports", []))
    said = [f"wait report: {_wait_words(run, report, screen)}" for report in waits[:_REPORTS_SHOWN]]
    said += [f"note: {screen.shown(report['text'])}" for report in of_kernels]
    said += [f"note: {screen.shown(note)}" for note in run.notes]
    return [*texts, *((text, " " * 6) for text in said)] or [("nothing was lost", "")]
