"""Which rows and times a question of the timeline is about."""

from __future__ import annotations

from musetrace.analysis.windows.rows import BLOCKS, KINDS, WARPS, Rows
from musetrace.dashboard.api.parameters import Parameters
from musetrace.dashboard.api.refusals import BadParameterError
from musetrace.dashboard.api.span_documents import SpanName
from musetrace.dashboard.api.timelines import RunTimeline

MOST_ROWS = 1 << 30
_MOST_ID = (1 << 32) - 1


def asked_rows(of: RunTimeline, asked: Parameters) -> Rows:
    """The rows of the timeline, by ``rows``, ``ranks`` and ``block``."""
    kind = asked.choice("rows", KINDS, BLOCKS)
    return of.rows(kind, asked.ranks(of.run), asked.block() if kind == WARPS else None)


def asked_time(of: RunTimeline, asked: Parameters) -> tuple[int, int]:
    """``[from, to)``; the whole run unless given."""
    from_ns, to_ns = asked.time("from", 0), asked.time("to", of.timeline.axis.to_ns)
    if from_ns >= to_ns:
        raise BadParameterError("from must be before to")
    return from_ns, to_ns


def asked_row_range(asked: Parameters, rows: Rows) -> tuple[int, int]:
    """``[row_from, row_to)``, cut at the last row; all of them unless given."""
    row_from = asked.number("row_from", 0, MOST_ROWS, 0)
    row_to = min(asked.number("row_to", 0, MOST_ROWS, rows.count), rows.count)
    if row_from >= row_to:
        raise BadParameterError(f"there are no such rows: there are {rows.count}")
    return row_from, row_to


def asked_span(asked: Parameters) -> SpanName:
    """``rank``, ``step`` and ``id``."""
    rank, step, span = (asked.number(name, 0, _MOST_ID) for name in ("rank", "step", "id"))
    return rank, step, span
