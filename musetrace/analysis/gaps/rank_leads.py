"""How long each rank is through with a stop before the last rank, in each step, counted by value."""

from __future__ import annotations

from collections.abc import Sequence

from musetrace.analysis.gaps.sends import Sends, leads
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    """``lead`` by stop, step and ns, of the launches that every rank was seen in, on the aligned axis."""
    states = [State() for _ in spans]
    for stop, (_, send) in enumerate(stop_jobs(run.job_table).values()):
        found = None if send is None else leads(run, [Sends.of(one, send, run.blocks) for one in spans])
        if found is not None:
            for one, state, its_ns in zip(spans, states, found[1], strict=True):
                state.add("lead", stop, one.step, its_ns)
    return states


RANK_LEADS = Sums("rank_leads", 1, _accumulate, all_ranks=True)
