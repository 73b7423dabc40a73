"""When each op runs within its launch: the rows of the layer's timeline."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from musetrace.analysis.answer import answer, spread_fields, spread_of_counts, tick_ns
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.instances import op_extents
from musetrace.analysis.spans.rows import JobRows, op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, chosen_ranks

_FIELDS = [
    ("op", pa.string()),
    ("kind", pa.string()),
    *spread_fields("begin"),
    *spread_fields("end"),
    *spread_fields("dur"),
    ("blocks", pa.uint32()),
    ("blocks_total", pa.uint32()),
    ("n", pa.uint64()),
]


def op_timeline(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (op, kind of job) in job-table order: its begin and end, relative to the launch's begin.

    An instance is what one block does of it in one (rank, step, launch): from the earliest begin to the
    latest end of its spans. ``begin_*``, ``end_*`` and ``dur_*`` are exact nearest-rank percentiles and means
    over the ``n`` instances; ``blocks`` of ``blocks_total`` (rank, block) pairs run it at all. A row that
    no sound span belongs to is left out, so an empty run gives an empty table.

    Meaning: where the op stands in a typical launch. It lies where it mixes things: the median begin and
    the median end need not come from the same block, and without ``layer_kind`` launches of different shape
    are pooled. An instance with a pause in it counts as one piece. A load's end is its issue, not its
    landing, where the kernel stamps it so. Spans with a flag are left out (metadata ``ignored``).
    Source: the article's figure, "bars are medians over blocks x layers x replays x GPUs".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, OP_TIMELINE, Selection(layer_kind, rank, step))


def _rows(run: RunLike) -> JobRows[tuple[str, str]]:
    return JobRows(run.job_table, lambda job: op_and_kind(run.job_table, job))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    rows = _rows(run)
    return [_state(one, rows) for one in spans]


def _state(spans: StepSpans, rows: JobRows[tuple[str, str]]) -> State:
    state = State()
    if len(spans.job) == 0:
        return state
    row, launch, block, begin, end = op_extents(spans, rows)
    row_id = rows.ids[row]
    begin, end = begin - spans.launch_begin[launch], end - spans.launch_begin[launch]
    for name, values in (("begin", begin), ("end", end), ("dur", end - begin)):
        state.add(name, row_id, values)
    state.add("blocks", row_id, spans.rank, block)
    state.add_launches("instances", row_id, spans.launch_id[launch])
    return state


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    rows, tick = _rows(run), tick_ns(run)
    blocks_total = run.job_table.blocks_of(selection.layer_kind or "", run.blocks) * len(
        chosen_ranks(run, selection)
    )
    blocks = {row: len(of_row) for row, of_row in state.sum_of("blocks", 3).groups()}
    found: dict[int, dict[str, object]] = {}
    for prefix in ("begin", "end", "dur"):
        for row, of_row in state.sum_of(prefix, 2).groups():
            counts, squares = ValueCounts.of(of_row), state.square_of("instances", row)
            found.setdefault(row, {}).update(spread_of_counts(prefix, counts, squares, tick))
            found[row]["n"] = counts.n
    names = {row: rows.name_of(row) for row in found}
    return answer(
        run,
        _FIELDS,
        [
            {
                "op": names[row][0],
                "kind": names[row][1],
                "blocks": blocks[row],
                "blocks_total": blocks_total,
                **times,
            }
            for row, times in found.items()
        ],
        counted,
    )


OP_TIMELINE = Question("op_timeline", 1, _accumulate, _finish)
