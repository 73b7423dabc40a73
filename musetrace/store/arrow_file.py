"""Arrow IPC files whose batches carry a checksum, as Arrow has none of its own. Plain reads, no mapping."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from musetrace.errors import TraceFileError
from musetrace.store.arrow_blocks import columns_of, read_batch, read_footer
from musetrace.store.arrow_format import ArrowFormatError
from musetrace.store.byte_source import FileSource

_CRC_KEY = b"crc32"
_METADATA = {b"musetrace": b"1.0"}
_REMEDY = "delete manifest.json of the run, and its journals are indexed again"


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
    """Random access to the batches of such a file. Raises TraceFileError for whatever is wrong with it.

    The file's headers are read here and not by pyarrow, which can be brought to crash by a damaged one.
    """

    def __init__(self, path: Path, schemas: Sequence[pa.Schema]) -> None:
        """The file must have one of ``schemas``."""
        self._path = path
        self._source = FileSource(path)
        weakref.finalize(self, self._source.close)
        try:
            columns, self._blocks = read_footer(self._source)
        except ArrowFormatError as error:
            raise self.damaged(str(error)) from error
        fitting = [schema for schema in schemas if columns_of(schema) == columns]
        if not fitting:
            raise self.damaged("it has other columns than musetrace writes")
        self.schema = fitting[0]

    def __len__(self) -> int:
        """Number of batches."""
        return len(self._blocks)

    def batch(self, index: int) -> pa.RecordBatch:
        """A batch, checked against its checksum."""
        try:
            batch, metadata = read_batch(self._source, self._blocks[index], self.schema)
        except (ArrowFormatError, pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self.damaged(str(error).splitlines()[0]) from error
        if metadata.get(_CRC_KEY, b"") != str(_crc_of(batch, index)).encode():
            raise self.damaged(f"batch {index} does not match its checksum")
        return batch

    def table(self) -> pa.Table:
        """All batches as one table."""
        batches = [self.batch(index) for index in range(len(self))]
        return pa.Table.from_batches(batches, schema=self.schema)

    def damaged(self, what: str) -> TraceFileError:
        """The error that says so."""
        return TraceFileError(f"cannot read {self._path}: {what}; {_REMEDY}")


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
