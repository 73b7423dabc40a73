"""The form of every answer: an Arrow table whose schema metadata says how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Ignored


def answer(
    run: RunLike,
    fields: Sequence[tuple[str, pa.DataType]],
    rows: Sequence[Mapping[str, Any]],
    ignored: Ignored,
) -> pa.Table:
    """A table of ``rows``; its metadata: ``ignored`` (flagged spans left out), ``tick_ns`` (clock step)."""
    metadata = {"ignored": str(ignored.spans), "tick_ns": str(tick_ns(run))}
    schema = pa.schema([pa.field(name, kind) for name, kind in fields], metadata=metadata)
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def ignored_spans(table: pa.Table) -> int:
    """How many flagged spans an answer left out."""
    return int(table.schema.metadata[b"ignored"])


def tick_ns(run: RunLike) -> int:
    """The step of the clock that stamped the run, in ns: no single time is better. 0 where unknown."""
    clock = run.manifest.get("clock")
    tick = clock.get("tick_ns") if isinstance(clock, dict) else None
    return tick if isinstance(tick, int) and tick > 0 else 0


def spread(prefix: str, tenths: tuple[int | None, ...]) -> dict[str, int | None]:
    """The three columns of a p10 / p50 / p90."""
    return {f"{prefix}_p{percent}_ns": value for percent, value in zip((10, 50, 90), tenths, strict=True)}


def spread_fields(prefix: str) -> list[tuple[str, pa.DataType]]:
    """The fields of :func:`spread`."""
    return [(f"{prefix}_p{percent}_ns", pa.int64()) for percent in (10, 50, 90)]
