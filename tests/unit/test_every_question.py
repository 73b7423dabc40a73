"""Every question of ``musetrace.analysis``, those to come too, on runs in which there is little to be seen.

A question is a public function of one run that returns tables: one, or a dataclass that holds some. It is
found by that. What it needs beside the run stands in ``NEEDED``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from typing import Any, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span, small_table

Question = Callable[..., Any]


def public_questions() -> dict[str, Question]:
    found = {}
    for name in analysis.__all__:
        function = getattr(analysis, name)
        if not inspect.isfunction(function):
            continue
        returned = get_type_hints(function).get("return")
        holds = is_dataclass(returned) and any(hint is pa.Table for hint in get_type_hints(returned).values())
        if next(iter(inspect.signature(function).parameters)) == "run" and (returned is pa.Table or holds):
            found[name] = function
    return found


QUESTIONS = public_questions()

ONE = [Launch(0, 3, 0, 0, "sliding", 1, 90, 2)]
TWO = [*ONE, Launch(1, 3, 0, 0, "sliding", 1, 90, 2)]
JOBS = range(len(small_table().jobs))


def all_jobs(rank: int = 0, *, flag: int = 0, dur: int = 6) -> list[Span]:
    """Each job once, on two blocks."""
    return [
        Span(rank, 3, 0, block, job, 2 + 6 * job, 0 if flag else dur, flag)
        for job in JOBS
        for block in (0, 1)
    ]


ALIEN = {"clock": 1, "method": "unknown", "offset_ns": None, "error_ns": None}
FAR = {**ALIEN, "method": "unix_time", "offset_ns": 0, "error_ns": 1_000_000}
OWN = {"clock": 0, "method": "same_clock", "offset_ns": 0, "error_ns": 0}

RUNS = {
    "empty": FakeRun([], [], 4, ()),
    "ranks without a launch": FakeRun([], [], 4, (0, 1)),
    "no block": FakeRun([], [], 0, (0,)),
    "one span": FakeRun(ONE, [Span(0, 3, 0, 0, 2, 5, 10)], 2, (0,)),
    "one span of no length": FakeRun(ONE, [Span(0, 3, 0, 0, 2, 5, 0)], 2, (0,)),
    "one wait": FakeRun(ONE, [Span(0, 3, 0, 0, 8, 5, 10)], 2, (0,)),
    "no sound span": FakeRun(TWO, [*all_jobs(0, flag=1), *all_jobs(1, flag=5)], 2, (0, 1)),
    "one launch without spans": FakeRun(ONE, [], 2, (0,)),
    "one launch without a stamp": FakeRun([ONE[0]._replace(stamped=False)], [], 2, (0,)),
    "one launch of no length": FakeRun([ONE[0]._replace(end=1)], [Span(0, 3, 0, 0, 2, 1, 0)], 2, (0,)),
    "no block reported": FakeRun([ONE[0]._replace(blocks=0)], [], 2, (0,)),
    "spans of no length only": FakeRun(TWO, [*all_jobs(0, dur=0), *all_jobs(1, dur=0)], 2, (0, 1)),
    "one rank missing": FakeRun(TWO, [*all_jobs(0), *all_jobs(1)], 2, (0, 1), missing=(2,)),
    "all ranks but one missing": FakeRun(ONE, all_jobs(0), 2, (0,), missing=(1, 2, 3)),
    "one rank lost the launch": FakeRun(ONE, all_jobs(0), 2, (0, 1)),
    "not aligned": FakeRun(TWO, [*all_jobs(0), *all_jobs(1)], 2, (0, 1), alignment={0: OWN, 1: ALIEN}),
    "aligned too badly": FakeRun(TWO, [*all_jobs(0), *all_jobs(1)], 2, (0, 1), alignment={0: OWN, 1: FAR}),
    "tick not known": FakeRun(TWO, [*all_jobs(0), *all_jobs(1)], 2, (0, 1), tick_ns=None),
    "no job known": FakeRun(ONE, all_jobs(0), 2, (0,), job_table=replace(small_table(), jobs=())),
}
# Ranks of these cannot be compared with each other, whatever was stamped.
UNCOMPARABLE = (
    "one rank missing",
    "one rank lost the launch",
    "not aligned",
    "aligned too badly",
    "tick not known",
)
LACKING = ("one rank missing", "all ranks but one missing", "one launch without a stamp")
# Which rank is the one: columns that name or rank ranks. Told only where all ranks can be compared.
NAMES_A_RANK = ("last_share", "last_ranks", "last_blocks")


# Of a question that needs one launch, the last of the run; changes are of jobs of the small table.
NO_RANK, NO_STEP = 7, 99
NEEDED = {"changes": ["a=0", "b_compute=-10%", "stop1_wait_ranks=gone"], "cause": "tail"}


def ask(question: Question, run: FakeRun, **scope: Any) -> list[pa.Table]:
    """The tables of an answer; none where the run has nothing that the question can be asked about."""
    parameters = inspect.signature(question).parameters
    given = {name: value for name, value in {**NEEDED, **scope}.items() if name in parameters}
    if "launch" in parameters:
        sound = [x for x in run.all_spans if x.flag == 0 and scope.get("rank") in (None, x.rank, NO_RANK)]
        in_scope = {(x.rank, x.step, x.launch) for x in sound if scope.get("step") in (None, x.step, NO_STEP)}
        seen = [x for x in run.all_launches if x.stamped and (x.rank, x.step, x.launch) in in_scope]
        if not seen:
            return []
        step = seen[-1].step if scope.get("step") is None else scope["step"]
        given = {**given, "step": step, "launch": seen[-1].launch}
    if "changes" in parameters and not run.job_table.jobs:
        return []
    answer = question(run, **given)
    return (
        [answer]
        if isinstance(answer, pa.Table)
        else [x for x in vars(answer).values() if isinstance(x, pa.Table)]
    )


def scopes(run: FakeRun) -> Iterator[dict[str, Any]]:
    yield {}
    for launch in run.all_launches[-1:]:
        yield {"layer_kind": launch.kind}
        yield {"rank": launch.rank}
        yield {"step": launch.step}
        yield {"layer_kind": launch.kind, "rank": launch.rank, "step": launch.step}


def rows_of(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


def numbers(value: Any) -> Iterator[float]:
    """Every float in a value, however deep."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)


