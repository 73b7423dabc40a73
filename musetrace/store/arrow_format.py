"""Arrow's IPC messages, read with every length checked: what columns there are and where their bytes lie.

Only what musetrace writes is understood: integers, strings and fixed-size lists of integers, without nulls,
dictionaries and compression. Anything else is an ArrowFormatError, and nothing is allocated for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from musetrace.store.flatbuffer import FlatbufferError, Table

SCHEMA, RECORD_BATCH = 1, 3
CONTINUATION = 0xFFFFFFFF
PREFIX_BYTES = 8
_INT, _UTF8, _FIXED_SIZE_LIST = 2, 5, 16
_INTEGERS = {
    (bits, signed): pa.type_for_alias(f"{'' if signed else 'u'}int{bits}")
    for bits in (8, 16, 32, 64)
    for signed in (True, False)
}


class ArrowFormatError(ValueError):
    """The bytes are not an Arrow message of the kind that musetrace writes."""


@dataclass(frozen=True)
class Message:
    """The header of an IPC message, and how many bytes of column data follow it."""

    kind: int
    header: Table
    body_bytes: int
    metadata: dict[bytes, bytes]


@dataclass(frozen=True)
class Column:
    """A column's name and type; lists are of ``list_size`` values each, other types have ``list_size`` 0."""

    name: str
    value_type: pa.DataType
    list_size: int


@dataclass(frozen=True)
class BatchLayout:
    """A record batch: its rows, and (offset, bytes) of each of its buffers within the body."""

    rows: int
    buffers: list[tuple[int, int]]


def parse_message(data: bytes) -> Message:
    """A message's flatbuffer. Raises ArrowFormatError."""
    try:
        root = Table.root(data)
        header = root.table(2)
        if header is None:
            raise ArrowFormatError("a message without a header")
        return Message(root.number(1, "B"), header, root.number(3, "q"), _metadata(root, 4))
    except (FlatbufferError, struct.error) as error:
        raise ArrowFormatError(str(error)) from error


def parse_schema(header: Table) -> tuple[list[Column], dict[bytes, bytes]]:
    """The columns of a schema and its metadata. Raises ArrowFormatError."""
    try:
        return [_column(field) for field in header.tables(1)], _metadata(header, 2)
    except (FlatbufferError, struct.error) as error:
        raise ArrowFormatError(str(error)) from error


def parse_batch(header: Table, body_bytes: int) -> BatchLayout:
    """Where a batch's buffers lie; all of them inside the body. Raises ArrowFormatError."""
    try:
        if header.has(3):
            raise ArrowFormatError("its batch is compressed")
        rows = header.number(0, "q")
        if rows < 0 or any(nulls for _, nulls in header.structs(1, "qq")):
            raise ArrowFormatError("it has nulls, or less than no rows")
        buffers = [(offset, length) for offset, length in header.structs(2, "qq")]
    except (FlatbufferError, struct.error) as error:
        raise ArrowFormatError(str(error)) from error
    for offset, length in buffers:
        if offset < 0 or length < 0 or offset > body_bytes or length > body_bytes - offset:
            raise ArrowFormatError(f"{length} bytes at {offset} reach beyond its body of {body_bytes}")
    return BatchLayout(rows, buffers)


def _column(field: Table) -> Column:
    name = field.text(0).decode("utf-8", "backslashreplace")
    kind, value = field.number(2, "B"), field.table(3)
    if value is None or field.has(4):
        raise ArrowFormatError(f"column {name} has no type, or a dictionary")
    if kind == _UTF8:
        return Column(name, pa.string(), 0)
    if kind == _INT:
        return Column(name, _integer(value), 0)
    children = list(field.tables(5)) if kind == _FIXED_SIZE_LIST else []
    child = children[0].table(3) if len(children) == 1 and children[0].number(2, "B") == _INT else None
    list_size = value.number(0, "i")
    if child is None or list_size < 1:
        raise ArrowFormatError(f"column {name} is of a type that musetrace does not write")
    return Column(name, _integer(child), list_size)


def _integer(value: Table) -> pa.DataType:
    found = _INTEGERS.get((value.number(0, "i"), bool(value.number(1, "B"))))
    if found is None:
        raise ArrowFormatError("an integer of an unknown width")
    return found


def _metadata(table: Table, field: int) -> dict[bytes, bytes]:
    return {pair.text(0): pair.text(1) for pair in table.tables(field)}
