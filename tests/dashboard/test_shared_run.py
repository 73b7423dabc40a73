"""A run as all views share it: sums are kept before they are asked for, and a chosen step is read once."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from musetrace import analysis
from musetrace.analysis.kept_sums.cubes import QUESTIONS, keep_cubes
from musetrace.dashboard import router, shared_run
from musetrace.dashboard.open_runs import KEEPING, OpenRuns, RunRef
from musetrace.dashboard.page import POLL_LIVE_MS, POLL_MS
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.scope_answers import ScopeAnswers
from musetrace.dashboard.shared_run import SharedRun, recorded_run, step_memory
from musetrace.errors import TraceFileError
from musetrace.store import Run, open_run

OF_A_STEP = ("idle", "attribution", "stops", "arrivals", "op_timeline", "launches", "overlap", "block_busy")


class Counting:
    """Notes which steps are read of a run."""

    def __init__(self, run: Run, is_being_recorded: bool = False) -> None:
        self.run, self.is_being_recorded = run, is_being_recorded
        self.read: Counter[tuple[int, int]] = Counter()
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def spans(self, rank: int, step: int) -> Any:
        if self.fails:
            raise TraceFileError("gone")
        self.read[rank, step] += 1
        return self.run.spans(rank, step)


@pytest.fixture
def path(decode_path: Path, tmp_path: Path) -> Path:
    """A run without cubes."""
    kept = shutil.ignore_patterns("cubes")
    return Path(shutil.copytree(decode_path, tmp_path / "run", ignore=kept))


def same(asked: Any, one: Any, other: Any, **scope: Any) -> bool:
    found, expected = (asked(run, **scope) for run in (one, other))
    return bool(found.equals(expected)) and found.schema.metadata == expected.schema.metadata


def test_a_chosen_step_is_read_once_by_whoever_asks_about_it(path: Path) -> None:
    counting = Counting(open_run(path))
    runs = OpenRuns([counting])
    run = runs.run(RunRef(0))
    for question in OF_A_STEP:
        for scope in ({}, {"layer_kind": "sliding"}):
            asked = getattr(analysis, question)
            assert same(asked, run, counting.run, step=1, **scope), (question, scope)
    # All launches, and those of a kind, of each rank.
    assert counting.read == {(0, 1): 2, (1, 1): 2}
    assert not (path / "cubes").exists(), "one step needs no sums of all"


def test_callbacks_at_once_read_a_step_once_and_make_what_they_share_once(path: Path) -> None:
    counting = Counting(open_run(path))
    runs = OpenRuns([counting])
    begun = threading.Barrier(4)

    def ask(question: str) -> Any:
        begun.wait(10)
        return ScopeAnswers(runs, RunRef(0), Scope("all", "all", "2")).table(question)

    names = ("idle", "idle_blocks", "idle_after", "attribution")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, names))
    assert counting.read == {(0, 2): 1, (1, 2): 1}
    for name, table in zip(names, found, strict=True):
        assert table.equals(getattr(analysis, name)(counting.run, step=2))


def test_sums_are_kept_before_any_view_asks_and_then_answer_without_the_spans(path: Path) -> None:
    counting = Counting(open_run(path))
    runs = OpenRuns([counting])
    first = ScopeAnswers(runs, RunRef(0), Scope()).table("idle")
    store = open_run(path).cubes
    assert store is not None
    assert all(store.read(one.name, one.version) is not None for one in QUESTIONS)
    counting.fails = True
    assert ScopeAnswers(runs, RunRef(0), Scope("sliding")).table("op_timeline").num_rows
    again = OpenRuns([counting])
    assert ScopeAnswers(again, RunRef(0), Scope()).table("idle").equals(first)
    assert first.equals(analysis.idle(open_run(path)))


def test_while_sums_are_made_the_page_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def slowly(run: Any) -> None:
        begun.set()
        assert go.wait(20)
        keep_cubes(run)

    monkeypatch.setattr(shared_run, "keep_cubes", slowly)
    runs = OpenRuns([open_run(path)])
    assert (runs.busy(0), router.follow(runs, RunRef(0))[2]) == ("", POLL_MS)
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(analysis.idle, runs.run(RunRef(0))) for _ in range(2))
        assert begun.wait(20)
        _, conditions, interval_ms = router.follow(runs, RunRef(0))
        assert KEEPING in str(conditions)
        assert interval_ms == POLL_LIVE_MS
        go.set()
        assert first.result(20).equals(second.result(20))
    assert KEEPING not in str(router.follow(runs, RunRef(0))[1])


def test_a_run_that_is_being_recorded_gets_no_sums_and_is_answered(path: Path) -> None:
    counting = Counting(open_run(path), is_being_recorded=True)
    runs = OpenRuns([counting])
    assert ScopeAnswers(runs, RunRef(0), Scope()).table("idle").num_rows
    assert not (path / "cubes").exists()


def test_a_damaged_step_keeps_nothing_else_from_an_answer(path: Path) -> None:
    counting = Counting(open_run(path))
    counting.fails = True
    run = OpenRuns([counting]).run(RunRef(0))
    with pytest.raises(TraceFileError, match="gone"):
        analysis.idle(run)
    counting.fails = False
    assert analysis.idle(run).equals(analysis.idle(counting.run))
    assert not (path / "cubes" / "idle.json").exists(), "it is not tried at every question"


def test_few_bytes_of_steps_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_run, "MOST_STEP_BYTES", 1)
    counting = Counting(open_run(path))
    run = OpenRuns([counting]).run(RunRef(0))
    for step in (0, 1, 0):
        assert same(analysis.idle, run, counting.run, step=step, rank=0)
    assert counting.read == {(0, 0): 2, (0, 1): 1}


def test_two_runs_do_not_share_their_steps(path: Path, coarse_path: Path) -> None:
    runs = OpenRuns([open_run(path), open_run(coarse_path)])
    for index, of in enumerate((path, coarse_path)):
        assert same(analysis.idle, runs.run(RunRef(index)), open_run(of), step=0)


def test_a_shared_run_is_not_shared_twice(decode: Run) -> None:
    once = OpenRuns([decode]).run(RunRef(0))
    twice = OpenRuns([once]).run(RunRef(0))
    assert recorded_run(once) is recorded_run(twice) is recorded_run(decode) is decode
    assert isinstance(SharedRun(decode, 0, step_memory()).path, Path)
