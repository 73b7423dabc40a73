"""Arrow IPC files whose batches carry a checksum, as Arrow has none of its own. Plain reads, no mapping."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from musetrace.errors import TraceFileError

_CRC_KEY = b"crc32"
_METADATA = {b"musetrace": b"1.0"}
_REMEDY = "delete manifest.json of the run, and its journals are indexed again"
_Result = TypeVar("_Result")


class BatchWriter:
    """Writes an Arrow IPC file, a batch at a time. Context manager; the path must be a fresh one."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Raises OSError when the file cannot be made."""
        self._schema = schema.with_metadata(_METADATA)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._batches = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of the file's columns."""
        batch = batch.replace_schema_metadata(_METADATA)
        crc = str(_crc_of(batch, self._batches)).encode()
        self._writer.write_batch(batch, custom_metadata={_CRC_KEY: crc})
        self._batches += 1

    def __enter__(self) -> BatchWriter:
        """Itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write the footer and close the file."""
        try:
            self._writer.close()
        finally:
            self._sink.close()


class BatchReader:
    """Random access to the batches of such a file. Raises TraceFileError for whatever is wrong with it."""

    def __init__(self, path: Path, schemas: Sequence[pa.Schema]) -> None:
        """The file must have one of ``schemas``."""
        self._path = path
        self._reader = self._guard(lambda: pa.ipc.open_file(pa.OSFile(str(path), "rb")))
        self.schema = self._guard(lambda: self._reader.schema.remove_metadata())
        if not self._guard(lambda: any(self.schema.equals(schema) for schema in schemas)):
            raise self.damaged("it has other columns than musetrace writes")

    def __len__(self) -> int:
        """Number of batches."""
        return int(self._reader.num_record_batches)

    def batch(self, index: int) -> pa.RecordBatch:
        """A batch, checked against its checksum."""
        return self._guard(lambda: self._checked(index)).replace_schema_metadata(None)

    def table(self) -> pa.Table:
        """All batches as one table."""
        batches = [self.batch(index) for index in range(len(self))]
        return pa.Table.from_batches(batches, schema=self.schema)

    def damaged(self, what: str) -> TraceFileError:
        """The error that says so."""
        return TraceFileError(f"cannot read {self._path}: {what}; {_REMEDY}")

    def _checked(self, index: int) -> pa.RecordBatch:
        found = self._reader.get_batch_with_custom_metadata(index)
        batch, metadata = found.batch, found.custom_metadata or {}
        batch.validate(full=True)
        if metadata.get(_CRC_KEY, b"") != str(_crc_of(batch, index)).encode():
            raise self.damaged(f"batch {index} does not match its checksum")
        return batch

    def _guard(self, action: Callable[[], _Result]) -> _Result:
        try:
            return action()
        except TraceFileError:
            raise
        except Exception as error:
            # Arrow meets bytes from anywhere here, and says so with almost any exception.
            lines = str(error).splitlines() or [type(error).__name__]
            raise self.damaged(lines[0]) from error


def _crc_of(batch: pa.RecordBatch, index: int) -> int:
    """Of the values of a batch and its place in the file."""
    crc = zlib.crc32(f"{index} {batch.num_rows}".encode())
    for column in batch.columns:
        crc = zlib.crc32(_content(column), crc)
    return crc


def _content(column: pa.Array) -> Any:
    """The column's values as bytes, the same before writing and after reading."""
    if pa.types.is_string(column.type):
        return "\0".join(str(value) for value in column.to_pylist()).encode("utf-8", "surrogatepass")
    return memoryview(column.to_numpy(zero_copy_only=False)).cast("B") if len(column) else b""
