"""What is to be known of the spans that a picture is made of, or why there are none."""

from __future__ import annotations

import pyarrow as pa

from musetrace.dashboard.conditions import RecordedRun, recorder_notes
from musetrace.figures.wording import many
from musetrace.wording.observed import observed_note


def quality(flagged: int, below_tick: int | None) -> list[str]:
    """How many spans are left out, and how many are shorter than the clock tells."""
    parts = [f"{many(flagged, 'flagged span')} left out"] if flagged else []
    return parts + ([f"{below_tick:,} shorter than the clock's tick"] if below_tick else [])


def nothing_stamped(run: RecordedRun) -> str:
    """Why there is nothing to draw."""
    if run.manifest.get("stamps") == "off":
        launches = any(entry.get("launches") for entry in run.manifest.get("ranks", []))
        there = "launches and step times" if launches else "step times"
        why = "".join(f" Note: {text}." for text in recorder_notes(run.manifest)[:1])
        return f"This run was recorded with stamps off: it has {there}, but no timeline.{why}"
    return "Nothing was stamped in what was chosen, so there is no timeline to draw."


def observed_words(table: pa.Table) -> list[str]:
    """How much of what an answer is about was recorded, where that is not all."""
    note = observed_note(table)
    return [note] if note else []
