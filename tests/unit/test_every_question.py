"""Every question of ``musetrace.analysis``, those to come too, on runs in which there is little to be seen.

A question is a public function of one run that returns a table; it is found by that.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span, small_table

Question = Callable[..., pa.Table]


def public_questions() -> dict[str, Question]:
    found = {}
    for name in analysis.__all__:
        function = getattr(analysis, name)
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        if next(iter(signature.parameters)) == "run" and signature.return_annotation in (
            "pa.Table",
            pa.Table,
        ):
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
# Which rank is the one: columns that name or rank ranks. Told only where all ranks can be compared.
NAMES_A_RANK = ("last_share", "last_ranks", "last_blocks")


def ask(question: Question, run: FakeRun, **scope: Any) -> pa.Table:
    known = inspect.signature(question).parameters
    return question(run, **{name: value for name, value in scope.items() if name in known})


def scopes(run: FakeRun) -> Iterator[dict[str, Any]]:
    yield {}
    for launch in run.all_launches[-1:]:
        yield {"layer_kind": launch.kind}
        yield {"rank": launch.rank}
        yield {"step": launch.step}
        yield {"layer_kind": launch.kind, "rank": launch.rank, "step": launch.step}


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
        table = ask(QUESTIONS[name], run, **scope)
        for row in table.to_pylist():
            assert all(math.isfinite(number) for number in numbers(row)), row
            for column, value in row.items():
                if column.endswith(("_uncertainty_ns", "_uncertainty")) and value is not None:
                    assert value >= 0, column
                if column.endswith("share") and value is not None:
                    assert 0 <= value <= 1 or name == "step_growth", (column, value)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_empty_run_has_no_rows(name: str) -> None:
    assert ask(QUESTIONS[name], RUNS["empty"]).num_rows == 0


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_tells_how_far_to_trust_it(name: str) -> None:
    for kind_of_run, run in RUNS.items():
        table = ask(QUESTIONS[name], run)
        assert analysis.ignored_spans(table) >= 0
        share = analysis.observed(table)
        assert share is None or 0 <= share <= 1
        is_less = kind_of_run in (
            "one rank missing",
            "all ranks but one missing",
            "one launch without a stamp",
        )
        if is_less and share is not None:
            assert share < 1, kind_of_run
        if kind_of_run == "tick not known":
            assert table.schema.metadata[b"tick_ns"] == b"unknown"


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_rank_that_the_run_does_not_have_is_refused(name: str) -> None:
    for option, value in (("rank", 7), ("step", 99), ("layer_kind", "no such kind")):
        if option in inspect.signature(QUESTIONS[name]).parameters:
            with pytest.raises(AnalysisError):
                ask(QUESTIONS[name], RUNS["one rank missing"], **{option: value})


@pytest.mark.parametrize("kind_of_run", UNCOMPARABLE)
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_rank_is_named_the_last_where_ranks_cannot_be_compared(name: str, kind_of_run: str) -> None:
    run = RUNS[kind_of_run]
    for row in ask(QUESTIONS[name], run).to_pylist():
        of_ranks = row.get("scope") in (None, "ranks")
        for column in NAMES_A_RANK:
            assert not (of_ranks and row.get(column)), (column, row[column])


@given(questions())
@settings(max_examples=60, deadline=None)
def test_every_question_answers_any_run(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    for function in QUESTIONS.values():
        if scope["rank"] is not None and "rank" not in inspect.signature(function).parameters:
            continue
        for row in ask(function, run, **scope).to_pylist():
            assert all(math.isfinite(number) for number in numbers(row)), row
