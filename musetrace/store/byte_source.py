"""Bounded reads of a file that somebody else may be writing or cutting: ``pread``, never a mapping."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Protocol

from musetrace.errors import NotARunError, TraceFileError


class ByteSource(Protocol):
    """Random access to a fixed number of bytes."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def size(self) -> int:
        """Length in bytes when it was opened."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes; fewer when the source has become shorter."""


class FileSource:
    """A regular file. Context manager. Raises TraceFileError when it cannot be opened or read."""

    def __init__(self, path: Path) -> None:
        """Never waits, whatever the path is."""
        self.name = str(path)
        try:
            # Without O_NONBLOCK, opening a FIFO would wait for its writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise TraceFileError(f"cannot open {path}: {error.strerror}") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise NotARunError(f"{path} is not a regular file; name a folder made by musetrace record")
        self.size = status.st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """See :class:`ByteSource`."""
        parts = []
        while length > 0:
            try:
                part = os.pread(self._fd, length, offset)
            except OSError as error:
                raise TraceFileError(f"cannot read {self.name} at byte {offset}: {error.strerror}") from error
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_being_written(self) -> bool:
        """Whether a recorder holds the file's lock."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> FileSource:
        """Itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()


class BytesSource:
    """Bytes in memory."""

    def __init__(self, data: bytes, name: str = "<bytes>") -> None:
        """``name`` is for messages."""
        self.name = name
        self.size = len(data)
        self._data = data

    def read_at(self, offset: int, length: int) -> bytes:
        """See :class:`ByteSource`."""
        return self._data[offset : offset + length]
