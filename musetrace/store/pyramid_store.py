"""The pixel pyramid of a run: for each step of a rank, cells of several lengths, kept beside the cubes.

Two files, ``pyramid.arrow`` with a batch of cells for each (rank, step, level) and ``pyramid.json`` that says
what they are and of which run. Whatever does not fit is as good as absent: a pyramid can always be made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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

# Raised when the files' form changes.
FORMAT_VERSION = 1

_CRC_KEY = "crc32"
_SCHEMA = pa.schema([("place", pa.uint8()), ("share", pa.uint8())])

Bytes = npt.NDArray[np.uint8]
Key = tuple[int, int, int]  # rank, step, level


@dataclass(frozen=True)
class Cells:
    """u8[blocks, columns] each: what takes most of a cell's time, and how much of it is covered."""

    place: Bytes
    share: Bytes

    @property
    def bytes(self) -> int:
        """What it takes of memory."""
        return self.place.nbytes + self.share.nbytes


class PyramidStore:
    """The pyramid of a run, in a folder that need not exist."""

    def __init__(self, folder: Path, identity: int) -> None:
        """``identity`` is ``cube_store.identity_of`` the run's manifest."""
        self._folder = folder
        self._identity = identity

    def read(self, version: int) -> PyramidFile | None:
        """The pyramid of this run in this version; None when there is none, or none that can be trusted."""
        try:
            told = decode_json(self._path("json").read_bytes(), limits.MAX_MANIFEST_BYTES)
            if told.pop(_CRC_KEY) != crc_of(told) or told["head"] != self._head(version):
                return None
            if self._path("arrow").stat().st_size != told["bytes"]:
                return None
            reader = BatchReader(self._path("arrow"), [_SCHEMA])
            shapes = {tuple(cell[:3]): (place, *cell[3:]) for place, cell in enumerate(told["cells"])}
            if len(reader) != len(shapes):
                return None
            return PyramidFile(reader, told["about"], shapes)
        except (OSError, MusetraceError, PayloadError, KeyError, TypeError, AttributeError):
            return None

    def write(self, version: int, about: Mapping[str, Any], parts: Iterable[tuple[Key, Cells]]) -> None:
        """Keep a pyramid in place of another one; ``parts`` are written as they come. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        temporary = self._folder / f".pyramid-{os.getpid()}"
        cells: list[list[int]] = []
        try:
            with BatchWriter(temporary, _SCHEMA) as writer:
                for key, part in parts:
                    columns = [pa.array(one.ravel()) for one in (part.place, part.share)]
                    writer.write(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
                    cells.append([*key, *part.place.shape])
            told = {
                "head": self._head(version),
                "bytes": temporary.stat().st_size,
                "about": about,
                "cells": cells,
            }
            # The description goes first and comes last: nobody takes one for that of another pyramid.
            self._path("json").unlink(missing_ok=True)
            temporary.replace(self._path("arrow"))
        finally:
            temporary.unlink(missing_ok=True)
        write_atomically(self._path("json"), json.dumps({_CRC_KEY: crc_of(told), **told}) + "\n")

    def remove(self) -> None:
        """Forget a pyramid that turned out to be damaged. Raises OSError."""
        self._path("json").unlink(missing_ok=True)

    def _path(self, suffix: str) -> Path:
        return self._folder / f"pyramid.{suffix}"

    def _head(self, version: int) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, "version": version, "run": self._identity}


class PyramidFile:
    """A pyramid that fits its run; cells are read when they are asked for. Safe to use from threads."""

    def __init__(
        self, reader: BatchReader, about: dict[str, Any], shapes: Mapping[Any, tuple[int, int, int]]
    ) -> None:
        """``shapes``: by (rank, step, level) the batch, its rows and its columns."""
        self._reader = reader
        self._shapes = shapes
        self.about = about

    def cells(self, rank: int, step: int, level: int) -> Cells | None:
        """The cells of a step; None where there are none, or none that can be read."""
        try:
            batch, rows, columns = self._shapes[rank, step, level]
            place, share = (
                column.to_numpy().reshape(rows, columns) for column in self._reader.batch(batch).columns
            )
        except (OSError, MusetraceError, KeyError, ValueError):
            return None
        return Cells(place, share)
