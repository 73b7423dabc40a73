"""The table of losses: everything that can be missing from a run, under one name, with meaning and remedy.

A run never looks better than it is: each of these is counted where it happens and travels with the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMPLETE, INCOMPLETE, DAMAGED = "complete", "incomplete", "damaged"
_BY_SEVERITY = (COMPLETE, INCOMPLETE, DAMAGED)


@dataclass(frozen=True)
class LossKind:
    """One thing that can be missing; ``severity`` is ``data_loss`` (no rows) or ``odd`` (rows are kept)."""

    name: str
    severity: str
    meaning: str
    remedy: str


LOSS_KINDS = (
    LossKind(
        "lost_launches",
        "data_loss",
        "launches of a rank that are not recorded: no free buffer, recording failed, or a number came twice",
        "record to a faster disk, or fewer blocks or ranks; number steps and launches upwards",
    ),
    LossKind(
        "overflow_stamps",
        "data_loss",
        "stamps that found no slot, counted by the blocks that took them",
        "give the job table more slots",
    ),
    LossKind(
        "dropped_blocks",
        "data_loss",
        "blocks of launches that the recorder had no room for: their stamps are lost",
        "give attach() the grid that the kernel is launched with",
    ),
    LossKind(
        "no_end",
        "odd",
        "jobs with a begin stamp and no end: kept with duration 0, left out of every analysis",
        "the kernel left the job without stamping its end, or it was stopped inside it",
    ),
    LossKind(
        "no_begin",
        "odd",
        "jobs with an end stamp and no begin: kept with duration 0, left out of every analysis",
        "stamp the begin of the job on every path that stamps its end",
    ),
    LossKind(
        "reversed",
        "odd",
        "jobs whose end is before their begin: kept with duration 0, left out of every analysis",
        "begin and end were swapped in the kernel, or the clock stepped back",
    ),
    LossKind(
        "stale",
        "odd",
        "stamps in blocks whose header belongs to another launch: kept, never taken for data",
        "the block did not run in this launch, or wrote after the launch was drained",
    ),
    LossKind(
        "outside",
        "odd",
        "jobs with a time far outside their launch: kept, left out of every analysis",
        "the slot was overwritten by something else, or the device clock jumped",
    ),
    LossKind(
        "unknown_job",
        "odd",
        "spans in slots that the job table does not name: shown as job#N",
        "record with the job table that the kernel was built with",
    ),
    LossKind(
        "damaged_chunks",
        "data_loss",
        "chunks of a journal that cannot be read or do not belong where they stand",
        "the file was changed after it was recorded: take another copy",
    ),
)
COUNTED = tuple(kind.name for kind in LOSS_KINDS)


def no_losses() -> dict[str, int]:
    """A table of losses with every count 0."""
    return dict.fromkeys(COUNTED, 0)


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts, ``complete`` when there is none."""
    return max(verdicts, key=_BY_SEVERITY.index, default=COMPLETE)
