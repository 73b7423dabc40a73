"""What each step is made of, as sums that add up: busy time by op and idle time by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from musetrace.analysis.gaps.idle_pieces import KindClasses, idle_pieces
from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.rows import BUSY_KINDS, JobRows, op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans

# Of "spans", by step and rank: spans that count, flagged ones, sound ones below the clock's step.
SOUND, FLAGGED, BELOW_TICK = range(3)
# Of "blocks", by step: blocks of launches that count, their time in ns, launches.
BLOCKS, WALL, LAUNCHES = range(3)


def busy_ops(run: RunLike) -> JobRows[str]:
    """The ops of a run that are busy; a state's rows are these, by id."""

    def busy_op(job: int) -> str | None:
        op, kind = op_and_kind(run.job_table, job)
        return op if kind in BUSY_KINDS else None

    return JobRows(run.job_table, busy_op)


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    rows, classes = busy_ops(run), KindClasses.of(run)
    return [_state(one, run.blocks, rows, classes) for one in spans]


def _state(spans: StepSpans, blocks: int, rows: JobRows[str], classes: KindClasses) -> State:
    """One (rank, step); every key begins with the step.

    ``busy`` by op and ``idle`` by cause are ns of all blocks of launches, cut at the launch, and
    ``busy_pieces`` and ``idle_pieces`` what they are made of. Pieces are counted by launch under the same
    names, in ``all_idle``, and in ``wall_and_idle`` together with each block's whole time.
    """
    state, step, launches = State(), spans.step, len(spans.launch_id)
    counts = (len(spans.job), int(spans.launch_flagged.sum()), int(spans.launch_below_tick.sum()))
    for what, number in zip((SOUND, FLAGGED, BELOW_TICK), counts, strict=True):
        state.add("spans", step, spans.rank, what, sums=number)
    pieces = idle_pieces(spans, blocks, classes)
    numbers = (len(pieces.instances), int(pieces.wall_ns.sum()), launches)
    for what, number in zip((BLOCKS, WALL, LAUNCHES), numbers, strict=True):
        state.add("blocks", step, what, sums=number)
    launch = spans.launch_id[pieces.instance % launches]
    state.add("idle", step, pieces.cause, sums=pieces.length_ns)
    state.add("idle_pieces", step, pieces.cause)
    state.add_launches("idle", step, pieces.cause, launch)
    state.add_launches("all_idle", step, launch)
    whole = np.concatenate([launch, spans.launch_id[pieces.instances % launches]])
    state.add_launches("wall_and_idle", step, whole)
    row_of_job = rows.by_job(spans.job)
    instance, row, covered, number_of = spans.by_instance(blocks).op_unions(row_of_job, len(rows.names))
    row_id = rows.ids[row]
    state.add("busy", step, row_id, sums=covered)
    state.add("busy_pieces", step, row_id, sums=number_of)
    state.add_launches("busy", step, row_id, spans.launch_id[instance % launches], sums=number_of)
    return state


STEP_SUMS = Sums("step_sums", 1, _accumulate)


def blocks_of(state: State) -> dict[int, int]:
    """How many blocks of launches count in each step that has some, steps growing."""
    blocks = state.sum_of("blocks", 2)
    mine = blocks.where(blocks.keys[1] == BLOCKS)
    return dict(zip(mine.keys[0].tolist(), mine.sums.tolist(), strict=True))


def launches_of(states: Mapping[int | None, State]) -> int:
    """The most launches in a step of one rank; the states of all ranks together stand under None."""
    numbers = [state.sum_of("blocks", 2) for rank, state in states.items() if rank is not None]
    return max(int(of.sums[of.keys[1] == LAUNCHES].max(initial=0)) for of in numbers)
