"""An Arrow IPC file's footer and batches, read with every length checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from musetrace.store.arrow_format import (
    CONTINUATION,
    PREFIX_BYTES,
    RECORD_BATCH,
    ArrowFormatError,
    BatchLayout,
    Column,
    parse_batch,
    parse_message,
    parse_schema,
)
from musetrace.store.byte_source import ByteSource
from musetrace.store.flatbuffer import FlatbufferError, Table
from musetrace.store.limits import MAX_FOOTER_BYTES, MAX_HEADER_BYTES

_MAGIC = b"ARROW1"
_TAIL_BYTES = 4 + len(_MAGIC)


@dataclass(frozen=True)
class Block:
    """Where a batch lies in the file: its header with prefix, then its body."""

    offset: int
    header_bytes: int
    body_bytes: int


def read_footer(source: ByteSource) -> tuple[list[Column], list[Block]]:
    """Columns and batches of a file. Raises ArrowFormatError."""
    tail = source.read_at(max(source.size - _TAIL_BYTES, 0), _TAIL_BYTES)
    if len(tail) < _TAIL_BYTES or tail[4:] != _MAGIC:
        raise ArrowFormatError("it does not end like an Arrow file")
    length = struct.unpack("<i", tail[:4])[0]
    if not 0 < length <= min(source.size - _TAIL_BYTES, MAX_FOOTER_BYTES):
        raise ArrowFormatError(f"its footer cannot be of {length} bytes")
    footer_at = source.size - _TAIL_BYTES - length
    try:
        root = Table.root(source.read_at(footer_at, length))
        schema = root.table(1)
        if schema is None:
            raise ArrowFormatError("it has no columns")
        columns, _ = parse_schema(schema)
        blocks = [Block(offset, header, body) for offset, header, body in root.structs(3, "qi4xq")]
    except (FlatbufferError, struct.error) as error:
        raise ArrowFormatError(str(error)) from error
    for block in blocks:
        if not (0 <= block.offset <= footer_at and PREFIX_BYTES < block.header_bytes <= MAX_HEADER_BYTES):
            raise ArrowFormatError("a batch lies outside of it")
        if not 0 <= block.body_bytes <= footer_at - block.offset - block.header_bytes:
            raise ArrowFormatError("a batch reaches beyond its end")
    return columns, blocks


def read_batch(
    source: ByteSource, block: Block, schema: pa.Schema
) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    """A batch of integers and strings, and its metadata. Raises ArrowFormatError or pa.ArrowInvalid."""
    head = source.read_at(block.offset, block.header_bytes)
    body = source.read_at(block.offset + block.header_bytes, block.body_bytes)
    if len(head) < block.header_bytes or len(body) < block.body_bytes:
        raise ArrowFormatError("it has become shorter")
    continuation, length = struct.unpack("<Ii", head[:PREFIX_BYTES])
    if continuation != CONTINUATION or length != block.header_bytes - PREFIX_BYTES:
        raise ArrowFormatError("a batch has no header")
    message = parse_message(head[PREFIX_BYTES:])
    if message.kind != RECORD_BATCH or message.body_bytes != block.body_bytes:
        raise ArrowFormatError("a batch is none")
    layout = parse_batch(message.header, block.body_bytes)
    return _assemble(layout, pa.py_buffer(body), schema), message.metadata


def columns_of(schema: pa.Schema) -> list[Column]:
    """The columns of a schema of integers and strings, as the reader sees them."""
    return [Column(field.name, field.type, 0) for field in schema]


def _assemble(layout: BatchLayout, body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    # A validity buffer before each column, which is empty as there are no nulls.
    buffers = [body.slice(offset, length) for offset, length in layout.buffers]
    columns = []
    for field in schema:
        parts = 3 if pa.types.is_string(field.type) else 2
        mine, buffers = buffers[:parts], buffers[parts:]
        if len(mine) < parts:
            raise ArrowFormatError("a batch has too few buffers")
        if parts == 2 and mine[1].size < layout.rows * (field.type.bit_width // 8):
            raise ArrowFormatError("a column is too short")
        if parts == 3 and layout.rows and mine[1].size < (layout.rows + 1) * 4:
            raise ArrowFormatError("the offsets of a column are too short")
        column = pa.Array.from_buffers(field.type, layout.rows, [None, *mine[1:]], null_count=0)
        column.validate(full=True)
        columns.append(column)
    if buffers:
        raise ArrowFormatError("a batch has too many buffers")
    return pa.RecordBatch.from_arrays(columns, schema=schema)
