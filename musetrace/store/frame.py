"""The bytes of a journal: file header and chunk headers, both ways. Defined in ``frame.h`` of the ABI."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from musetrace import _core
from musetrace.store import limits

_ABI = _core.abi
FILE_MAGIC: bytes = _ABI.FILE_MAGIC
FORMAT_MAJOR: int = _ABI.FORMAT_MAJOR
FORMAT_MINOR: int = _ABI.FORMAT_MINOR
CHUNK_MAGIC: int = _ABI.CHUNK_MAGIC
RECORDING_ID_BYTES = 16


class ChunkType(IntEnum):
    """What a chunk holds."""

    META = _ABI.CHUNK_TYPES["META"]
    CLOCK = _ABI.CHUNK_TYPES["CLOCK"]
    STAMPS = _ABI.CHUNK_TYPES["STAMPS"]
    STEP = _ABI.CHUNK_TYPES["STEP"]
    LOSS = _ABI.CHUNK_TYPES["LOSS"]
    REPORT = _ABI.CHUNK_TYPES["REPORT"]
    END = _ABI.CHUNK_TYPES["END"]


def _packed(dtype: np.dtype[Any]) -> struct.Struct:
    """The struct of a dtype's fields, which must be packed and little-endian."""
    codes = "<"
    for name in dtype.names or ():
        field = dtype[name]
        is_bytes = field.kind == "S" or field.subdtype is not None
        codes += f"{field.itemsize}s" if is_bytes else {2: "H", 4: "I", 8: "Q"}[field.itemsize]
    packed = struct.Struct(codes)
    if packed.size != dtype.itemsize:
        raise TypeError(f"{dtype} has padding")
    return packed


_FILE_HEADER = _packed(np.dtype(_ABI.file_header_dtype))
_CHUNK_HEADER = _packed(np.dtype(_ABI.chunk_header_dtype))
_CRC_BYTES = 4
FILE_HEADER_BYTES = _FILE_HEADER.size
CHUNK_HEADER_BYTES = _CHUNK_HEADER.size
CHUNK_MAGIC_BYTES = CHUNK_MAGIC.to_bytes(4, "little")


@dataclass(frozen=True)
class FileHeader:
    """The header of a journal. ``crc`` is as stored, ``computed_crc`` what the bytes before it give."""

    magic: bytes
    major: int
    minor: int
    flags: int
    recording_id: bytes
    crc: int
    computed_crc: int


@dataclass(frozen=True)
class ChunkHeader:
    """The header of a chunk."""

    magic: int
    type: int
    length: int
    seq: int
    crc: int


def encode_file_header(recording_id: bytes, major: int = FORMAT_MAJOR, minor: int = FORMAT_MINOR) -> bytes:
    """The file header of a recording (a 16-byte id)."""
    head = _FILE_HEADER.pack(FILE_MAGIC, major, minor, 0, recording_id, 0)[:-_CRC_BYTES]
    return head + zlib.crc32(head).to_bytes(_CRC_BYTES, "little")


def decode_file_header(data: bytes) -> FileHeader:
    """The fields of ``FILE_HEADER_BYTES`` bytes, unchecked."""
    magic, major, minor, flags, recording_id, crc = _FILE_HEADER.unpack(data)
    return FileHeader(magic, major, minor, flags, recording_id, crc, zlib.crc32(data[:-_CRC_BYTES]))


def encode_chunk_header(kind: int, payload: bytes | memoryview, seq: int, file_crc: int) -> bytes:
    """The header of a chunk; its crc starts from the file's crc and covers header and payload."""
    head = _CHUNK_HEADER.pack(CHUNK_MAGIC, kind, len(payload), seq, 0)[:-_CRC_BYTES]
    return head + zlib.crc32(payload, zlib.crc32(head, file_crc)).to_bytes(_CRC_BYTES, "little")


def decode_chunk_header(data: bytes) -> ChunkHeader:
    """The fields of ``CHUNK_HEADER_BYTES`` bytes, unchecked."""
    return ChunkHeader(*_CHUNK_HEADER.unpack(data))


def chunk_crc(header: bytes, payload: bytes, file_crc: int) -> int:
    """The crc that a chunk with these header bytes and this payload must have."""
    return zlib.crc32(payload, zlib.crc32(header[:-_CRC_BYTES], file_crc))


def payload_limit(kind: int) -> int:
    """The most bytes that a chunk of this type may have."""
    if kind == ChunkType.META:
        return limits.MAX_META_BYTES
    if kind in (ChunkType.CLOCK, ChunkType.STEP, ChunkType.LOSS, ChunkType.REPORT, ChunkType.END):
        return limits.MAX_JSON_BYTES
    return limits.MAX_STAMP_BYTES
