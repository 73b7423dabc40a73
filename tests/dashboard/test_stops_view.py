"""The stops view's callbacks as plain functions: whole runs, one rank, clocks apart, ranks missing, none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import build_run_from_text
from clock_runs import TEXT, build_run_of_two_clocks
from hostile import HOSTILE

from musetrace import analysis
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views import stops
from musetrace.dashboard.views.stops.all_stops import ask, draw_stops, last_block_words, list_stops
from musetrace.dashboard.views.stops.one_stop import draw_one_stop, examples, last_step, one_note
from musetrace.dashboard.views.stops.view import picked_stop
from musetrace.store import Run, open_run

EVERYTHING = Scope()
OPTIONS = [{"value": "stop1", "label": "stop1"}, {"value": "stop3", "label": "stop3"}]


def said(figure: Any) -> str:
    return " ".join(one.text for one in figure.layout.annotations).replace("<br>", " ")


def all_stops(run: Run, stop: str = "stop1", scope: Scope = EVERYTHING) -> tuple[Any, ...]:
    """The four pictures (waits, leads, who is last, spreads), the note and the rows of the table."""
    answers = or_sentence(lambda: ask(run, scope), str)
    return *draw_stops(run, answers, stop, "light"), *list_stops(run, answers)


def links(component: Any) -> list[str]:
    """The addresses of all links within."""
    if isinstance(component, list | tuple):
        return [link for one in component for link in links(one)]
    own = [component.href] if type(component).__name__ == "Link" else []
    return own + links(getattr(component, "children", None) or [])


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three ranks of two clocks that are good to 2,000 ns each."""
    return open_run(build_run_of_two_clocks(tmp_path_factory.mktemp("apart"), {}))