def test_all_questions_are_found() -> None:
    assert {"op_timeline", "idle", "attribution", "stops", "launches", "step_growth", "clocks"} <= set(
        QUESTIONS
    )
    assert len(QUESTIONS) >= 14


@pytest.mark.parametrize("kind_of_run", RUNS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_run_in_which_there_is_little_is_answered(name: str, kind_of_run: str) -> None:
    """No error, no warning (numpy's of a division by zero is one), no number that is none."""
    run = RUNS[kind_of_run]
    for scope in scopes(run):
        for row in rows_of(ask(QUESTIONS[name], run, **scope)):
            assert all(math.isfinite(number) for number in numbers(row)), row
            for column, value in row.items():
                if column.endswith(("_uncertainty_ns", "_uncertainty")) and value is not None:
                    assert value >= 0, column
                if column.endswith("share") and value is not None:
                    assert 0 <= value <= 1 or name == "step_growth", (column, value)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_empty_run_has_no_rows(name: str) -> None:
    assert rows_of(ask(QUESTIONS[name], RUNS["empty"])) == []


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_tells_how_far_to_trust_it(name: str) -> None:
    for kind_of_run, run in RUNS.items():
        for table in ask(QUESTIONS[name], run):
            assert analysis.ignored_spans(table) >= 0
            share = analysis.observed(table)
            assert share is None or 0 <= share <= 1
            if kind_of_run in LACKING and share is not None:
                assert share < 1, kind_of_run
            if kind_of_run == "tick not known":
                assert table.schema.metadata[b"tick_ns"] == b"unknown"


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_rank_that_the_run_does_not_have_is_refused(name: str) -> None:
    for option, value in (("rank", NO_RANK), ("step", NO_STEP), ("layer_kind", "no such kind")):
        if option in inspect.signature(QUESTIONS[name]).parameters:
            with pytest.raises(AnalysisError):
                ask(QUESTIONS[name], RUNS["one rank missing"], **{option: value})


@pytest.mark.parametrize("kind_of_run", UNCOMPARABLE)
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_rank_is_named_the_last_where_ranks_cannot_be_compared(name: str, kind_of_run: str) -> None:
    run = RUNS[kind_of_run]
    for row in rows_of(ask(QUESTIONS[name], run)):
        of_ranks = row.get("scope") in (None, "ranks")
        for column in NAMES_A_RANK:
            assert not (of_ranks and row.get(column)), (column, row[column])


@given(questions())
@settings(max_examples=30, deadline=None)
def test_every_question_answers_any_run(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    for function in QUESTIONS.values():
        if scope["rank"] is not None and "rank" not in inspect.signature(function).parameters:
            continue
        for row in rows_of(ask(function, run, **scope)):
            assert all(math.isfinite(number) for number in numbers(row)), row
