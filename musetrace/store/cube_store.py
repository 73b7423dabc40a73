"""Cubes: sums by key that the analysis makes of the spans once, kept beside them in the index.

A cube is two files, ``NAME.arrow`` with a batch of integers for each cell and ``NAME.json`` that says what
they are. What it is of (``identity``, of the run's manifest) and its version stand in both, and in every
batch. Whatever does not fit is as good as absent: a cube can always be made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.errors import MusetraceError
from musetrace.store import limits
from musetrace.store.arrow_file import BatchReader, BatchWriter
from musetrace.store.kept_probe import crc_of
from musetrace.store.payloads import PayloadError, decode_json
from musetrace.store.whole_file import write_atomically

CUBES = "cubes"
# Raised when the files' form changes.
FORMAT_VERSION = 1
MAX_KEYS = 4

_CRC_KEY = "crc32"
_KEYS = tuple(f"key{at}" for at in range(MAX_KEYS))
_SCHEMA = pa.schema([*((name, pa.int64()) for name in _KEYS), ("sum", pa.int64())])

Ints = npt.NDArray[np.int64]
Columns = tuple[tuple[Ints, ...], Ints]  # keys, sums


@dataclass(frozen=True)
class CubeCell:
    """One cell of a cube: ``about`` says of what, as plain JSON; tables of sums by name."""

    about: dict[str, Any]
    tables: Mapping[str, Columns] = field(default_factory=dict)


class CubeStore:
    """The cubes of a run, in a folder that need not exist."""

    def __init__(self, folder: Path, identity: int) -> None:
        """``identity`` is :func:`identity_of` the run's manifest."""
        self._folder = folder
        self._identity = identity

    def read(self, name: str, version: int) -> CubeFile | None:
        """A cube of this run in this version; None when there is none, or none that can be trusted."""
        try:
            told = decode_json(self._path(name, "json").read_bytes(), limits.MAX_MANIFEST_BYTES)
            if told.pop(_CRC_KEY) != crc_of(told) or told["head"] != self._head(name, version):
                return None
            if self._path(name, "arrow").stat().st_size != told["bytes"]:
                return None
            reader = BatchReader(self._path(name, "arrow"), [_SCHEMA])
            if len(reader) != len(told["cells"]):
                return None
        except (OSError, MusetraceError, PayloadError, KeyError, TypeError, AttributeError):
            return None
        return CubeFile(reader, told["cells"], self._identity, version)

    def write(self, name: str, version: int, cells: Sequence[CubeCell]) -> None:
        """Keep a cube, in place of another one. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        temporary = self._folder / f".{name}-{os.getpid()}"
        try:
            with BatchWriter(temporary, _SCHEMA) as writer:
                for place, cell in enumerate(cells):
                    writer.write(_batch(cell, self._identity, version, place))
            told = {
                "head": self._head(name, version),
                "bytes": temporary.stat().st_size,
                "cells": [_told(cell) for cell in cells],
            }
            # The description goes first and comes last: nobody takes one for that of another cube.
            self._path(name, "json").unlink(missing_ok=True)
            temporary.replace(self._path(name, "arrow"))
        finally:
            temporary.unlink(missing_ok=True)
        write_atomically(self._path(name, "json"), json.dumps({_CRC_KEY: crc_of(told), **told}) + "\n")

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.{suffix}"

    def _head(self, name: str, version: int) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, "cube": name, "version": version, "run": self._identity}


class CubeFile:
    """A cube that fits its run; the batches are read when they are asked for."""

    def __init__(
        self, reader: BatchReader, cells: Sequence[dict[str, Any]], identity: int, version: int
    ) -> None:
        """``cells`` as the description has them."""
        self._reader = reader
        self._cells = cells
        self._mark = (identity, version)
        self.abouts: list[dict[str, Any]] = [cell["about"] for cell in cells]

    def cell(self, place: int) -> CubeCell | None:
        """The cell at a place; None when it is damaged."""
        try:
            batch = self._reader.batch(place)
        except (OSError, MusetraceError):
            return None
        *keys, sums = (column.to_numpy() for column in batch.columns)
        tables = self._cells[place]["tables"]
        rows = sum(table["rows"] for table in tables)
        mark = tuple(int(column[0]) for column in keys[:3]) if len(sums) else ()
        if len(sums) != rows + 1 or mark != (*self._mark, place):
            return None
        found: dict[str, Columns] = {}
        at = 1
        for table in tables:
            until = at + table["rows"]
            found[table["name"]] = tuple(key[at:until] for key in keys[: table["keys"]]), sums[at:until]
            at = until
        return CubeCell(self.abouts[place], found)


def identity_of(manifest: Mapping[str, Any], without: str) -> int:
    """A checksum of all that an index is; ``without`` is a section that has nothing to do with its spans."""
    return crc_of({name: value for name, value in manifest.items() if name != without})


def _told(cell: CubeCell) -> dict[str, Any]:
    tables = [
        {"name": name, "keys": len(keys), "rows": len(sums)} for name, (keys, sums) in cell.tables.items()
    ]
    return {"about": cell.about, "tables": tables}


def _batch(cell: CubeCell, identity: int, version: int, place: int) -> pa.RecordBatch:
    """The tables of a cell one after the other, behind a row that marks whose they are."""
    rows = 1 + sum(len(sums) for _, sums in cell.tables.values())
    columns = np.zeros((MAX_KEYS + 1, rows), dtype=np.int64)
    columns[:3, 0] = identity, version, place
    at = 1
    for keys, sums in cell.tables.values():
        until = at + len(sums)
        for column, key in zip(columns, keys, strict=False):
            column[at:until] = key
        columns[-1, at:until] = sums
        at = until
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_SCHEMA)
