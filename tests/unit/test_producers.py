"""Each wait knows the span that it was matched with: against every span, in plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.gaps.producers import NO_TIME, matches
from musetrace.analysis.gaps.wait_jobs import narrowest_scope, wait_jobs
from musetrace.analysis.spans.selection import Counted, Selection, spans_by_step
from musetrace.analysis.spans.step_axis import StepAxis
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun


@given(questions(), st.sampled_from(["block", "rank", "ranks"]))
@settings(max_examples=100, deadline=None)
def test_the_span_of_a_match_is_the_last_producer(question: tuple[FakeRun, Any], scope: str) -> None:
    run, _ = question
    clocks = rank_times(run)
    for spans in spans_by_step(run, Selection(), Counted()):
        axis = StepAxis.of(spans, clocks)
        for job in wait_jobs(run.job_table):
            match = matches(
                *(axis, job.wait, job.producer, scope),
                by_iteration=False,
                clocks=clocks,
                tick_ns=run.tick_ns,
                blocks=run.blocks,
            )
            for at, wait in enumerate(range(*axis.spans_of(job.wait).indices(len(axis.end)))):
                begun = candidates(run, axis, wait, job.producer, scope)
                ended = [
                    one for one in begun if axis.end[one] <= axis.end[wait] + error(run, axis, wait, one)
                ]
                found = int(match.span[at])
                if ended:
                    assert found in ended
                    assert axis.end[found] == match.end[at] == max(axis.end[one] for one in ended)
                elif begun:
                    assert match.under_way[at]
                    assert found in begun
                    assert axis.begin[found] == max(axis.begin[one] for one in begun)
                else:
                    assert (found, match.end[at]) == (-1, NO_TIME)


def error(run: FakeRun, axis: StepAxis, one: int, other: int) -> int:
    clocks = rank_times(run)
    first, second = (clocks[axis.ranks[axis.rank[at]]] for at in (one, other))
    off = first.error_to(second)
    return -(10**9) if off is None else off


def candidates(run: FakeRun, axis: StepAxis, wait: int, producer: int, scope: str) -> list[int]:
    """The spans of the producer that a wait may be matched with: begun before it ended."""
    same = {"block": (axis.launch, axis.rank, axis.block), "rank": (axis.launch, axis.rank)}
    made = range(*axis.spans_of(producer).indices(len(axis.end)))
    return [
        one
        for one in made
        if all(of[one] == of[wait] for of in same.get(scope, (axis.launch,)))
        and axis.begin[one] <= axis.end[wait] + error(run, axis, wait, one)
    ]


@pytest.mark.parametrize(
    ("waiting", "scope"),
    [((75, 90, 100), "block"), ((74, 75, 100), "rank"), ((74, 74, 100), "ranks"), ((0, 0, 0), "block")],
)
def test_the_narrowest_scope_with_three_quarters_of_the_time_is_taken(
    waiting: tuple[int, int, int], scope: str
) -> None:
    assert narrowest_scope(dict(zip(("block", "rank", "ranks"), waiting, strict=True))) == scope
