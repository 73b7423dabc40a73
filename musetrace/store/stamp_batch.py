"""The payload of a STAMPS chunk, both ways: one Arrow IPC stream with one record batch, a row for each block.

The batch is the stamp buffer of one launch of one rank as the kernel left it; nothing is interpreted yet.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.store import limits
from musetrace.store.arrow_format import (
    CONTINUATION,
    PREFIX_BYTES,
    RECORD_BATCH,
    SCHEMA,
    ArrowFormatError,
    BatchLayout,
    Column,
    Message,
    parse_batch,
    parse_message,
    parse_schema,
)
from musetrace.store.payloads import Launch, PayloadError, encode_json, parse_launch

_LAUNCH_KEY = b"launch"
# Arrow's schema, launch JSON and batch header around the column data.
_FRAMING_BYTES = 8 << 10
_HEADER_COLUMNS = (
    ("epoch", pa.uint32()),
    ("sm", pa.uint32()),
    ("overflow", pa.uint32()),
    ("time_ns", pa.uint64()),
)
_SLOT_TYPES = {4: pa.uint32(), 8: pa.uint64()}
_SLOT_COUNTS = range(2, limits.MAX_SLOTS + 1, 2)


@dataclass(frozen=True)
class StampBatch:
    """A launch's stamps: ``block`` u16[R], ``epoch``, ``sm``, ``overflow`` u32[R], ``time_ns`` u64[R] and
    ``slots`` u32 or u64 [R, S]; R = 0 when the launch was recorded without stamps.
    """

    launch: Launch
    block: npt.NDArray[np.uint16]
    epoch: npt.NDArray[np.uint32]
    sm: npt.NDArray[np.uint32]
    overflow: npt.NDArray[np.uint32]
    time_ns: npt.NDArray[np.uint64]
    slots: npt.NDArray[Any]


def stamp_schema(slots: int, slot_bytes: int) -> pa.Schema:
    """The schema of a batch of blocks with this many slots; without stamps (``slot_bytes`` 0) as with 4."""
    slot_type = pa.field("item", _SLOT_TYPES[slot_bytes or 4], nullable=False)
    fields = [("block", pa.uint16()), *_HEADER_COLUMNS, ("slots", pa.list_(slot_type, slots))]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


class StampEncoder:
    """Encodes the stamp regions of launches into prepared memory."""

    def __init__(self, blocks: int, slots: int, slot_bytes: int) -> None:
        """``slots`` is a multiple of 2 and not 0; with ``slot_bytes`` 0 every batch has no rows."""
        self._rows = blocks if slot_bytes else 0
        self._schema = stamp_schema(slots, slot_bytes)
        self._block = pa.array(np.arange(self._rows, dtype=np.uint16))
        self.capacity_bytes = _FRAMING_BYTES + self._rows * (32 + slots * slot_bytes)

    def encode(
        self, memory: memoryview, launch: dict[str, Any], headers: npt.NDArray[Any], slots: npt.NDArray[Any]
    ) -> int:
        """Write the stream into ``memory`` (at least ``capacity_bytes``) and return its length in bytes.

        ``headers`` are block headers [blocks], ``slots`` u32 or u64 [blocks, slots]; both are ignored when
        the encoder was made for no stamps.
        """
        columns = [self._block]
        for name, kind in _HEADER_COLUMNS:
            columns.append(pa.array(np.ascontiguousarray(headers[name][: self._rows]), type=kind))
        flat = pa.array(slots[: self._rows].reshape(-1), type=self._schema.field("slots").type.value_type)
        slots_type = self._schema.field("slots").type
        columns.append(pa.FixedSizeListArray.from_arrays(flat, type=slots_type))
        schema = self._schema.with_metadata({_LAUNCH_KEY: encode_json(launch)})
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return int(sink.tell())


def decode_stamps(payload: bytes) -> StampBatch:
    """The batch of a STAMPS chunk, every length checked. Raises PayloadError."""
    try:
        schema, position = _message(payload, 0, SCHEMA)
        columns, metadata = parse_schema(schema.header)
        launch = parse_launch(metadata.get(_LAUNCH_KEY, b""))
        slots = _check_columns(columns)
        message, position = _message(payload, position + schema.body_bytes, RECORD_BATCH)
        if message.body_bytes > len(payload) - position:
            raise PayloadError("its batch reaches beyond its end")
        layout = parse_batch(message.header, message.body_bytes)
    except ArrowFormatError as error:
        raise PayloadError(f"not a stamp batch: {error}") from error
    if layout.rows > limits.MAX_BLOCKS:
        raise PayloadError(f"it has {layout.rows} blocks, the limit is {limits.MAX_BLOCKS}")
    return _to_numpy(launch, payload, position, layout, slots)


def _message(payload: bytes, position: int, kind: int) -> tuple[Message, int]:
    """The message at a position, which must be of a kind, and where its body begins."""
    prefix = payload[position : position + PREFIX_BYTES]
    if len(prefix) < PREFIX_BYTES:
        raise PayloadError("it stops before its batch")
    continuation, length = struct.unpack("<Ii", prefix)
    body = position + PREFIX_BYTES + length
    if continuation != CONTINUATION or not 0 < length <= limits.MAX_HEADER_BYTES or body > len(payload):
        raise PayloadError("it is no Arrow stream")
    message = parse_message(payload[position + PREFIX_BYTES : body])
    if message.kind != kind or message.body_bytes < 0:
        raise PayloadError("it is not one schema and one batch")
    return message, body


def _check_columns(columns: list[Column]) -> Column:
    """Check that the columns are those of a stamp batch and return the one of the slots."""
    slots = columns[-1] if columns else None
    expected = [Column("block", pa.uint16(), 0), *(Column(name, kind, 0) for name, kind in _HEADER_COLUMNS)]
    if columns[:-1] != expected or slots is None or slots.name != "slots":
        raise PayloadError("its columns are not those of a stamp batch")
    if slots.value_type not in _SLOT_TYPES.values() or slots.list_size not in _SLOT_COUNTS:
        raise PayloadError("its slots are not pairs of u32 or u64")
    return slots


def _to_numpy(launch: Launch, payload: bytes, body: int, layout: BatchLayout, slots: Column) -> StampBatch:
    # Validity and data of each column, validity of the list, validity and data of its values.
    if len(layout.buffers) != 2 * len(_HEADER_COLUMNS) + 5:
        raise PayloadError("its batch has other buffers than its columns")

    def values(buffer: int, kind: pa.DataType, count: int) -> npt.NDArray[Any]:
        offset, length = layout.buffers[buffer]
        dtype = np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
        if count * dtype.itemsize > length:
            raise PayloadError("a column of its batch is too short")
        return np.frombuffer(payload, dtype=dtype, count=count, offset=body + offset)

    headers = {
        name: values(2 * place + 3, kind, layout.rows) for place, (name, kind) in enumerate(_HEADER_COLUMNS)
    }
    block = values(1, pa.uint16(), layout.rows)
    if len(np.unique(block)) != layout.rows:
        raise PayloadError("it has a block twice")
    flat = values(len(layout.buffers) - 1, slots.value_type, layout.rows * slots.list_size)
    return StampBatch(launch, block, **headers, slots=flat.reshape(layout.rows, slots.list_size))
