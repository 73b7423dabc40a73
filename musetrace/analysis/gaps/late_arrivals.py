"""The launches of one step in which a stop was passed latest: examples to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import largest_first
from musetrace.analysis.gaps.one_stop import stop_number
from musetrace.analysis.gaps.sends import Sends
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, check_scope, spans_by_step

Ints = npt.NDArray[np.int64]

MOST_ROWS = 8

_FIELDS = [
    ("rank", pa.uint32()),
    ("step", pa.uint32()),
    ("launch", pa.uint16()),
    ("layer", pa.int16()),
    ("kind", pa.string()),
    ("spread_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("block", pa.uint32()),
    ("is_tied", pa.bool_()),
    ("span", pa.uint32()),
    ("from_ns", pa.int64()),
    ("to_ns", pa.int64()),
]


def late_arrivals(run: RunLike, *, stop: str, step: int, layer_kind: str | None = None) -> pa.Table:
    """One row per rank and launch of a step, at most eight: those whose blocks arrive furthest apart, first.

    A launch in which only one block of the rank arrived has no row. Launches that the clock does not tell
    apart in ``spread_ns`` (from the first block's arrival at the stop to the last one's, as in ``arrivals``)
    stand in the order of ranks and of the step. ``block`` arrived last, or is the first of several that did
    within a tick (``is_tied``; null where that is not known). ``span`` is its last send: an index into
    ``run.spans(rank, step)``. ``from_ns`` and ``to_ns`` are the first and the last arrival from the run's
    origin (``spans.run_axis``).

    Meaning: examples of what ``arrivals`` sums up, to be looked at span by span.

    Raises:
        AnalysisError: the run has no such stop, step or layer kind.
    """
    number, scope, counted = stop_number(run, stop), Selection(layer_kind, None, step), Counted()
    check_scope(run, scope)
    send = list(stop_jobs(run.job_table).values())[number][1]
    found: list[dict[str, Any]] = []
    axis = RunAxis.of(run)
    for spans in spans_by_step(run, scope, counted) if send is not None else ():
        found += [row for one in spans for row in _rows(run, axis, one, send or 0)]
    rows = largest_first(found, "spread_ns", "uncertainty_ns")[:MOST_ROWS]
    return answer(run, _FIELDS, [_with_span(run, row, send or 0) for row in rows], counted)


def _rows(run: RunLike, axis: RunAxis, spans: StepSpans, send: int) -> list[dict[str, Any]]:
    sends, tick = Sends.of(spans, send, run.blocks), tick_ns(run)
    here, latest = sends.here, sends.latest_ns
    first = np.where(here, sends.last_ns, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    rows = []
    for at in np.flatnonzero(here.sum(axis=1) > 1).tolist():
        ends = np.array([first[at], latest[at]]) + spans.base_ns
        from_ns, to_ns = axis.on_axis(spans.rank, ends).tolist()
        near = here[at] & (sends.last_ns[at] > latest[at] - max(tick or 1, 1))
        rows.append(
            {
                "rank": spans.rank,
                "step": spans.step,
                "launch": int(spans.launch_id[at]),
                "layer": int(spans.launch_layer[at]),
                "kind": str(spans.launch_kind[at]),
                "spread_ns": int(latest[at] - first[at]),
                "uncertainty_ns": tick,
                "block": int(np.flatnonzero(near)[0]),
                "is_tied": None if tick is None else int(near.sum()) > 1,
                "from_ns": from_ns,
                "to_ns": to_ns,
            }
        )
    return rows


def _with_span(run: RunLike, row: Mapping[str, Any], send: int) -> dict[str, Any]:
    """The row with the index of the block's last sound send in the launch."""
    batch = run.spans(row["rank"], row["step"])
    columns: Sequence[Any] = [
        batch.column(name).to_numpy(zero_copy_only=False) for name in ("launch", "block", "job", "flag")
    ]
    launch, block, job, flag = columns
    mine = np.flatnonzero((launch == row["launch"]) & (block == row["block"]) & (job == send) & (flag == 0))
    begin, dur = (
        batch.column(name).take(pa.array(mine)).to_numpy().astype(np.int64) for name in ("begin", "dur")
    )
    return {**row, "span": int(mine[np.argmax(begin + dur)])}
