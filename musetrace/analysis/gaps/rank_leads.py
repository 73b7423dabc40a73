"""How long each rank is through with a stop before the last rank, in each step, counted by value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.gaps.last_rank import may_be_last
from musetrace.analysis.gaps.sends import Sends, seen_on_every_rank
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    """``lead`` by stop, step and ns, of the launches that every rank was seen in, on the aligned axis;
    ``judged``, ``last`` and ``tied`` by stop: of how many of them who was last can be told, in how many this
    rank was for certain, and in how many it was one of several.
    """
    states = [State() for _ in spans]
    for stop, (_, send) in enumerate(stop_jobs(run.job_table).values()):
        if send is not None:
            _add(run, stop, [Sends.of(one, send, run.blocks) for one in spans], states)
    return states


def _add(run: RunLike, stop: int, sends: Sequence[Sends], states: Sequence[State]) -> None:
    every = seen_on_every_rank(run, sends)
    if every is None:
        return
    shared, sent = every
    clocks = rank_times(run)
    of_ranks = [clocks[one.spans.rank] for one in sends]
    arrived = np.stack([clock.aligned(its_ns) for clock, its_ns in zip(of_ranks, sent, strict=True)])
    for one, state, lead in zip(sends, states, arrived.max(axis=0) - arrived, strict=True):
        state.add("lead", stop, one.spans.step, lead)
    late = may_be_last(sent, of_ranks, tick_ns(run))
    if late is None:
        return
    alone = late.sum(axis=0) == 1
    for state, its in zip(states, late, strict=True):
        state.add("judged", stop, sums=len(shared))
        state.add("last", stop, sums=int((its & alone).sum()))
        state.add("tied", stop, sums=int((its & ~alone).sum()))


RANK_LEADS = Sums("rank_leads", 1, _accumulate, all_ranks=True)
