"""The journals of a run's folder, and whether they belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from musetrace.errors import NotARunError, TraceFileError, UnsupportedVersionError
from musetrace.store.byte_source import FileSource
from musetrace.store.journal_reader import JournalReader
from musetrace.store.payloads import Meta

SUFFIX = ".mtj"
_NAME = re.compile(r"rank-(\d{4,5})\.mtj")


@dataclass(frozen=True)
class JournalFile:
    """A readable journal: whose it is, and its size and time stamp when it was looked at."""

    path: Path
    rank: int
    world: int | None
    recording_id: str
    being_written: bool


@dataclass(frozen=True)
class JournalSet:
    """The journals of one recording, by rank; ``unreadable`` says why other ``.mtj`` files were left out."""

    journals: tuple[JournalFile, ...]
    unreadable: tuple[str, ...]

    @property
    def world(self) -> int:
        """Number of ranks that the recording had."""
        told = [journal.world for journal in self.journals if journal.world is not None]
        return max([*told, *(journal.rank + 1 for journal in self.journals)])

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks of the recording that have no journal here."""
        present = {journal.rank for journal in self.journals}
        return [rank for rank in range(self.world) if rank not in present]


def journal_name(rank: int) -> str:
    """The file name of a rank's journal."""
    return f"rank-{rank:04d}{SUFFIX}"


def journal_paths(folder: Path) -> list[Path]:
    """The journals in a folder by name, readable or not. Raises TraceFileError."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise TraceFileError(f"cannot list {folder}: {error.strerror}") from error


def find_journals(folder: Path) -> JournalSet:
    """The journals of a folder.

    Raises NotARunError when none can be read, TraceFileError when two have one rank or are of two recordings.
    """
    journals: list[JournalFile] = []
    problems: list[TraceFileError] = []
    paths = journal_paths(folder)
    for path in paths:
        try:
            journals.append(_look_at(path))
        except UnsupportedVersionError:
            raise
        except TraceFileError as error:
            problems.append(error)
    if not journals:
        raise (
            problems[0]
            if len(problems) == 1
            else NotARunError(
                f"none of {len(paths)} journals in {folder} can be read; name a folder of musetrace record"
            )
        )
    _check_same_recording(journals)
    return JournalSet(tuple(sorted(journals, key=lambda journal: journal.rank)), tuple(map(str, problems)))


def _look_at(path: Path) -> JournalFile:
    with FileSource(path) as source:
        reader = JournalReader(source)
        # META is the first chunk, or lost.
        meta = next(iter(reader.records()), None)
        by_name = _NAME.fullmatch(path.name)
        if isinstance(meta, Meta):
            rank, world = meta.rank, meta.world
        elif by_name:
            rank, world = int(by_name[1]), None
        else:
            raise TraceFileError(
                f"{path} lost its META chunk, and its name is not rank-NNNN{SUFFIX}; rename it so"
            )
        return JournalFile(path, rank, world, reader.recording_id, source.is_being_written())


def _check_same_recording(journals: Sequence[JournalFile]) -> None:
    first = journals[0]
    by_rank: dict[int, JournalFile] = {}
    for journal in journals:
        if journal.recording_id != first.recording_id:
            raise TraceFileError(
                f"{first.path} and {journal.path} are of two recordings; move one of them away"
            )
        other = by_rank.setdefault(journal.rank, journal)
        if other is not journal:
            raise TraceFileError(
                f"{other.path} and {journal.path} are both rank {journal.rank}; move one of them away"
            )
