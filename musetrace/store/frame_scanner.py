"""Finds the whole chunks of a journal, in order, whatever happened to the file.

A chunk is accepted when its magic, its length (against the limit and against what remains), its CRC and a
growing seq say so; otherwise the scanner searches the next magic. No size is used before it was checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from musetrace.errors import NotARunError, UnsupportedVersionError
from musetrace.store import limits
from musetrace.store.byte_source import ByteSource
from musetrace.store.frame import (
    CHUNK_HEADER_BYTES,
    CHUNK_MAGIC,
    CHUNK_MAGIC_BYTES,
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    FORMAT_MAJOR,
    ChunkType,
    FileHeader,
    chunk_crc,
    decode_chunk_header,
    decode_file_header,
    payload_limit,
)

_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """A chunk that was accepted. ``offset`` is where its header begins."""

    type: int
    seq: int
    offset: int
    payload: bytes

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + CHUNK_HEADER_BYTES + len(self.payload)


class FrameScanner:
    """Iterates over the chunks of one journal; what it met on the way stands in its fields afterwards.

    ``damaged_chunks`` counts chunks that are missing or out of place, ``ended`` says that the END chunk was
    read, ``cut`` that the file stops inside a chunk, and ``notes`` has one sentence for each damage.
    """

    def __init__(self, source: ByteSource) -> None:
        """Read and check the file header. Raises NotARunError or UnsupportedVersionError."""
        self._source = source
        self.header = _read_file_header(source)
        self.damaged_chunks = 0
        self.ended = False
        self.cut = False
        self.notes: list[str] = []
        # A header that does not match its crc still tells the crc that the chunks start from: the stored one
        # when another field was hit, the computed one when the crc itself was.
        self._file_crcs = [self.header.crc]
        if self.header.computed_crc != self.header.crc:
            self._file_crcs.append(self.header.computed_crc)
            self._damage(1, "its file header does not match its checksum")
        self._resync_budget = limits.RESYNC_FACTOR * source.size + limits.RESYNC_BYTES

    def __iter__(self) -> Iterator[Chunk]:
        """The accepted chunks, with growing seq. To be used once."""
        position, last = FILE_HEADER_BYTES, -1
        while position < self._source.size:
            chunk = self._chunk_at(position, last) or self._next_chunk(position, last)
            if chunk is None:
                self._end_of_scan(position, last)
                return
            self._account_for_gap(position, last, chunk)
            position, last = chunk.end, chunk.seq
            self.ended = chunk.type == ChunkType.END
            yield chunk
            if self.ended and position < self._source.size:
                self._damage(1, f"{self._source.size - position} bytes follow its end chunk")
                return

    def _chunk_at(self, offset: int, last: int) -> Chunk | None:
        remaining = self._source.size - offset
        header_bytes = self._source.read_at(offset, CHUNK_HEADER_BYTES)
        if len(header_bytes) < CHUNK_HEADER_BYTES:
            return None
        header = decode_chunk_header(header_bytes)
        if header.magic != CHUNK_MAGIC or header.seq <= last or header.length > payload_limit(header.type):
            return None
        if header.length > remaining - CHUNK_HEADER_BYTES:
            return None
        payload = self._source.read_at(offset + CHUNK_HEADER_BYTES, header.length)
        if len(payload) < header.length:
            return None
        for file_crc in self._file_crcs:
            if chunk_crc(header_bytes, payload, file_crc) == header.crc:
                self._file_crcs = [file_crc]
                return Chunk(header.type, header.seq, offset, payload)
        self._resync_budget -= header.length
        return None

    def _next_chunk(self, position: int, last: int) -> Chunk | None:
        """The first acceptable chunk behind ``position``."""
        start = position + 1
        while start < self._source.size and self._resync_budget > 0:
            window = self._source.read_at(start, _SEARCH_BYTES)
            found = window.find(CHUNK_MAGIC_BYTES)
            while found >= 0 and self._resync_budget > 0:
                # The header itself is a read as well.
                self._resync_budget -= CHUNK_HEADER_BYTES
                chunk = self._chunk_at(start + found, last)
                if chunk is not None:
                    return chunk
                found = window.find(CHUNK_MAGIC_BYTES, found + 1)
            if len(window) < _SEARCH_BYTES:
                break
            start += _SEARCH_BYTES - len(CHUNK_MAGIC_BYTES) + 1
        return None

    def _account_for_gap(self, position: int, last: int, chunk: Chunk) -> None:
        missing, skipped = chunk.seq - last - 1, chunk.offset - position
        if missing == 0 and skipped == 0:
            return
        what = f"{missing} chunks are missing" if missing else "bytes were put in"
        self._damage(max(missing, 1), f"{what} at byte {position} ({skipped} bytes skipped)")

    def _end_of_scan(self, position: int, last: int) -> None:
        if self._resync_budget <= 0:
            self._damage(1, f"too damaged to search on behind byte {position}")
        elif self._is_cut(position, last):
            self.cut = True
        else:
            self._damage(1, f"{self._source.size - position} bytes at byte {position} are no chunk")

    def _is_cut(self, offset: int, last: int) -> bool:
        """Whether the bytes from ``offset`` on are the begin of the next chunk, its end not (yet) written."""
        remaining = self._source.size - offset
        head = self._source.read_at(offset, CHUNK_HEADER_BYTES)
        magic = head[: len(CHUNK_MAGIC_BYTES)]
        if not CHUNK_MAGIC_BYTES.startswith(magic):
            return False
        if len(head) < CHUNK_HEADER_BYTES:
            return True
        header = decode_chunk_header(head)
        if header.seq != last + 1 or header.length > payload_limit(header.type):
            return False
        return header.length > remaining - CHUNK_HEADER_BYTES and not self._only_length_is_wrong(
            offset, remaining
        )

    def _only_length_is_wrong(self, offset: int, remaining: int) -> bool:
        """Whether the last chunk is whole but for its length field, which then is damage and not a cut."""
        if remaining - CHUNK_HEADER_BYTES > limits.MAX_STAMP_BYTES:
            return False
        data = self._source.read_at(offset, remaining)
        header = decode_chunk_header(data[:CHUNK_HEADER_BYTES])
        payload = data[CHUNK_HEADER_BYTES:]
        length_at = CHUNK_HEADER_BYTES - 16
        mended = (
            data[:length_at] + len(payload).to_bytes(8, "little") + data[length_at + 8 : CHUNK_HEADER_BYTES]
        )
        return any(chunk_crc(mended, payload, file_crc) == header.crc for file_crc in self._file_crcs)

    def _damage(self, chunks: int, note: str) -> None:
        self.damaged_chunks += chunks
        if len(self.notes) < limits.MAX_NOTES:
            self.notes.append(note)


def _read_file_header(source: ByteSource) -> FileHeader:
    data = source.read_at(0, FILE_HEADER_BYTES)
    if not FILE_MAGIC.startswith(data[: len(FILE_MAGIC)]):
        raise NotARunError(
            f"{source.name} is not a musetrace journal; name a folder made by musetrace record"
        )
    if len(data) < FILE_HEADER_BYTES:
        raise NotARunError(
            f"{source.name} stops inside its file header: the recording was killed at its start"
        )
    header = decode_file_header(data)
    if header.crc == header.computed_crc and header.major != FORMAT_MAJOR:
        raise UnsupportedVersionError(
            f"{source.name} has format {header.major}.{header.minor}, this musetrace reads {FORMAT_MAJOR}.x; "
            f"install a musetrace that reads {header.major}.x"
        )
    return header
