"""How long each op takes in each step, counted by value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.instances import op_extents
from musetrace.analysis.spans.rows import JobRows, op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans


def op_rows(run: RunLike) -> JobRows[tuple[str, str]]:
    """The (op, kind of job) of a run; a state's rows are these, by id."""
    return JobRows(run.job_table, lambda job: op_and_kind(run.job_table, job))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    rows = op_rows(run)
    return [_state(one, rows) for one in spans]


def _state(spans: StepSpans, rows: JobRows[tuple[str, str]]) -> State:
    """One (rank, step): ``length`` by row, step and ns from the first begin to the last end of what a block
    did of it in a launch; ``launches`` by row and in how many launches of the step it was seen.
    """
    state = State()
    row, launch, _, begin, end = op_extents(spans, rows)
    if not len(row):
        return state
    row_id = rows.ids[row]
    state.add("length", row_id, spans.step, end - begin)
    # Sorted by row, then launch.
    opens = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(launch, prepend=-1) != 0))
    ids, number = np.unique(row_id[opens], return_counts=True)
    state.add("launches", ids, number)
    return state


OP_LENGTHS = Sums("op_lengths", 1, _accumulate)
