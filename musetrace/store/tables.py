"""The columns of the store's three tables, and what becomes of a step on its way into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.store import limits
from musetrace.store.decode import Flag, LaunchSpans, Spans, concatenate
from musetrace.store.payloads import Step

LAUNCHES = pa.schema(
    [
        ("step", pa.uint32()),
        ("launch", pa.uint16()),
        ("layer", pa.int16()),
        ("kind", pa.string()),
        ("epoch", pa.uint32()),
        ("begin_ns", pa.uint64()),
        ("end_ns", pa.uint64()),
        ("blocks", pa.uint16()),
        ("stale_blocks", pa.uint16()),
        ("spans", pa.uint32()),
        ("submit_ns", pa.uint64()),
        ("done_ns", pa.uint64()),
    ]
)
STEPS = pa.schema(
    [
        ("step", pa.uint32()),
        ("base_ns", pa.uint64()),
        ("end_ns", pa.uint64()),
        ("launches", pa.uint16()),
        ("spans", pa.uint32()),
        ("host_begin_ns", pa.uint64()),
        ("host_end_ns", pa.uint64()),
        ("tokens", pa.uint16()),
        ("output", pa.string()),
    ]
)
# As indexes were made before outputs had a hash.
STEPS_SCHEMAS = [STEPS, STEPS.remove(STEPS.get_field_index("output"))]
_MAX_U32 = (1 << 32) - 1


class StepTooLongError(Exception):
    """A step does not fit into u32 ns from its base: the file needs u64 columns."""


def spans_schema(wide: bool, instances: bool = False) -> pa.Schema:
    """The spans of a step; ``wide`` for a file with a step longer than 4.29 s.

    With ``instances``, for a job table that has iterations or payloads, three more columns say which instance
    of its job a span is, and what it carries: ``payload`` is 0 where ``has_payload`` is.
    """
    time = pa.uint64() if wide else pa.uint32()
    columns = [
        ("begin", time),
        ("dur", time),
        ("job", pa.uint16()),
        ("launch", pa.uint16()),
        ("layer", pa.int16()),
    ]
    columns += [("block", pa.uint16()), ("sm", pa.uint16()), ("warp", pa.uint8()), ("flag", pa.uint8())]
    if instances:
        columns += [("iteration", pa.uint16()), ("payload", pa.uint32()), ("has_payload", pa.uint8())]
    return pa.schema(columns)


SPANS_SCHEMAS = [spans_schema(wide, instances) for wide in (False, True) for instances in (False, True)]


class StepBatch:
    """The launches of one step of one rank, until the step is complete."""

    def __init__(self, step: int) -> None:
        """No launches yet."""
        self.step = step
        self.host: Step | None = None
        self.launches: list[LaunchSpans] = []
        self._seen: set[int] = set()

    def add(self, launch: LaunchSpans) -> bool:
        """Take a launch; False when the step has one with this number already."""
        if launch.launch.launch in self._seen:
            return False
        self._seen.add(launch.launch.launch)
        self.launches.append(launch)
        return True

    def bounds(self) -> tuple[int, int]:
        """Earliest and latest believable time of the step, (0, 0) when nothing was stamped."""
        stamped = [launch for launch in self.launches if launch.end_ns]
        if not stamped:
            return 0, 0
        return min(launch.begin_ns for launch in stamped), max(launch.end_ns for launch in stamped)

    def _in_order(self) -> list[LaunchSpans]:
        return sorted(self.launches, key=lambda launch: launch.launch.launch)

    def spans_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The step's spans, sorted by block and begin. Raises StepTooLongError unless the schema is wide."""
        wide = schema.field("begin").type == pa.uint64()
        base_ns, end_ns = self.bounds()
        if not wide and end_ns - base_ns > _MAX_U32:
            raise StepTooLongError
        filled = [launch for launch in self._in_order() if len(launch.spans)]
        if not filled:
            return _empty(schema)
        return _sorted_batch(filled, base_ns, end_ns, schema)

    def launches_batch(self) -> pa.RecordBatch:
        """The step's rows of the launches table."""
        rows = [_launch_row(self.step, launch) for launch in self._in_order()]
        return pa.RecordBatch.from_pylist(rows, schema=LAUNCHES)

    def step_row(self) -> dict[str, Any]:
        """The step's row of the steps table."""
        base_ns, end_ns = self.bounds()
        host = self.host or Step(self.step, 0, 0, 0)
        return {
            "step": self.step,
            "base_ns": base_ns,
            "end_ns": end_ns,
            "launches": len(self.launches),
            "spans": sum(len(launch.spans) for launch in self.launches),
            "host_begin_ns": host.host_begin_ns,
            "host_end_ns": host.host_end_ns,
            "tokens": host.tokens,
            "output": host.output,
        }

    def count(self, losses: dict[str, int]) -> None:
        """Add what is odd in this step to a table of losses."""
        for launch in self.launches:
            losses["overflow_stamps"] += launch.overflow
            losses["dropped_blocks"] += launch.launch.dropped_blocks
            flags = np.bincount(launch.spans.flag, minlength=len(Flag))
            for flag in Flag:
                if flag is not Flag.OK:
                    losses[flag.name.lower()] += int(flags[flag])
            losses["unknown_job"] += int(np.count_nonzero(launch.spans.job >= limits.UNKNOWN_JOB_BASE))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)


def _sorted_batch(
    launches: list[LaunchSpans], base_ns: int, end_ns: int, schema: pa.Schema
) -> pa.RecordBatch:
    spans = concatenate([launch.spans for launch in launches])
    lengths = [len(launch.spans) for launch in launches]
    # Only rows with an unbelievable time lie outside; they are kept at the step's edge.
    begin = np.clip(spans.begin, np.uint64(base_ns), np.uint64(end_ns)) - np.uint64(base_ns)
    order = _order(spans, begin)
    columns = {
        "begin": begin,
        "dur": spans.dur,
        "job": spans.job,
        "launch": np.repeat(
            np.array([launch.launch.launch for launch in launches], dtype=np.uint16), lengths
        ),
        "layer": np.repeat(np.array([launch.launch.layer for launch in launches], dtype=np.int16), lengths),
        "block": spans.block,
        "sm": spans.sm,
        "warp": spans.warp,
        "flag": spans.flag,
        "iteration": spans.iteration,
        "payload": spans.payload,
        "has_payload": spans.has_payload,
    }
    arrays = [pa.array(columns[f.name][order].astype(f.type.to_pandas_dtype(), copy=False)) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _order(spans: Spans, begin: Any) -> Any:
    """Rows by block, then begin; equal ones stay by launch and slot, so that the order is always the same."""
    if len(begin) and int(begin.max()) >> 48:
        return np.lexsort((begin, spans.block))
    return np.argsort(spans.block.astype(np.uint64) << np.uint64(48) | begin, kind="stable")


def _launch_row(step: int, launch: LaunchSpans) -> dict[str, Any]:
    info = launch.launch
    return {
        "step": step,
        "launch": info.launch,
        "layer": info.layer,
        "kind": info.kind,
        "epoch": info.epoch,
        "begin_ns": launch.begin_ns,
        "end_ns": launch.end_ns,
        "blocks": launch.blocks,
        "stale_blocks": launch.stale_blocks,
        "spans": len(launch.spans),
        "submit_ns": info.submit_ns,
        "done_ns": info.done_ns,
    }
