"""Appends chunks to a journal, one ``write`` each, and never leaves half a chunk that it knows of."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from musetrace.errors import RecordError
from musetrace.store import frame

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ChunkBuffer:
    """Memory of a chunk, to be used again and again: a header, then up to ``capacity_bytes`` of payload."""

    def __init__(self, capacity_bytes: int) -> None:
        """Allocates all of it."""
        self._memory = memoryview(bytearray(frame.CHUNK_HEADER_BYTES + capacity_bytes))
        self.payload = self._memory[frame.CHUNK_HEADER_BYTES :]

    def framed(self, kind: int, length: int, seq: int, file_crc: int) -> memoryview:
        """The first ``length`` payload bytes as a whole chunk."""
        header = frame.encode_chunk_header(kind, self.payload[:length], seq, file_crc)
        self._memory[: frame.CHUNK_HEADER_BYTES] = header
        return self._memory[: frame.CHUNK_HEADER_BYTES + length]


class JournalWriter:
    """One journal being written. Not thread-safe: the recorder's drain thread owns it.

    After the first error ``failed`` holds it, the file ends with the last whole chunk, and every later
    ``write`` does nothing and returns False.
    """

    def __init__(self, path: Path, recording_id: bytes) -> None:
        """Create the file (it must not exist) and lock it. Raises RecordError."""
        self.path = path
        self.failed: OSError | None = None
        self.chunks = 0
        try:
            self._fd = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise RecordError(f"cannot create {path}: {error.strerror}; choose another output") from error
        # A file system without locks costs only the "still being recorded" hint.
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        header = frame.encode_file_header(recording_id)
        self._file_crc = frame.decode_file_header(header).crc
        self._end_bytes = 0
        if not self._append(memoryview(header)):
            self.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise RecordError(f"cannot write {path}: {self.failed}; choose another output")

    def write(self, kind: int, payload: bytes) -> bool:
        """Append a chunk with this payload; False when the journal has failed."""
        if len(payload) > frame.payload_limit(kind):
            raise RecordError(
                f"a chunk of {len(payload)} bytes is too large for {self.path}; record less in it"
            )
        buffer = ChunkBuffer(len(payload))
        buffer.payload[:] = payload
        return self.write_buffer(kind, buffer, len(payload))

    def write_buffer(self, kind: int, buffer: ChunkBuffer, length: int) -> bool:
        """Append the first ``length`` payload bytes of a prepared buffer as a chunk."""
        if self.failed is not None or not self._append(
            buffer.framed(kind, length, self.chunks, self._file_crc)
        ):
            return False
        self.chunks += 1
        return True

    def _append(self, data: memoryview) -> bool:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self.failed = error
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end_bytes)
            return False
        self._end_bytes += written
        return True

    def close(self) -> None:
        """Release the lock and close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # Explicitly, because a forked child may hold the same open file.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(fd)

    def drop(self) -> None:
        """In a forked child: let go of the file without touching the parent's lock or bytes."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)
