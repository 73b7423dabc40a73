"""Writes a text file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from musetrace.errors import UsageError
from musetrace.store.whole_file import write_atomically


def check_folder(path: Path) -> None:
    """Raises UsageError, before any work is done, where the file cannot be made."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: its folder does not exist; make it first")
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}; choose another file")


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, in place of what was there. Raises UsageError where that fails."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file") from error
