"""Everything that was measured, as one JSON document: printed, kept beside a run, and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from musetrace import __version__
from musetrace.probe.experiments import FAILED, MEASURED
from musetrace.probe.facts import Outcome


def document(
    device: dict[str, Any], outcomes: Sequence[Outcome], at: datetime | None = None
) -> dict[str, Any]:
    """The device, when it was measured, and how each experiment ended.

    Returns:
        ``complete`` is false when an experiment failed; ``experiments`` is a list of name, title, state
        (``measured``, ``skipped`` or ``failed``), why, seconds, when, notes and facts (see ``Fact``).
    """
    measured_at = (at or datetime.now(UTC)).isoformat(timespec="seconds")
    return {
        "musetrace": __version__,
        "measured_at": measured_at,
        "device": device,
        "complete": all(outcome.state != FAILED for outcome in outcomes),
        "experiments": [
            {
                "name": outcome.name,
                "title": outcome.title,
                "state": outcome.state,
                "why": outcome.why,
                "seconds": round(outcome.seconds, 3),
                "measured_at": measured_at,
                "notes": list(outcome.notes),
                "facts": [fact.to_json() for fact in outcome.facts],
            }
            for outcome in outcomes
        ],
    }


def merged(earlier: dict[str, Any] | None, probed: dict[str, Any]) -> dict[str, Any]:
    """A document, with what an earlier one measured and this one did not; each experiment says when."""
    kept = {entry["name"]: entry for entry in (earlier or {}).get("experiments", [])}
    for entry in probed["experiments"]:
        before = kept.get(entry["name"])
        if entry["state"] == MEASURED or before is None or before["state"] != MEASURED:
            kept[entry["name"]] = entry
    experiments = list(kept.values())
    complete = all(entry["state"] != FAILED for entry in experiments)
    return {**probed, "complete": complete, "experiments": experiments}


def facts_of(probed: dict[str, Any], experiment: str) -> list[dict[str, Any]]:
    """The facts of one experiment of a document; none where it was not measured."""
    for entry in probed["experiments"]:
        if entry["name"] == experiment:
            return list(entry["facts"])
    return []
