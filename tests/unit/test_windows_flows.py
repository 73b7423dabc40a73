"""What a wait waited for and who waited for a span: the oracle of ``attribution`` for each wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.windows.flows import (
    NO_WAIT,
    NOT_CERTAIN,
    LaunchFlows,
    Producer,
    wait_scopes,
)
from tests.unit import attribution_oracle
from tests.unit import windows_oracle as oracle
from tests.unit.analysis_oracle import aligned
from tests.unit.fake_run import Launch, Span
from tests.unit.test_attribution import ITERATING, with_scope
from tests.unit.windows_oracle import TimelineRun, timelines

Name = tuple[int, int, int]


def names(run: TimelineRun) -> dict[Name, Span]:
    return {
        (rank, step, place): span
        for rank in run.ranks
        for step in run.step_ids(rank)
        for place, span in enumerate(run.of_step(rank, step))
    }


def flows_of(run: TimelineRun, span: Span) -> LaunchFlows:
    return LaunchFlows(run, RunAxis.of(run), span.step, span.launch, wait_scopes(run))


def all_flows(run: TimelineRun) -> dict[tuple[int, int], LaunchFlows]:
    """By step and launch."""
    spans = {(x.step, x.launch): x for x in run.all_spans}
    return {launch: flows_of(run, span) for launch, span in spans.items()}


def sound(run: TimelineRun) -> list[Span]:
    stamped = {(x.rank, x.step, x.launch) for x in run.all_launches if x.stamped}
    return [x for x in run.all_spans if x.flag == 0 and (x.rank, x.step, x.launch) in stamped]


@given(timelines(), st.booleans(), st.sampled_from([None, "block", "rank", "ranks"]))
@settings(max_examples=40, deadline=None)
def test_every_wait_has_the_oracles_producer_and_is_its_consumer(
    run: TimelineRun, iterates: bool, declared: str | None
) -> None:
    if iterates:
        run = replace(run, job_table=ITERATING)
    run = replace(run, job_table=with_scope(run.job_table, declared))
    spans, scopes, flows = names(run), wait_scopes(run), all_flows(run)
    of_wait = {row["wait"]: row["scope"] for row in attribution_oracle.attribution(run, ALL)}
    consumers: dict[Name, list[Name]] = {}
    for name, span in spans.items():
        job = run.job_table.jobs[span.job] if span.job < len(run.job_table.jobs) else None
        found = flows[span.step, span.launch].producer(name[0], name[2])
        if span not in sound(run):
            assert (found.span, found.reason) == (None, NOT_CERTAIN)
        elif job is None or job.kind != "wait":
            assert (found.span, found.reason) == (None, NO_WAIT)
        else:
            assert found.scope == of_wait[job.name] == scopes[span.job]
            check(run, span, found, spans)
            if found.span is not None:
                consumers.setdefault((found.span.rank, found.span.step, found.span.id), []).append(name)
    for name, span in spans.items():
        told = flows[span.step, span.launch].consumers(name[0], name[2])
        assert told.total == len(consumers.get(name, []))
        assert sorted((x.rank, x.step, x.id) for x in told.spans) == sorted(consumers.get(name, []))[:64]
        assert [x.begin_ns for x in told.spans] == sorted(x.begin_ns for x in told.spans)


ALL: dict[str, Any] = {"layer_kind": None, "rank": None, "step": None}


def check(run: TimelineRun, wait: Span, found: Producer, spans: dict[Name, Span]) -> None:
    """One wait against the oracle's."""
    job = run.job_table.jobs[wait.job]
    made = [x for x in sound(run) if x.job == job.awaits]
    iterates = job.iterations > 1 and run.job_table.jobs[job.awaits or 0].iterations > 1
    expected = attribution_oracle.match(run, wait, made, found.scope, iterates)
    assert found.under_way == expected["is_under_way"]
    if expected["end"] is None and not expected["is_under_way"]:
        assert found.span is None
        assert found.reason
        return
    assert found.span is not None
    mine = spans[found.span.rank, found.span.step, found.span.id]
    assert (mine.job, mine.launch, mine.block) == (job.awaits, wait.launch, found.span.block)
    begin = aligned(run, mine.rank, run.base_ns(mine.rank, mine.step) + mine.begin) - oracle.origin(run)
    assert (found.span.begin_ns, found.span.end_ns) == (begin, begin + mine.dur)
    assert found.late_by_ns == expected["before"] + expected["under_way"]
    if expected["end"] is not None:
        assert attribution_oracle.times(run, mine)[1] == expected["end"]
        assert found.error_ns == expected["error"]
        assert found.tied == expected["tied"]


def test_of_many_consumers_the_earliest_are_told() -> None:
    waits = [Span(0, 0, 0, 0, 1, at, 200 - at) for at in range(70)]
    run = TimelineRun(
        [Launch(0, 0, 0, 0, "sliding", 0, 300, 1)], [Span(0, 0, 0, 0, 0, 0, 100), *waits], 1, (0,)
    )
    told = flows_of(run, run.all_spans[0]).consumers(0, 0)
    assert told.total == 70
    assert [x.begin_ns for x in told.spans] == list(range(64))


def test_two_warps_with_the_same_times_are_told_apart() -> None:
    loads = [Span(0, 0, 0, 0, 0, 5, 10, warp=warp) for warp in (0, 1)]
    run = TimelineRun(
        [Launch(0, 0, 0, 0, "sliding", 0, 300, 1)], [*loads, Span(0, 0, 0, 0, 1, 2, 40)], 1, (0,)
    )
    flows = flows_of(run, run.all_spans[0])
    found = flows.producer(0, 0)  # the wait began first
    assert found.span is not None
    others = {1, 2} - {found.span.id}
    assert flows.consumers(0, found.span.id).total == 1
    assert flows.consumers(0, others.pop()).total == 0
