"""The payload of a stamp chunk: round trip, and refusal of everything that is not one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace import _core
from musetrace.store.payloads import PayloadError
from musetrace.store.stamp_batch import StampEncoder, decode_stamps, stamp_schema
from tests import slow_reader

LAUNCH = {"step": 3, "launch": 1, "layer": -1, "kind": "entry", "epoch": 9, "submit_ns": 5, "done_ns": 8}


def encode(blocks: int, slots: int, slot_bytes: int, seed: int = 0) -> tuple[bytes, Any, Any]:
    random = np.random.default_rng(seed)
    headers = np.zeros(blocks, dtype=np.dtype(_core.abi.block_header_dtype))
    for name in ("time_ns", "epoch", "sm", "overflow"):
        headers[name] = random.integers(0, 2**32, blocks)
    stamps = random.integers(0, 2**32, (blocks, slots)).astype(f"u{slot_bytes or 4}")
    encoder = StampEncoder(blocks, slots, slot_bytes)
    memory = memoryview(bytearray(encoder.capacity_bytes))
    length = encoder.encode(memory, LAUNCH, headers, stamps if slot_bytes else stamps[:0])
    return bytes(memory[:length]), headers, stamps


@given(st.integers(1, 5), st.sampled_from([2, 16, 256]), st.sampled_from([4, 8]), st.integers(0, 2**32))
def test_a_batch_survives_and_any_arrow_reader_reads_it(
    blocks: int, slots: int, slot_bytes: int, seed: int
) -> None:
    payload, headers, stamps = encode(blocks, slots, slot_bytes, seed)
    batch = decode_stamps(payload)
    # A launch that does not say so is of the only kernel, and none of its blocks lacked room.
    assert vars(batch.launch) == {**LAUNCH, "kernel": 0, "dropped_blocks": 0}
    assert batch.block.tolist() == list(range(blocks))
    for name in ("time_ns", "epoch", "sm", "overflow"):
        assert getattr(batch, name).tolist() == headers[name].tolist()
    assert batch.slots.tolist() == stamps.tolist()
    launch, width, rows = slow_reader.read_stamps(payload)
    assert (launch, width) == (LAUNCH, slot_bytes)
    assert [row.slots for row in rows] == stamps.tolist()


def test_without_stamps_the_batch_has_no_rows() -> None:
    payload, _, _ = encode(5, 16, 0)
    batch = decode_stamps(payload)
    assert (len(batch.block), batch.slots.shape) == (0, (0, 16))
    assert batch.launch.step == 3


@pytest.mark.parametrize("slots", [256, 384, 65536])
def test_the_capacity_holds_the_largest_batch(slots: int) -> None:
    payload, _, _ = encode(132, slots, 8)
    assert len(payload) <= StampEncoder(132, slots, 8).capacity_bytes


def stream(schema: pa.Schema, columns: list[Any], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue())


def valid_columns(rows: int, slots: int) -> list[Any]:
    columns = [pa.array(np.arange(rows), type=pa.uint16())]
    columns += [pa.array(np.zeros(rows), type=kind) for kind in (pa.uint32(),) * 3 + (pa.uint64(),)]
    return [*columns, pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * slots, dtype="u8")), slots)]


def random_columns(slots: int) -> list[Any]:
    random = np.random.default_rng(0)
    columns = [pa.array([7], type=pa.uint16())]
    columns += [pa.array(random.integers(0, 2**32, 1).astype(f"u{width}")) for width in (4, 4, 4, 8)]
    values = pa.array(random.integers(0, 2**63, slots).astype("u8"))
    return [*columns, pa.FixedSizeListArray.from_arrays(values, slots)]


def launch_schema(slots: int = 4, **changes: Any) -> pa.Schema:
    launch = {**LAUNCH, **changes}
    return stamp_schema(slots, 8).with_metadata({b"launch": json.dumps(launch).encode()})


def cast(columns: list[Any], schema: pa.Schema) -> list[Any]:
    return [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]


def refused() -> dict[str, bytes]:
    schema = launch_schema()
    columns = cast(valid_columns(2, 4), schema)
    with_null = [pa.array([0, None], type=pa.uint16()), *columns[1:]]
    twice = [pa.array([1, 1], type=pa.uint16()), *columns[1:]]
    loose = pa.schema([pa.field(field.name, field.type) for field in schema], metadata=schema.metadata)
    other = pa.schema([("a", pa.int8())], metadata=schema.metadata)
    odd = stamp_schema(3, 8).with_metadata(schema.metadata)
    good = stream(schema, columns)
    return {
        "nothing": b"",
        "text": b"hello" * 100,
        "cut": good[: len(good) // 2],
        "no batch": bytes(schema.serialize()) + b"\xff\xff\xff\xff\0\0\0\0",
        "other columns": stream(other, [pa.array([1], type=pa.int8())]),
        "nulls": stream(loose, with_null),
        "a block twice": stream(schema, twice),
        "odd slots": stream(odd, cast(valid_columns(2, 3), odd)),
        "compressed": stream(schema, columns, compression="zstd"),
        # Random bytes do not shrink, so the columns stay long enough to be mistaken for plain ones.
        "compressed in vain": stream(schema, cast(random_columns(4), schema), compression="lz4"),
        "no launch": stream(schema.remove_metadata(), columns),
        "epoch 0": stream(launch_schema(epoch=0), columns),
        "launch beyond u16": stream(launch_schema(launch=65536), columns),
        "layer beyond i16": stream(launch_schema(layer=-40000), columns),
        "step is text": stream(launch_schema(step="3"), columns),
        "step is a bool": stream(launch_schema(step=True), columns),
    }


def test_the_builder_of_bad_batches_makes_good_ones_too() -> None:
    schema = launch_schema()
    assert decode_stamps(stream(schema, cast(valid_columns(2, 4), schema))).block.tolist() == [0, 1]


@pytest.mark.parametrize("what", list(refused()))
def test_what_is_no_stamp_batch_is_refused(what: str) -> None:
    with pytest.raises(PayloadError):
        decode_stamps(refused()[what])


def test_a_list_of_size_0_is_refused_before_arrow_divides_by_it() -> None:
    slot_type = pa.list_(pa.field("item", pa.uint64(), nullable=False), 0)
    schema = launch_schema()
    fields = [*list(schema)[:-1], pa.field("slots", slot_type, nullable=False)]
    payload = bytes(pa.schema(fields, metadata=schema.metadata).serialize())
    with pytest.raises(PayloadError):
        decode_stamps(payload)


@given(st.data())
def test_a_mutant_is_refused_or_has_the_right_shape(data: st.DataObject) -> None:
    payload, _, _ = encode(3, 16, 4)
    position = data.draw(st.integers(0, len(payload) - 1))
    value = data.draw(st.integers(0, 255))
    mutant = payload[:position] + bytes([value]) + payload[position + 1 :]
    try:
        batch = decode_stamps(mutant)
    except PayloadError:
        return
    assert batch.slots.shape[0] == len(batch.block) == len(batch.epoch) == len(batch.time_ns)
    assert batch.slots.shape[1] % 2 == 0
