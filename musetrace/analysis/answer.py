"""The form of every answer: an Arrow table whose schema metadata says how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.certainty.clock_quality import (
    mean_uncertainty_ns,
    mean_uncertainty_of_squares,
    tick_ns_of,
)
from musetrace.analysis.certainty.observed import NAMES, total
from musetrace.analysis.certainty.percentiles import TENTHS, nearest_rank, rounded_mean
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted

Ints = npt.NDArray[np.int64]

_UNKNOWN = b"unknown"


def answer(
    run: RunLike,
    fields: Sequence[tuple[str, pa.DataType]],
    rows: Sequence[Mapping[str, Any]],
    counted: Counted,
) -> pa.Table:
    """A table of ``rows``. Its metadata: ``ignored`` (flagged spans left out), ``below_tick`` (sound spans
    shorter than the clock's step) and ``tick_ns`` (that step); the last two ``unknown`` where the step is.
    ``observed`` is the share of what the answer is about that was recorded (``unknown`` where it is about no
    launches), ``launches``, ``blocks`` and ``spans`` say ``seen/expected`` (``certainty.observed``).
    """
    tick = tick_ns(run)
    metadata = {
        b"ignored": str(counted.flagged).encode(),
        b"below_tick": _UNKNOWN if tick is None else str(counted.below_tick).encode(),
        b"tick_ns": _UNKNOWN if tick is None else str(tick).encode(),
        **_observed_metadata(counted),
    }
    schema = pa.schema([pa.field(name, kind) for name, kind in fields], metadata=metadata)
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _observed_metadata(counted: Counted) -> dict[bytes, bytes]:
    seen = total(counted.seen.values())
    share = seen.share
    counts = {
        name.encode(): f"{getattr(seen, name)}/{getattr(seen, f'{name}_expected')}".encode() for name in NAMES
    }
    return {b"observed": _UNKNOWN if share is None else repr(share).encode(), **counts}


def observed(table: pa.Table) -> float | None:
    """The share of what an answer is about that was recorded, at least; None: it is about no launches."""
    text = table.schema.metadata[b"observed"]
    return None if text == _UNKNOWN else float(text)


def observed_counts(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Launches, blocks of launches and spans behind an answer: how many were seen, of how many expected."""
    metadata = table.schema.metadata
    told = {name: metadata[name.encode()].decode().split("/") for name in NAMES}
    return {name: (int(seen), int(expected)) for name, (seen, expected) in told.items()}


def ignored_spans(table: pa.Table) -> int:
    """How many flagged spans an answer left out."""
    return int(table.schema.metadata[b"ignored"])


def below_tick_spans(table: pa.Table) -> int | None:
    """How many of an answer's spans are shorter than the clock's step; None where that is not known."""
    text = table.schema.metadata[b"below_tick"]
    return None if text == _UNKNOWN else int(text)


def tick_ns(run: RunLike) -> int | None:
    """The step of the clock that stamped the run, in ns: no single time is better. None where not known."""
    return tick_ns_of(run.manifest.get("clock"))


def host_tick_ns(run: RunLike) -> int | None:
    """The step of the host's clock that timed the run's steps, in ns; None where not known."""
    return tick_ns_of({"tick_ns": run.manifest.get("host_tick_ns")})


def spread(prefix: str, values: Ints, per_launch: Ints, tick: int | None) -> dict[str, int | None]:
    """The columns of :func:`spread_fields` for some differences of stamps.

    Args:
        prefix: what the values are.
        values: int64[n] in ns.
        per_launch: int64[launches], how many of them each launch gave.
        tick: step of the clock in ns, None where not known.
    """
    tenths = nearest_rank(values)
    some = len(values) > 0
    return {
        **{f"{prefix}_p{percent}_ns": value for percent, value in zip(TENTHS, tenths, strict=True)},
        f"{prefix}_uncertainty_ns": tick if some else None,
        f"{prefix}_mean_ns": rounded_mean(values) if some else None,
        f"{prefix}_mean_uncertainty_ns": mean_uncertainty_ns(tick, values, per_launch) if some else None,
    }


def spread_of_counts(
    prefix: str, counts: ValueCounts, squares: int, tick: int | None
) -> dict[str, int | None]:
    """The columns of :func:`spread_fields` for differences of stamps that were counted by value.

    ``squares``: the sum, over launches, of the square of how many of them the launch gave.
    """
    tenths = counts.nearest_rank()
    some = len(counts.values) > 0
    return {
        **{f"{prefix}_p{percent}_ns": value for percent, value in zip(TENTHS, tenths, strict=True)},
        f"{prefix}_uncertainty_ns": tick if some else None,
        f"{prefix}_mean_ns": counts.rounded_mean() if some else None,
        f"{prefix}_mean_uncertainty_ns": mean_uncertainty_of_squares(
            tick, squares, counts.n, counts.all_equal
        )
        if some
        else None,
    }


def spread_fields(prefix: str) -> list[tuple[str, pa.DataType]]:
    """Percentiles and the uncertainty of each of them, the mean and its own."""
    names = (*(f"p{percent}" for percent in TENTHS), "uncertainty", "mean", "mean_uncertainty")
    return [(f"{prefix}_{name}_ns", pa.int64()) for name in names]
