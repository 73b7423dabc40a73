"""The view of two runs: its callbacks as plain functions, against what ``musetrace compare`` prints."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from clients import OWN
from clock_runs import PEER, build_run_of_two_clocks
from component_text import links_of, parts_of, text_of

from musetrace import analysis
from musetrace.cli.compare.sentences import saved_sentence
from musetrace.dashboard import create_app
from musetrace.dashboard.api.tables import COMPARISONS
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.pair import Pair, compared
from musetrace.dashboard.views.compare_view import compare_ids as at
from musetrace.dashboard.views.compare_view.callbacks import NO_STOPS, compare_parts, numbers
from musetrace.dashboard.views.compare_view.compare_words import cost_words
from musetrace.dashboard.views.compare_view.compared_tables import SKEW_COLUMNS, skew_rows
from musetrace.dashboard.views.compare_view.layout import ONE_RUN, layout
from musetrace.store import open_run
from tests.unit.compared_runs import build, compare

PAIR = Pair(0, 1)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """B's norm is 2 us faster, and its blocks wait 2 us longer."""
    folder = tmp_path_factory.mktemp("compared")
    a = build(folder / "before", output=lambda step: f"{step:032x}")
    b = build(
        folder / "after", norm=18_000, wait=10_000, seed=1, output=lambda step: f"{step + (step == 7):032x}"
    )
    return a, b


@pytest.fixture(scope="module")
def runs(paths: tuple[Path, Path]) -> OpenRuns:
    return OpenRuns([open_run(path) for path in paths])


def shown(runs: OpenRuns, pair: Pair = PAIR, kind: str = "all") -> dict[str, Any]:
    return dict(compare_parts(runs, pair, kind, "light"))


def rows_of(tree: Any) -> list[dict[str, Any]]:
    """The rows of the one grid in a tree."""
    (grid,) = [part for part in parts_of(tree) if hasattr(part, "rowData")]
    return list(grid.rowData)


def test_the_page_says_what_the_command_says(
    runs: OpenRuns, paths: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.loads(compare(capsys, *map(str, paths), "--json"))
    parts = shown(runs)
    said = text_of(parts[at.SAYS]) + text_of(parts[at.SAVED])
    for warning in printed["warnings"]:
        assert warning in said
    assert "differ in 1 of 10 steps, first in step 7" in said
    (saved,) = printed["saved"]
    assert saved_sentence(saved) in said
    assert "turned into waiting" in said
    for name, table in ((at.OF_OPS, "ops"), (at.OF_TIMES, "times")):
        rows = [row for row in printed[table] if row.get("what") not in ("busy", "idle")]
        told = [(row["a_ns"], row["difference_ns"], row["low_ns"], row["verdict"]) for row in rows]
        cells = [
            tuple(round(row[column] * 1000) for column in ("a_us", "off_us", "low_us")) + (row["verdict"],)
            for row in rows_of(numbers(runs, PAIR, "all", name))
        ]
        assert cells == told
    blocks = rows_of(numbers(runs, PAIR, "all", at.OF_BLOCKS))
    assert len(blocks) == len(printed["busy"]) + len(printed["idle"]) + 2, "and the whole of both"
    assert [row["in"] for row in blocks[:2]] == ["all ops", "all causes"]


def test_the_figures_are_of_the_same_rows(runs: OpenRuns) -> None:
    parts = shown(runs)
    found = compared(runs, PAIR, "all")
    marks = [trace for trace in parts[at.OPS].data if trace.type == "scatter"]
    drawn = {(int(y), x) for trace in marks for x, y in zip(trace.x, trace.y, strict=True)}
    ops = found.ops["difference_ns"].to_pylist()
    assert drawn == {(place, off / 1000) for place, off in enumerate(ops)}
    a, b = parts[at.IDLE].data[:2]
    idle = {(row["a_ns"] / 1000, row["b_ns"] / 1000) for row in found.idle.to_pylist()}
    assert set(zip(a.x, b.x, strict=True)) == idle


def test_a_comparison_is_made_once(runs: OpenRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compared(runs, PAIR, "sliding")
    monkeypatch.setattr(analysis, "compare", None)
    assert compared(runs, PAIR, "sliding") is first


def test_runs_that_cannot_be_compared_are_one_sentence_and_nothing_is_drawn(
    runs: OpenRuns, tmp_path: Path
) -> None:
    other = open_run(build(tmp_path / "other", kind="global"))
    parts = shown(OpenRuns([runs.run(runs.ref(0)), other]))
    assert "no kind of launch in common: A has sliding, B has global" in text_of(parts[at.SAYS])
    assert set(parts) == {at.SAYS, at.FILES}, "all else stays unseen"
    assert set(shown(runs)) > {at.CONTENT, at.OF_SPANS}
    assert numbers(OpenRuns([runs.run(runs.ref(0)), other]), PAIR, "all", at.OF_OPS) is None


def test_a_run_is_not_compared_with_itself(runs: OpenRuns) -> None:
    parts = shown(runs, Pair(1, 1))
    assert text_of(parts[at.SAYS]) == "A and B are both after: choose another run for one of them"


def test_one_run_alone_says_how_to_open_two(runs: OpenRuns) -> None:
    alone = OpenRuns([runs.run(runs.ref(0))])
    page = layout(alone, alone.ref(0), {"a": "0", "b": "1"})
    assert text_of(page.body) == ONE_RUN
    assert "musetrace view A B" in ONE_RUN
    assert page.fields == {}


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ({}, ("0", "1", "all")),
        ({"a": "1", "b": "0", "kind": "sliding"}, ("1", "0", "sliding")),
        ({"a": "7", "b": "-1", "kind": "nope", "numbers": "nope"}, ("0", "1", "all")),
        ({"a": "../x", "b": "<b>"}, ("0", "1", "all")),
    ],
)
def test_a_link_restores_the_pair(runs: OpenRuns, query: dict[str, str], fields: tuple[str, ...]) -> None:
    page = layout(runs, runs.ref(0), query)
    assert tuple(page.fields[name] for name in ("a", "b", "kind")) == fields
    assert page.fields["numbers"] == "times"
    assert layout(runs, runs.ref(0), {**query, "numbers": "blocks"}).fields["numbers"] == "blocks"
    a, b, kind = fields
    kept = "" if kind == "all" else f"&kind={kind}"
    assert links_of(page.body)["swap A and B"] == f"/compare?a={b}&b={a}{kept}"


