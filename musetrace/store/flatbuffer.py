"""Reads flatbuffers, the encoding of Arrow's headers, from bytes that nobody vouches for.

Every position is checked before it is used. pyarrow's own reader can be brought to crash by a crafted header,
and a journal may come from anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_OFFSET_BYTES = 4
_VTABLE_HEAD_BYTES = 4
# A header has few tables; without a limit, many could share one large string and take for ever to read.
_MAX_TABLES = 64


class FlatbufferError(ValueError):
    """The bytes are no such flatbuffer."""


class Table:
    """A flatbuffer table: fields by number, absent ones as their default. Raises FlatbufferError."""

    def __init__(self, data: bytes, position: int) -> None:
        """``position`` is where the table begins."""
        self._data = data
        self._position = position
        self._vtable = position - read(data, position, "<i")
        self._vtable_bytes = read(data, self._vtable, "<H")

    @classmethod
    def root(cls, data: bytes) -> Table:
        """The root table of a buffer."""
        return cls(data, read(data, 0, "<I"))

    def number(self, field: int, code: str, default: int = 0) -> int:
        """A scalar; ``code`` as of ``struct``."""
        at = self._at(field)
        return default if at is None else read(self._data, at, "<" + code)

    def table(self, field: int) -> Table | None:
        """A table within this one."""
        at = self._pointed(field)
        return None if at is None else Table(self._data, at)

    def text(self, field: int) -> bytes:
        """A string, as bytes."""
        at = self._pointed(field)
        if at is None:
            return b""
        return bytes(self._slice(at + _OFFSET_BYTES, read(self._data, at, "<I")))

    def tables(self, field: int) -> Iterator[Table]:
        """A vector of tables."""
        at = self._pointed(field)
        if at is None:
            return
        count = read(self._data, at, "<I")
        if count > _MAX_TABLES:
            raise FlatbufferError(f"{count} tables in its header, the limit is {_MAX_TABLES}")
        for place in range(at + _OFFSET_BYTES, at + _OFFSET_BYTES * (count + 1), _OFFSET_BYTES):
            yield Table(self._data, place + read(self._data, place, "<I"))

    def structs(self, field: int, code: str) -> list[tuple[int, ...]]:
        """A vector of structs of integers; ``code`` as of ``struct``, little-endian and packed."""
        at = self._pointed(field)
        if at is None:
            return []
        size = struct.calcsize("<" + code)
        whole = self._slice(at + _OFFSET_BYTES, read(self._data, at, "<I") * size)
        return list(struct.iter_unpack("<" + code, whole))

    def has(self, field: int) -> bool:
        """Whether a field is present."""
        return self._at(field) is not None

    def _at(self, field: int) -> int | None:
        entry = _VTABLE_HEAD_BYTES + 2 * field
        if entry + 2 > self._vtable_bytes:
            return None
        offset = read(self._data, self._vtable + entry, "<H")
        return self._position + offset if offset else None

    def _pointed(self, field: int) -> int | None:
        at = self._at(field)
        return None if at is None else at + read(self._data, at, "<I")

    def _slice(self, begin: int, length: int) -> bytes:
        if length > len(self._data) - begin:
            raise FlatbufferError(f"{length} bytes at {begin} reach beyond its header")
        return self._data[begin : begin + length]


def read(data: bytes, position: int, code: str) -> int:
    """One integer at a position, which must lie inside. Raises FlatbufferError."""
    if not 0 <= position <= len(data) - struct.calcsize(code):
        raise FlatbufferError(f"position {position} is beyond its header of {len(data)} bytes")
    return int(struct.unpack_from(code, data, position)[0])
