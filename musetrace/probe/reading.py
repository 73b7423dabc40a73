"""A document of facts from a file, looked at field by field: it may come from anybody."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from musetrace.errors import TraceFileError
from musetrace.probe.experiments import FAILED, MEASURED, SKIPPED
from musetrace.store import limits
from musetrace.store.payloads import PayloadError, decode_json, take_int, take_text

MAX_EXPERIMENTS = 1000
MAX_FACTS = 10_000
_TEXTS = ("name", "unit", "note", "case", "at_unit")
_NUMBERS = ("median", "p10", "p90")


def read_document(path: Path) -> dict[str, Any]:
    """What ``musetrace probe --json`` printed into a file (see ``document``); all else in it is left out.

    Raises:
        TraceFileError: it cannot be read, or is something else.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limits.MAX_META_BYTES + 1)
    except OSError as error:
        raise TraceFileError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _document(decode_json(content, limits.MAX_META_BYTES))
    except PayloadError as error:
        raise TraceFileError(f"{path} is not what musetrace probe --json prints: {error}") from error


def _document(data: dict[str, Any]) -> dict[str, Any]:
    experiments = [_experiment(entry) for entry in _objects(data, "experiments", MAX_EXPERIMENTS)]
    return {
        "musetrace": take_text(data, "musetrace"),
        "measured_at": take_text(data, "measured_at"),
        "device": _device(data.get("device")),
        "complete": all(entry["state"] != FAILED for entry in experiments),
        "experiments": experiments,
    }


def _device(device: Any) -> dict[str, Any]:
    if not isinstance(device, dict) or device.get("kind") not in ("cpu", "cuda"):
        raise PayloadError("device is no CPU and no GPU")
    take_text(device, "name")
    return {
        name: value for name, value in device.items() if value is None or isinstance(value, (str, int, float))
    }


def _experiment(entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("state") not in (MEASURED, SKIPPED, FAILED):
        raise PayloadError("an experiment was neither measured nor skipped, nor did it fail")
    notes = entry.get("notes")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise PayloadError("an experiment's notes are not a list of text")
    return {
        "name": take_text(entry, "name"),
        "title": take_text(entry, "title"),
        "state": entry["state"],
        "why": take_text(entry, "why", limits.MAX_TEXT_CHARS),
        "seconds": _number(entry, "seconds"),
        "measured_at": take_text(entry, "measured_at"),
        "notes": [note[: limits.MAX_TEXT_CHARS] for note in notes[: limits.MAX_NOTES]],
        "facts": [_fact(fact) for fact in _objects(entry, "facts", MAX_FACTS)],
    }


def _fact(fact: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {name: take_text(fact, name, limits.MAX_TEXT_CHARS) for name in _TEXTS}
    read |= {name: _number(fact, name) for name in _NUMBERS}
    at = None if fact.get("at") is None else _number(fact, "at")
    return {**read, "n": take_int(fact, "n", 1, limits.MAX_TIME_NS), "at": at}


def _objects(data: dict[str, Any], name: str, limit: int) -> list[dict[str, Any]]:
    found = data.get(name)
    if not isinstance(found, list) or len(found) > limit or not all(isinstance(one, dict) for one in found):
        raise PayloadError(f"{name} is not a list of at most {limit} objects")
    return found


def _number(data: dict[str, Any], name: str) -> float | int:
    value = data.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > limits.MAX_TIME_NS:
        raise PayloadError(f"{name} is not a number")
    # A whole number of any size compares above; a float may still be none.
    if not math.isfinite(value):
        raise PayloadError(f"{name} is not a number")
    return value
