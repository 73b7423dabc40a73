"""The folder a recording goes to: refused before the first launch, or made; nothing else is overwritten."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from musetrace.errors import RecordError, TraceFileError
from musetrace.store.byte_source import FileSource
from musetrace.store.frame import FILE_HEADER_BYTES, decode_file_header
from musetrace.store.index import MANIFEST
from musetrace.store.journal_files import SUFFIX, journal_name
from musetrace.store.kept_probe import PROBE_FILE
from musetrace.store.rank_index import TABLES

# In a run's folder while several processes record it.
MARK = ".recording"


class OutputFolder:
    """A run's folder to be: checked when this object is made; ``create`` replaces an earlier run."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Raises RecordError when the path cannot become a run's folder."""
        self.path = path
        self._made = False
        _check_parent(path)
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            self._replaces = False
            return
        except (OSError, ValueError) as error:
            raise RecordError(f"cannot use {path} as output: {error}; choose another output") from error
        _check_existing(path, mode, force)
        self._replaces = True

    def reserve(self) -> None:
        """Make the folder, unless an earlier run stands there until ``create``. Raises RecordError."""
        if not self._replaces and not self._made:
            try:
                self.path.mkdir(mode=0o700)
            except OSError as error:
                raise RecordError(
                    f"cannot make {self.path}: {error.strerror}; choose another output"
                ) from error
            self._made = True

    def create(self) -> None:
        """Make the folder ready for new journals; an earlier run in it is removed. Raises RecordError."""
        self.reserve()
        if self._replaces:
            self._remove_run()

    def clear(self) -> None:
        """Remove an earlier run with its folder, for another process to record here. Raises RecordError."""
        if self._replaces:
            self._remove_run()
            try:
                self.path.rmdir()
            except OSError as error:
                raise RecordError(
                    f"{self.path} holds other files than a run; choose another output"
                ) from error

    def _remove_run(self) -> None:
        try:
            remove_run(self.path)
        except OSError as error:
            raise RecordError(f"cannot replace {self.path}: {error}; choose another output") from error

    def mark(self, recording_id: bytes) -> None:
        """Leave the recording's id, by which other processes know its folder. Raises RecordError."""
        try:
            (self.path / MARK).write_text(recording_id.hex(), "ascii")
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}; choose another output") from error

    def unmark(self) -> None:
        """No other process looks for the folder any more."""
        with contextlib.suppress(OSError):
            (self.path / MARK).unlink()

    def discard(self) -> None:
        """Remove the folder if it was made here and nothing was recorded into it."""
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()


def remove_run(folder: Path) -> None:
    """Remove what musetrace wrote into a run's folder, and nothing else. Raises OSError."""
    for name in (MANIFEST, PROBE_FILE):
        (folder / name).unlink(missing_ok=True)
    for table in TABLES:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / table)
    for journal in folder.glob("*" + SUFFIX):
        journal.unlink()
    (folder / MARK).unlink(missing_ok=True)


def is_folder_of(folder: Path, recording_id: bytes) -> bool:
    """Whether this is the folder of a recording: by its mark, or by the journal of its first rank."""
    with contextlib.suppress(OSError, ValueError):
        return (folder / MARK).read_text("ascii") == recording_id.hex()
    with contextlib.suppress(TraceFileError), FileSource(folder / journal_name(0)) as source:
        header = source.read_at(0, FILE_HEADER_BYTES)
        return len(header) == FILE_HEADER_BYTES and decode_file_header(header).recording_id == recording_id
    return False


def _check_parent(path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise RecordError(f"the folder {parent} of the output {path.name} does not exist; make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RecordError(f"the folder {parent} cannot be written; choose another output")


def _check_existing(path: Path, mode: int, force: bool) -> None:
    if stat.S_ISLNK(mode):
        raise RecordError(f"the output {path} is a link; name the place itself")
    if not stat.S_ISDIR(mode):
        raise RecordError(f"the output {path} exists and is not a folder; choose another output")
    journals = list(path.glob("*" + SUFFIX))
    if not journals and not (path / MARK).exists():
        raise RecordError(f"the folder {path} exists and is not a run; choose another output")
    if not force:
        raise RecordError(
            f"the run {path} exists; add --force (force=True) to replace it, or choose another output"
        )
    for journal in journals:
        with contextlib.suppress(TraceFileError), FileSource(journal) as source:
            if source.is_being_written():
                raise RecordError(f"the run {path} is being recorded right now; choose another output")
