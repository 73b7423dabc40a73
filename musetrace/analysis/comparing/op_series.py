"""How long every op takes: a number for each step of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.observed import Seen
from musetrace.analysis.comparing.step_series import RankSeries, Series, mean_over_ranks
from musetrace.analysis.kept_sums.cubes import states_by_kind
from musetrace.analysis.kept_sums.op_lengths import OP_LENGTHS, op_rows
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike


def op_series(
    run: RunLike, ranks: Collection[int], layer_kind: str | None, seen: Seen | None = None
) -> RankSeries:
    """The length of every op, by (kind of launch, op, kind of job); what was seen is added to ``seen``.

    A step's number is the mean over ranks of the median over launches x blocks of the time from the first
    begin to the last end of what a block did of it in a launch. Names are in the order of the launches, then
    of the job table.
    """
    rows, tick = op_rows(run), tick_ns(run)
    by_kind = states_by_kind(run, OP_LENGTHS, ranks, layer_kind)
    if seen is not None:
        seen.add(by_kind.seen)
    found = RankSeries()
    for kind, states in by_kind.states.items():
        launches = {rank: _launches(state) for rank, state in states.items()}
        medians = {rank: _medians(state) for rank, state in states.items() if rank is not None}
        for row in launches[None]:
            name = (kind, *rows.name_of(row))
            of_ranks = {rank: of[row] for rank, of in medians.items() if row in of}
            for rank, (of_steps, count) in of_ranks.items():
                means = mean_over_ranks([of_steps])
                found.by_rank[rank, name] = Series(means, tick, launches[rank][row], count)
            means = mean_over_ranks([of_steps for of_steps, _ in of_ranks.values()])
            count = sum(count for _, count in of_ranks.values())
            found.names[name] = Series(means, tick, launches[None][row], count)
    return found


def _launches(state: State) -> Mapping[int, int]:
    """By op, in the order of the job table: in how many launches of a step it is seen, the median."""
    groups = state.sum_of("launches", 2).groups()
    return {row: ValueCounts.of(numbers).nearest_rank((50,))[0] or 0 for row, numbers in groups}


def _medians(state: State) -> Mapping[int, tuple[dict[int, int], int]]:
    """By op of one rank: the median length in each step, and how many there are in all."""
    found = {}
    for row, of_row in state.sum_of("length", 3).groups():
        steps = {step: ValueCounts.of(lengths) for step, lengths in of_row.groups()}
        medians = {step: counts.nearest_rank((50,))[0] or 0 for step, counts in steps.items()}
        found[row] = medians, sum(counts.n for counts in steps.values())
    return found
