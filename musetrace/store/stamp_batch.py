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
    """The batch of a STAMPS chunk, validated in full. Raises PayloadError."""
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(payload))
        schema = pa.ipc.read_schema(messages.read_next_message())
        launch = parse_launch((schema.metadata or {}).get(_LAUNCH_KEY, b""))
        _check_schema(schema)
        message = messages.read_next_message()
        if _is_compressed(message.metadata.to_pybytes()):
            raise PayloadError("its batch is compressed")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        return _to_numpy(launch, batch)
    except PayloadError:
        raise
    except Exception as error:
        # Arrow meets bytes from anywhere here, and says so with almost any exception.
        raise PayloadError(f"not a stamp batch: {error}") from error


def _check_schema(schema: pa.Schema) -> None:
    slots = schema.field("slots").type if "slots" in schema.names else None
    # Arrow divides by the size of a list without looking, so it is checked before any array is made.
    if not isinstance(slots, pa.FixedSizeListType) or not 2 <= slots.list_size <= limits.MAX_SLOTS:
        raise PayloadError("its slots are no list")
    if slots.list_size % 2:
        raise PayloadError("its slots are not pairs")
    slot_bytes = {kind: size for size, kind in _SLOT_TYPES.items()}.get(slots.value_type)
    if slot_bytes is None or not schema.equals(stamp_schema(slots.list_size, slot_bytes)):
        raise PayloadError("its columns are not those of a stamp batch")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch message says that its buffers are compressed: they could inflate without bound.

    Reads ``Message.header.compression`` of Arrow's flatbuffer, for which pyarrow has no call.

    Raises struct.error.
    """
    message = _u32(metadata, 0)
    header_field = message + _field(metadata, message, 2)
    return _field(metadata, header_field + _u32(metadata, header_field), 3) != 0


def _u32(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", data, offset)[0])


def _field(data: bytes, table: int, index: int) -> int:
    """Offset of a table's field from the table, 0 when it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise PayloadError("its batch header is broken")
    entry = 4 + 2 * index
    size = struct.unpack_from("<H", data, vtable)[0]
    return struct.unpack_from("<H", data, vtable + entry)[0] if entry < size else 0


def _to_numpy(launch: Launch, batch: pa.RecordBatch) -> StampBatch:
    if batch.num_rows > limits.MAX_BLOCKS:
        raise PayloadError(f"it has {batch.num_rows} blocks, the limit is {limits.MAX_BLOCKS}")
    if any(column.null_count for column in batch.columns):
        raise PayloadError("it has nulls")
    slots = batch.column("slots")
    flat = slots.flatten()
    if flat.null_count or len(flat) != batch.num_rows * slots.type.list_size:
        raise PayloadError("its slots have nulls")
    columns = {
        name: batch.column(name).to_numpy() for name in ("block", "epoch", "sm", "overflow", "time_ns")
    }
    if len(np.unique(columns["block"])) != batch.num_rows:
        raise PayloadError("it has a block twice")
    return StampBatch(
        launch=launch, slots=flat.to_numpy().reshape(batch.num_rows, slots.type.list_size), **columns
    )
