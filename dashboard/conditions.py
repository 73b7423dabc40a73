"""Under what conditions a run was recorded and what it lacks, as the header of every page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from musetrace.analysis.certainty.clock_quality import tick_ns_of
from musetrace.analysis.spans.run_like import RunLike
from musetrace.store.losses import LOSS_KINDS

_LONGEST_VALUE = 48
_LONGEST_DETAIL = 600
_LONGEST_NAME = 24


class RecordedRun(RunLike, Protocol):
    """A run with what the header needs besides. ``musetrace.store.Run`` is one."""

    @property
    def verdict(self) -> str:
        """``complete``, ``incomplete`` or ``damaged``."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong."""


@dataclass(frozen=True)
class Condition:
    """One entry of the header.

    ``tone`` is ``plain``, ``good``, ``poor`` or ``bad``; ``detail`` is shown on hover.
    """

    label: str
    value: str
    detail: str = ""
    tone: str = "plain"


def conditions(run: RecordedRun) -> list[Condition]:
    """Device, model, extent, stamps, clock, verdict and losses."""
    manifest = run.manifest
    # A kernel of somebody's has no model.
    model = [] if manifest.get("model") == {} else [_section("model", manifest.get("model"))]
    return [
        _section("device", manifest.get("device")),
        *model,
        Condition("extent", _extent(run)),
        _stamps(manifest),
        _clock(manifest.get("clock")),
        _verdict(run),
        _losses(run),
    ]


def recorder_notes(manifest: Mapping[str, Any]) -> list[str]:
    """What the recorder noted of the program, other than wait reports."""
    reports = manifest.get("reports")
    found = [one for one in reports if isinstance(one, Mapping)] if isinstance(reports, list) else []
    return [one["text"] for one in found if "kernel" in one and isinstance(one.get("text"), str)]


def _stamps(manifest: Mapping[str, Any]) -> Condition:
    notes = "\n".join(recorder_notes(manifest))[:_LONGEST_DETAIL]
    return Condition("stamps", _short(manifest.get("stamps")), notes)


def _section(label: str, section: object) -> Condition:
    if not isinstance(section, Mapping):
        return Condition(label, _short(section))
    names = [section[key] for key in ("name", "kind") if section.get(key)]
    detail = ", ".join(f"{key} {_short(value)}" for key, value in section.items())
    return Condition(label, _short(names[0] if names else None), detail[:_LONGEST_DETAIL])


def _extent(run: RunLike) -> str:
    ranks, steps = len(run.ranks), max((len(run.step_ids(rank)) for rank in run.ranks), default=0)
    return (
        f"{_many(ranks, 'rank')} \N{MULTIPLICATION SIGN} {_many(run.blocks, 'block')}, {_many(steps, 'step')}"
    )


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _clock(clock: object) -> Condition:
    of = clock if isinstance(clock, Mapping) else {}
    name, tick, sign = _short(of.get("name")), tick_ns_of(clock), "\N{PLUS-MINUS SIGN}"
    if tick is None:
        says = f"The run says {_short(of['tick_ns'])}. " if of.get("tick_ns") is not None else ""
        detail = f"{says}No uncertainty can be given, and nothing is ranked."
        return Condition("clock", f"{name[:_LONGEST_NAME]}, tick unknown", detail, "poor")
    detail = f"A time or a length is good to {sign} {tick:,} ns, a mean to what stands behind it."
    return Condition("clock", f"{name[:_LONGEST_NAME]}, tick {tick:,} ns", detail)


def _verdict(run: RecordedRun) -> Condition:
    tone = {"complete": "good", "incomplete": "poor"}.get(run.verdict, "bad")
    return Condition("verdict", run.verdict, "\n".join(run.notes)[:_LONGEST_DETAIL], tone)


def _losses(run: RunLike) -> Condition:
    losses = run.losses
    found = [kind for kind in LOSS_KINDS if losses.get(kind.name)]
    words = [f"{kind.name.replace('_', ' ')} {losses[kind.name]:,}" for kind in found]
    missing = losses.get("missing_ranks") or []
    if missing:
        words.append(f"missing ranks {len(missing):,}")
    if not words:
        return Condition("losses", "none", tone="good")
    details = [f"{kind.name.replace('_', ' ')}: {kind.meaning}" for kind in found]
    bad = missing or any(kind.severity == "data_loss" for kind in found)
    return Condition(
        "losses", ", ".join(words), "\n".join(details)[:_LONGEST_DETAIL], "bad" if bad else "poor"
    )


def _short(value: Any) -> str:
    if value in (None, "", {}, []):
        return "not known"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "\N{HORIZONTAL ELLIPSIS}"
