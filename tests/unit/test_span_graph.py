"""The native graph of a launch: replay and path against a slow oracle, and what holds for all times."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from musetrace import _core
from tests.unit.critical_oracle import Oracle, OracleJob, OracleSpan, Stretch

JOBS = [
    OracleJob("load", "loader", False),
    OracleJob("wait", "group", True, awaits=0),
    OracleJob("work", "group", True),
    OracleJob("wait", "group", True, awaits=2, scope="rank"),
    OracleJob("work", "group", True),
    OracleJob("wait", "sender", False, awaits=4),
    OracleJob("work", "sender", False),
    OracleJob("wait", "group", True, awaits=6, scope="ranks"),
    OracleJob("wait", "loader", False, awaits=2, iterates=True),
    OracleJob("wait", "loader", False, awaits=6, scope="ranks"),
    OracleJob("wait", "sender", False),
]
WARPS = {"loader": (0,), "sender": (1,), "group": (2, 3)}
KINDS = {"work": 0, "load": 1, "wait": 2}
SCOPES = {"block": 0, "rank": 1, "ranks": 2}
NO_TIME = _core.analysis.NO_TIME
STEPS = _core.analysis.PATH_STEPS


def random_spans(draw: random.Random, blocks: int, most: int, distinct: bool) -> list[OracleSpan]:
    """Warps that do jobs of their role one after the other, and now and then one within another.

    Half of the warps work as in a pipeline: waits and what they are for in turn, and the work takes long.
    """
    found = []
    for block in range(blocks):
        for role, warps in WARPS.items():
            jobs = [number for number, job in enumerate(JOBS) if job.role == role]
            for warp in warps:
                time, is_pipeline = draw.randrange(20), draw.random() < 0.5
                for at in range(draw.randrange(most + 1)):
                    length = draw.choice([0, 1, draw.randrange(12), draw.randrange(60)])
                    job = draw.choice(jobs)
                    if is_pipeline:
                        job = jobs[at % 2 if role != "group" else at % 5]
                        length = draw.randrange(40, 90) if JOBS[job].kind != "wait" else draw.randrange(30)
                    iteration = draw.randrange(2)
                    found.append(OracleSpan(job, block % 2, block, warp, iteration, time, time + length))
                    overlap = 0 if is_pipeline or draw.random() < 0.7 else length // 2
                    time += length - overlap + draw.choice([0, draw.randrange(9)])
    draw.shuffle(found)
    if not distinct:
        return found
    # Of equal times the one with the smaller number comes first; a begin comes before its end.
    size = 2 * len(found)
    return [
        x._replace(begin=x.begin * size + 2 * at, end=x.end * size + 2 * at + 1) for at, x in enumerate(found)
    ]


def native(oracle: Oracle) -> Any:
    spans, jobs = oracle.spans, oracle.jobs
    roles = list(WARPS)
    made = [oracle.producer(one) for one in oracle.every]
    columns = {
        "job": [x.job for x in spans],
        "rank": [x.rank for x in spans],
        "block": [x.block for x in spans],
        "role": [roles.index(jobs[x.job].role) for x in spans],
        "warp": [x.warp for x in spans],
        "iteration": [x.iteration for x in spans],
        "producer": [-1 if one is None else one for one in made],
        "under_way": [oracle.under_way(one) for one in oracle.every],
    }
    facts = [
        (KINDS[x.kind], SCOPES[x.scope], x.iterates, x.team, -1 if x.awaits is None else x.awaits)
        for x in jobs
    ]
    return _core.analysis.SpanGraph(
        begin=np.array([x.begin for x in spans], dtype=np.int64),
        end=np.array([x.end for x in spans], dtype=np.int64),
        columns={name: np.array(of, dtype=np.int64) for name, of in columns.items()},
        jobs=np.array(facts, dtype=np.int32),
        windows=np.array([(begin, NO_TIME if last is None else last) for begin, last in oracle.windows]),
        tick_ns=oracle.tick,
    )


def replay(
    graph: Any, percent: dict[int, int] | None = None, gone: frozenset[int] = frozenset()
) -> list[int | None]:
    parts = np.array([(percent or {}).get(job, 100) for job in range(len(JOBS))])
    ends = graph.replay(parts, 100, np.array([job in gone for job in range(len(JOBS))], dtype=np.uint8))
    return [None if end == NO_TIME else int(end) for end in ends]


def path_of(graph: Any, begin: int, end: int) -> list[Stretch]:
    step, *columns = graph.path(-1, begin, end)
    return [Stretch(STEPS[how], *map(int, rest)) for how, *rest in zip(step, *columns, strict=True)]


@st.composite
def launches(draw: st.DrawFn, distinct: bool) -> Oracle:
    number = draw(st.randoms(use_true_random=False))
    spans = random_spans(number, draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([3, 6])), distinct)
    assume(spans)
    latest = max(x.end for x in spans)
    windows = [
        (number.randrange(latest // 8 + 1), number.choice([None, number.randrange(latest // 2 + 1)]))
        for _ in range(2)
    ]
    return Oracle(JOBS, spans, windows, draw(st.sampled_from([0, 1, 4, 200])))


@given(launches(distinct=True), st.data())
@settings(max_examples=150, deadline=None)
def test_a_replay_with_changed_times_is_the_oracles(oracle: Oracle, data: st.DataObject) -> None:
    graph = native(oracle)
    assume(graph.dropped == 0)  # which edge of a circle is left out is no matter of meaning
    changed = [job for job in range(len(JOBS)) if JOBS[job].kind != "wait"]
    percent = data.draw(st.dictionaries(st.sampled_from(changed), st.sampled_from([0, 33, 90, 150])))
    waits = [job for job in range(len(JOBS)) if JOBS[job].kind == "wait"]
    gone = frozenset(data.draw(st.sets(st.sampled_from(waits), max_size=2)))
    oracle.factor, oracle.gone = {job: Fraction(of, 100) for job, of in percent.items()}, gone
    assert replay(graph, percent, gone) == oracle.last_ends()


@given(launches(distinct=True))
@settings(max_examples=150, deadline=None)
def test_the_path_is_the_oracles(oracle: Oracle) -> None:
    graph = native(oracle)
    assume(graph.dropped == 0)
    begin, end = min(begin for begin, _ in oracle.windows), max(x.end for x in oracle.spans)
    assert path_of(graph, begin, end) == oracle.path(begin, end)


@given(launches(distinct=False), st.integers(-5, 80), st.integers(0, 90))
@settings(max_examples=200, deadline=None)
def test_whatever_the_ties_an_unchanged_replay_is_exact_and_a_path_has_no_hole(
    oracle: Oracle, begin: int, length: int
) -> None:
    graph = native(oracle)
    recorded = [
        max((x.end for x in oracle.spans if x.rank == rank), default=None)
        for rank in range(len(oracle.windows))
    ]
    assert replay(graph) == recorded
    for until in (begin + length, max(x.end for x in oracle.spans)):
        path = path_of(graph, min(begin, until), until)
        times = [min(begin, until), *(x.end for x in path)]
        assert [x.begin for x in path] == times[:-1]
        assert times[-1] == until or not path
        assert sum(x.end - x.begin for x in path) == until - min(begin, until)


@given(launches(distinct=False))
@settings(max_examples=50, deadline=None)
def test_shorter_jobs_never_make_a_launch_longer(oracle: Oracle) -> None:
    graph = native(oracle)
    before = replay(graph)
    for job, of in enumerate(JOBS):
        changed = replay(graph, gone=frozenset([job])) if of.kind == "wait" else replay(graph, {job: 50})
        assert all(
            new is None or (old is not None and new <= old) for new, old in zip(changed, before, strict=True)
        )


@pytest.mark.parametrize(
    ("column", "value"), [("job", 99), ("rank", 2), ("producer", 1), ("producer", -2), ("under_way", 2)]
)
def test_columns_that_are_out_of_range_are_refused(column: str, value: int) -> None:
    zeros = np.zeros(1, dtype=np.int64)
    names = ("job", "rank", "block", "role", "warp", "iteration", "producer", "under_way")
    columns = {name: zeros - (name == "producer") for name in names}
    facts = np.array([(0, 0, 0, 0, -1)], dtype=np.int32)
    windows = np.array([(0, NO_TIME)])
    _core.analysis.SpanGraph(zeros, zeros, columns, facts, windows, 0)
    with pytest.raises(ValueError, match="out of range"):
        _core.analysis.SpanGraph(zeros, zeros, {**columns, column: zeros + value}, facts, windows, 0)
