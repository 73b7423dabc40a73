"""Runs that change or vanish under the page, and what the router makes of addresses and pickers."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dash import html, no_update
from decode_run import build_decode_run

from musetrace.dashboard import router
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.page import POLL_LIVE_MS, POLL_MS
from musetrace.dashboard.views import VIEWS
from musetrace.dashboard.views.view import Page, View
from musetrace.store import Run, open_run
from musetrace.store.journal_files import SUFFIX


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A run of one step, whose journals another step will replace."""
    return build_decode_run(tmp_path / "run", steps=1)


def record_more(path: Path, tmp_path: Path) -> None:
    """Journals of three steps take the place of those that are there."""
    longer = build_decode_run(tmp_path / "longer", steps=3)
    for journal in longer.glob(f"*{SUFFIX}"):
        shutil.copy(journal, path / journal.name)


def test_a_run_that_grew_is_opened_again_and_kept_answers_are_of_the_new_one(
    growing: Path, tmp_path: Path
) -> None:
    runs = OpenRuns([open_run(growing)])
    first = runs.ref(0)
    assert runs.refresh(0) == first, "nothing has changed"
    assert runs.kept(first, "steps", lambda run: run.step_ids(0)) == [0]
    record_more(growing, tmp_path)
    newest = runs.refresh(0)
    assert newest == RunRef(0, 1)
    assert runs.kept(first, "steps", lambda run: run.step_ids(0)) == [0, 1, 2]
    assert runs.trouble(0) == ""


def test_a_run_that_vanished_is_told_and_still_there_when_it_is_back(growing: Path, tmp_path: Path) -> None:
    runs = OpenRuns([open_run(growing)])
    shutil.move(growing, tmp_path / "away")
    data, header, _ = router.follow(runs, runs.ref(0))
    assert data is no_update
    assert "run is no longer where it was" in str(header)
    shutil.move(tmp_path / "away", growing)
    _, header, _ = router.follow(runs, runs.ref(0))
    assert "no longer" not in str(header)


def test_a_run_that_became_unreadable_is_told_and_the_page_keeps_what_it_had(growing: Path) -> None:
    runs = OpenRuns([open_run(growing)])
    for journal in growing.glob(f"*{SUFFIX}"):
        journal.write_bytes(b"no journal")
    assert runs.refresh(0) == RunRef(0, 0)
    assert runs.trouble(0).startswith("run has changed: ")
    assert runs.run(RunRef(0)).step_ids(0) == [0]


def test_opening_again_takes_a_share_of_the_time_alone(
    growing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    opened = []

    def slow_open(path: Path) -> Run:
        opened.append(path)
        now[0] += 10.0
        return open_run(path)

    monkeypatch.setattr("musetrace.dashboard.open_runs.time.monotonic", lambda: now[0])
    monkeypatch.setattr("musetrace.dashboard.open_runs.open_run", slow_open)
    runs = OpenRuns([open_run(growing)])
    record_more(growing, tmp_path)
    assert runs.refresh(0).version == 1
    (growing / f"rank-0000{SUFFIX}").touch()
    now[0] += 30.0
    assert runs.refresh(0).version == 1, "ten seconds of work, so fifty of rest"
    now[0] += 30.0
    assert runs.refresh(0).version == 2
    assert len(opened) == 2


@pytest.mark.parametrize("data", [None, 3, {}, {"index": "0", "version": 0}, {"index": True, "version": 0}])
def test_what_is_no_run_means_the_first(data: Any) -> None:
    assert RunRef.of(data) == RunRef(0)


@pytest.mark.parametrize("index", [-1, 1, 10**9])
def test_a_run_that_there_is_not_is_the_first(decode: Run, index: int) -> None:
    assert OpenRuns([decode]).ref(index) == RunRef(0, 0)


def test_few_answers_are_kept(decode: Run) -> None:
    runs, made = OpenRuns([decode]), []
    for key in (*range(100), 99, 0):
        runs.kept(RunRef(0), key, lambda _, key=key: made.append(key))  # type: ignore[misc]
    assert made == [*range(100), 0]


def test_who_asks_for_what_is_being_made_waits_for_it_and_a_failure_is_nobody_elses(decode: Run) -> None:
    runs, made = OpenRuns([decode]), []
    begun, go = threading.Event(), threading.Event()

    def make(_: object) -> str:
        made.append("made")
        begun.set()
        assert go.wait(10)
        return "answer"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(runs.kept, RunRef(0), "key", make)
        assert begun.wait(10)
        second = threads.submit(runs.kept, RunRef(0), "key", make)
        # Something else is answered meanwhile.
        assert runs.kept(RunRef(0), "other", lambda _: "at once") == "at once"
        go.set()
        assert (first.result(10), second.result(10)) == ("answer", "answer")
    assert made == ["made"]
    with pytest.raises(ZeroDivisionError):
        runs.kept(RunRef(0), "fails", lambda _: 1 / 0)
    assert runs.kept(RunRef(0), "fails", lambda _: "now it works") == "now it works"


def test_an_address_shows_its_view_of_its_run(decode: Run, tiny_path: Path) -> None:
    runs = OpenRuns([decode, open_run(tiny_path)])
    _, links, _, picked, ref, shown, poll = router.show(runs, VIEWS, "/ops", "?run=1&kind=nope")
    assert (picked, ref, poll) == ("1", {"index": 1, "version": 0}, POLL_MS)
    assert shown["fields"] == shown["defaults"] == {
        "kind": "sliding", "rank": "all", "step": "all", "beside": "none",
    }  # fmt: skip
    assert [link.href for link in links] == [f"/{view.name}?run=1" for view in VIEWS]
    assert [link.className for link in links].count("here") == 1
    assert router.find(VIEWS, "/nope") is router.find(VIEWS, "/") is VIEWS[0]


def test_a_view_that_fails_is_one_sentence_and_the_way_to_the_others_stays(decode: Run) -> None:
    def fail(*_: object) -> Page:
        raise ZeroDivisionError("secret")

    views = (View("bad", "Bad", fail, lambda *_: None), *VIEWS)
    body, links, *_ = router.show(OpenRuns([decode]), views, "/bad", "")
    assert "could not be drawn" in str(body)
    assert "secret" not in str(body)
    assert len(links) == len(views)


def test_a_choice_is_written_into_the_address_without_what_goes_without_saying() -> None:
    shown = {
        "path": "/ops",
        "search": "?run=1&kind=entry",
        "fields": {"kind": "entry", "rank": "all"},
        "defaults": {"kind": "sliding", "rank": "all"},
    }
    search, after = router.write_choice({"kind": "entry", "rank": "1"}, shown)
    assert search == "?run=1&kind=entry&rank=1"
    assert router.is_shown("/ops", search, after), "the page wrote it, and shows it"
    assert not router.is_shown("/ops", "?run=1", after)
    assert router.write_choice({"kind": "sliding", "rank": "all"}, after)[0] == "?run=1"
    for same in (shown["fields"], {}, {"other": "x"}):
        assert router.write_choice(same, shown) == (no_update, no_update)  # type: ignore[arg-type]
    assert router.write_choice({"kind": "entry"}, None) == (no_update, no_update)


def test_a_run_that_is_being_recorded_is_looked_at_more_often() -> None:
    class Recording:
        is_being_recorded = True

    assert router.poll_ms(Recording()) == POLL_LIVE_MS
    assert router.poll_ms(html.Div()) == POLL_MS