@pytest.fixture(scope="module")
def unaligned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same of two hosts whose clocks nothing compares."""
    folder = tmp_path_factory.mktemp("unaligned")
    return open_run(build_run_of_two_clocks(folder, {"unix_ns": 0}, host="elsewhere"))


def test_the_fields_of_the_address_are_kind_step_and_stop(decode: Run) -> None:
    runs = OpenRuns([decode])
    page = stops.VIEW.layout(runs, RunRef(0), {"kind": "global", "step": "1", "stop": "stop3"})
    assert page.fields == {"kind": "global", "step": "1", "stop": "stop3"}
    page = stops.VIEW.layout(runs, RunRef(0), {"stop": "<b>"})
    assert page.fields == page.defaults == {"kind": "sliding", "step": "all", "stop": "stop1"}


def test_the_table_has_every_stop_and_rank_with_its_numbers(decode: Run) -> None:
    *_, note, table = all_stops(decode, scope=Scope("sliding"))
    waits = analysis.stops(decode, layer_kind="sliding").to_pylist()
    arrived = {
        (row["stop"], row["rank"]): row for row in analysis.arrivals(decode, layer_kind="sliding").to_pylist()
    }
    assert [(row["stop"], row["rank"], row["wait_p50_ns"]) for row in table[: len(waits)]] == [
        (row["stop"], row["rank"], row["wait_p50_ns"]) for row in waits
    ]
    for row, wait in zip(table, waits, strict=False):
        arrival = arrived[row["stop"], row["rank"]]
        assert row["lead_mean_ns"] == arrival["lead_mean_ns"]
        assert row["early_mean_uncertainty_ns"] == arrival["early_mean_uncertainty_ns"]
        assert row["last"] == pytest.approx(100 * wait["last_share"])
    assert "aligned" not in note


def test_ranks_of_two_clocks_have_the_band_of_their_error(apart: Run) -> None:
    *figures, note, _ = all_stops(apart)
    error_ns = analysis.alignment_error_ns(apart)
    assert error_ns is not None
    assert error_ns > 0
    bands = [(one.x0, one.x1) for one in figures[1].layout.shapes if one.type == "rect"]
    assert bands == [(0.0, error_ns / 1000)]
    assert f"ranks aligned to \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}{error_ns:,} ns" in note
    one_stop = draw_one_stop(apart, EVERYTHING, "stop1", "light")
    assert [(one.x0, one.x1) for one in one_stop[1].layout.shapes if one.type == "rect"] == bands


def test_nothing_is_told_of_other_ranks_where_nothing_can_be(
    unaligned: Run, tiny: Run, tmp_path: Path, gpu_slice: Run
) -> None:
    missing = open_run(build_run_from_text(tmp_path, TEXT, blocks=1, world=4))
    for run, words in (
        (unaligned, "clocks are not aligned"),
        (missing, "Rank 3 is missing"),
        (gpu_slice, "one rank: it waits for no other"),
    ):
        *figures, _, table = all_stops(run)
        assert words in said(figures[1])
        assert words in said(figures[2])
        assert words in said(draw_one_stop(run, EVERYTHING, "stop1", "light")[1])
        assert {row["lead_mean_ns"] for row in table} == {None}
        assert {row["last"] for row in table} == {None}
    # It waits, but its send was not stamped.
    assert said(draw_one_stop(tiny, EVERYTHING, "stop1", "light")[0]).startswith("No block arrived at stop1")


def test_a_clock_without_a_tick_names_nobody(hostile: Run) -> None:
    stop = next(iter(analysis.stops(hostile)["stop"].to_pylist()), None)
    assert stop is None  # its waits have other names
    runs = OpenRuns([hostile])
    page = stops.VIEW.layout(runs, RunRef(0), {"stop": HOSTILE[0]})
    assert "no stop between ranks" in page.body.children
    assert page.fields == {}


def test_the_last_block_is_named_only_beyond_clock_and_chance() -> None:
    often = [{"block": 7, "share": 0.8}, {"block": 1, "share": 0.1}]
    assert last_block_words({"last_blocks": often, "cannot_tell_share": 0.0, "n": 100}) == "block 7, 80 %"
    assert last_block_words({"last_blocks": often, "cannot_tell_share": 0.75, "n": 100}) == "cannot tell"
    assert last_block_words({"last_blocks": often, "cannot_tell_share": 0.0, "n": 2}) == "cannot tell"
    assert last_block_words({"last_blocks": None}) == last_block_words({}) == "not known"


def test_one_stop_leads_to_its_what_if_and_to_examples(decode: Run) -> None:
    scope = Scope("global", "all", "1")
    assert links(one_note("stop3", scope, 1)) == ["/path?run=1&kind=global&step=1&what=stop3%3Dgone"]
    found = links(examples(decode, scope, "stop3", 1))
    assert len(found) == 2  # one launch of the kind on each of two ranks
    for link in found:
        fields = dict(one.split("=") for one in link.removeprefix("/timeline?").split("&"))
        rank, step, span = (int(one) for one in fields["span"].split("."))
        assert (fields["run"], fields["ranks"], step) == ("1", str(rank), 1)
        row = decode.spans(rank, step).slice(span, 1).to_pylist()[0]
        assert decode.job_table.jobs[row["job"]].name == "gemm1_send"
        base = {r: {s["step"]: s["base_ns"] for s in decode.steps(r).to_pylist()} for r in decode.ranks}
        end = base[rank][1] - min(base[0][0], base[1][0]) + row["begin"] + row["dur"]
        assert int(fields["from"]) < end <= int(fields["to"])


def test_examples_are_of_the_last_step_that_all_ranks_have(decode: Run, tmp_path: Path) -> None:
    assert "step 2: " in str(examples(decode, EVERYTHING, "stop1", 0))
    shorter = TEXT + "r0 s1 l0 layer=0 sliding b0 w3 o_proj_send 60000 61000\n"
    assert last_step(open_run(build_run_from_text(tmp_path, shorter, blocks=1))) == 0


@pytest.mark.parametrize(
    ("value", "stop"),
    [
        ({"points": [{"customdata": ["text", "stop3"]}]}, "stop3"),
        ([{"stop": "stop1", "rank": 3}], "stop1"),
        ({"points": [{"customdata": ["text", "stop9"]}]}, None),
        ([{"stop": HOSTILE[0]}], None),
        ({"points": [{}]}, None), ({"points": [7]}, None), ({"points": []}, None), ([], None), (None, None),
        ([{"stop": ["stop1"]}], None),
    ],
)  # fmt: skip
def test_a_click_picks_a_stop_of_the_run_or_none(value: Any, stop: str | None) -> None:
    assert picked_stop(value, OPTIONS) == stop


def test_empty_and_unstamped_runs_and_scopes_that_are_not_there_are_sentences(
    empty: Run, unstamped: Run, decode: Run
) -> None:
    for run, words in ((empty, "Nothing was stamped"), (unstamped, "stamps off")):
        *figures, _, table = all_stops(run)
        assert all(words in said(figure) for figure in figures[:4])
        assert table == []
        assert "No block arrived" in said(draw_one_stop(run, EVERYTHING, "stop1", "light")[0])
    assert examples(empty, EVERYTHING, "stop1", 0) is None
    assert examples(unstamped, EVERYTHING, "stop1", 0) is None
    assert "no step 99" in said(draw_one_stop(decode, Scope(step="99"), "stop1", "light")[0])
    assert "no step 99" in examples(decode, Scope(step="99"), "stop1", 0).children
    figures = all_stops(decode, scope=Scope(step="99"))
    assert all("no step 99" in said(figure) for figure in figures[:4])
    assert figures[4:] == ("", [])