def test_stamps_on_against_off_tell_what_stamps_cost_and_that_outputs_are_equal(tmp_path: Path) -> None:
    on = open_run(build(tmp_path / "on", output=lambda step: f"{step:032x}"))
    off = open_run(build(tmp_path / "off", stamps=False, norm=19_000, output=lambda step: f"{step:032x}"))
    for order, sign in (((on, off), -1), ((off, on), 1)):
        runs = OpenRuns(list(order))
        parts = shown(runs)
        said = text_of(parts[at.STAMPS])
        assert f"{'A' if sign < 0 else 'B'} has stamps, the other has none" in said
        assert "Outputs: equal bit for bit in 10 of 10 steps" in said
        found = compared(runs, PAIR, "all")
        (host,) = [row for row in found.times.to_pylist() if (row["what"], row["of"]) == ("step", "host")]
        cost = sign * host["difference_ns"]
        assert 800 <= cost <= 1_200, "a launch with stamps computes 1 us longer"
        assert f"{cost / 1000:.2f} \N{MICRO SIGN}s of a step" in said
        assert (parts[at.CONTENT], parts[at.OF_SPANS]) == ("", "unseen")
        times, instead = (rows_of(numbers(runs, PAIR, "all", table)) for table in (at.OF_TIMES, at.OF_OPS))
        assert times == instead != [], "there are no ops"
        assert "has no spans: only times of steps and launches are compared" in text_of(parts[at.SAYS])


def test_ranks_of_two_runs_have_a_table_of_stops_with_who_was_last(tmp_path: Path, runs: OpenRuns) -> None:
    of_two_clocks = [open_run(build_run_of_two_clocks(tmp_path / name, {"peer": PEER})) for name in "ab"]
    two = OpenRuns(of_two_clocks)
    (row,) = skew_rows(compared(two, PAIR, "all"))
    said, table = numbers(two, PAIR, "all", at.OF_STOPS)
    assert rows_of(table) == [row]
    assert "last" in text_of(said)
    assert (row["launch"], row["stop"], row["a_us"], row["off_us"]) == ("sliding", "stop1", 2.333, 0.0)
    assert (row["last_a"], row["last_b"], row["verdict"]) == ("r1 50 %", "r1 50 %", "cannot tell")
    assert set(row) == {column.field for column in SKEW_COLUMNS}
    # One rank waits for no other.
    assert text_of(numbers(runs, PAIR, "all", at.OF_STOPS)) == NO_STOPS


def test_a_cost_has_the_sign_and_the_interval_of_the_run_with_stamps() -> None:
    row = {
        "what": "step", "of": "host", "a_ns": 100_000, "b_ns": 98_000, "difference_ns": -2_000,
        "low_ns": -3_000, "high_ns": -500, "uncertainty_ns": 10, "share": -0.02, "verdict": "faster",
    }  # fmt: skip
    micro = "\N{MICRO SIGN}s"
    assert cost_words(row, -1) == f"2.00 {micro} of a step of 100.00 {micro} (+2.0 %), 95 % 0.50 to 3.00"
    assert cost_words({**row, "verdict": "same"}, 1) == (
        f"-2.00 {micro} of a step of 100.00 {micro} (-2.0 %), 95 % -3.00 to -0.50: same"
    )


def test_runs_with_stamps_alike_say_what_it_takes_to_see_their_cost(runs: OpenRuns) -> None:
    assert "Both runs have stamps (store)" in text_of(shown(runs)[at.STAMPS])


@pytest.mark.parametrize("question", sorted(COMPARISONS))
def test_every_table_of_a_comparison_can_be_taken(runs: OpenRuns, question: str) -> None:
    client = create_app(runs).server.test_client()
    table = getattr(compared(runs, PAIR, "all"), question.removeprefix("compare_"))
    answer = client.get(f"/api/table/{question}.csv?a=0&b=1&kind=all", headers=OWN)
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == table.num_rows
    if "difference_ns" in table.column_names:
        assert [row["difference_ns"] for row in rows] == list(map(str, table["difference_ns"].to_pylist()))


def test_a_table_of_runs_that_cannot_be_compared_is_a_sentence(runs: OpenRuns) -> None:
    alone = create_app(OpenRuns([runs.run(runs.ref(0))])).server.test_client()
    answer = alone.get("/api/table/compare_ops.csv", headers=OWN)
    assert (answer.status_code, answer.text.count("\n")) == (400, 1)
    assert "musetrace view A B" in answer.text
    two = create_app(runs).server.test_client()
    answer = two.get("/api/table/compare_ops.csv?a=0&b=1&kind=nope", headers=OWN)
    assert answer.status_code == 400
    assert "nope" in answer.text
