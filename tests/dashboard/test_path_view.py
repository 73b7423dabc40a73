"""The view of the critical path and the what-if: its callbacks as plain functions."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from component_text import links_of, parts_of, text_of
from hostile import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.path_view.callbacks import make_levers
from musetrace.dashboard.views.path_view.layout import layout
from musetrace.dashboard.views.path_view.path_answers import (
    HINT,
    clicked,
    draw_parts,
    draw_strip,
    picked,
    read_stretch,
)
from musetrace.dashboard.views.path_view.path_scope import MIDDLE, Examples
from musetrace.dashboard.views.path_view.what_answers import draw_what_if, ranked_rows, what_ifs_of
from musetrace.dashboard.what_list import known_changes, read_changes, settle, write_changes
from musetrace.job_table import JobTable
from musetrace.store import Run, open_run

SLIDING = Scope("sliding")


@pytest.fixture(scope="module")
def runs(decode: Run) -> OpenRuns:
    return OpenRuns([decode])


@pytest.fixture(scope="module")
def hostile(hostile_path: Any) -> OpenRuns:
    return OpenRuns([open_run(hostile_path)])


@given(st.lists(st.tuples(st.text(min_size=1, max_size=12), st.sampled_from(["0", "-10%", "+7.5%", "gone"]))))
def test_a_list_of_changes_is_read_as_it_was_written(changes: list[tuple[str, str]]) -> None:
    texts = [f"{name}={amount}" for name, amount in changes]
    assert read_changes(write_changes(texts)) == texts


@given(st.text(max_size=60))
def test_any_text_in_the_address_gives_changes_that_can_be_made(decode: Run, text: str) -> None:
    table = JobTable.built_in()
    for what in (text, f"gemm2={text}", f"{text}=gone", f"gemm2=-10%,{text}"):
        settled = settle(table, what)
        assert settle(table, settled) == settled
        assert [change.text for change in known_changes(table, settled)] == read_changes(settled)


def test_what_the_run_cannot_change_and_a_name_that_comes_again_are_left_out() -> None:
    table = JobTable.built_in()
    what = "gemm2=-10%,nope=0,gemm2=0,stop3=gone,lm_head_load=gone,qkv=+2000%,,=,x,gemm2=gone"
    assert settle(table, what) == "gemm2=-10%,stop3=gone,gemm2=gone"


def with_names(table: JobTable, op: str) -> JobTable:
    jobs = tuple(dataclasses.replace(job, op=op if job.op == "gemm2" else job.op) for job in table.jobs)
    return dataclasses.replace(table, jobs=jobs)


@pytest.mark.parametrize("name", [*HOSTILE[:-1], "a,b=c%2C", "x=0"])
def test_a_name_may_hold_what_divides_the_list(name: str) -> None:
    table = with_names(JobTable.built_in(), name)
    (change,) = known_changes(table, write_changes([f"{name}=-10%"]))
    assert (change.target, change.how) == (name, "faster")


def test_the_new_length_is_what_analysis_says_of_all_changes_together(runs: OpenRuns, decode: Run) -> None:
    changes = ["gemm2=-10%", "stop3=gone"]
    (row,) = analysis.what_if(decode, changes, together=True, layer_kind="sliding").to_pylist()
    assert row["saved_mean_ns"] > 0
    figure, words = draw_what_if(runs, runs.ref(0), SLIDING, "gemm2=-10%,stop3=gone", "light")
    assert list(figure.data[0].x) == [row["length_mean_ns"] / 1000, row["new_mean_ns"] / 1000]
    said = text_of(words)
    for number in (
        f"{row['length_mean_ns'] / 1000:.2f}",
        f"{row['new_mean_ns'] / 1000:.2f}",
        f"{row['saved_mean_ns'] / 1000:.2f} \N{MICRO SIGN}s shorter",
        f"\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}{row['saved_mean_uncertainty_ns']:,} ns",
        f"a step: {row['saved_step_ns'] / 1000:.2f}",
        f"replayed on {row['n']} launches",
    ):
        assert number in said


def test_less_than_the_clock_leaves_open_is_no_difference(coarse_path: Any) -> None:
    runs = OpenRuns([open_run(coarse_path)])
    _, words = draw_what_if(runs, runs.ref(0), SLIDING, "stop1=-1%", "light")
    assert "no difference told" in text_of(words)
    assert "shorter (" not in text_of(words)


def test_as_recorded_nothing_is_said_to_be_saved(runs: OpenRuns) -> None:
    figure, words = draw_what_if(runs, runs.ref(0), SLIDING, "", "dark")
    assert figure.data[0].x[0] == figure.data[0].x[1]
    assert "shorter \N{PLUS-MINUS SIGN}" not in text_of(words)


def test_changes_that_contradict_each_other_are_one_sentence(runs: OpenRuns) -> None:
    figure, words = draw_what_if(runs, runs.ref(0), SLIDING, "gemm2=0,gemm2_compute=-10%", "light")
    assert words == []
    said = " ".join(mark.text for mark in figure.layout.annotations).replace("<br>", " ")
    assert "gemm2=0 and gemm2_compute=-10% both change gemm2_compute" in said


def levers_of(runs: OpenRuns, what: str) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """Percents by op, waits that are gone, and the names that the script has."""
    parts, names, _ = make_levers(runs, runs.ref(0), SLIDING, what)
    found = list(parts_of(parts))
    sliders = [part for part in found if getattr(part, "type", None) == "range"]
    labels = [part.title for part in found if getattr(part, "className", None) == "lever-name"]
    gone = [name for part in found if getattr(part, "options", None) for name in part.value]
    return {label: slider.value for label, slider in zip(labels, sliders, strict=True)}, gone, names


def test_levers_are_set_as_the_address_says(runs: OpenRuns) -> None:
    percents, gone, names = levers_of(runs, "gemm2=-10%,stop3=gone,qkv=+50%,stop1=0,gemm1_compute=-5%")
    changed = {op: percent for op, percent in percents.items() if percent != 100}
    assert changed == {"gemm2": 90, "qkv": 150, "stop1": 0}
    assert gone == ["stop3"]
    assert names["others"] == ["gemm1_compute=-5%"]
    assert names["ops"] == list(percents), "the script names the sliders in their order"
    assert levers_of(runs, "")[0] == dict.fromkeys(percents, 100)


def test_there_is_a_lever_for_each_what_if_that_analysis_ranks(runs: OpenRuns) -> None:
    ranked = ranked_rows(what_ifs_of(runs, runs.ref(0), SLIDING))
    parts, names, _ = make_levers(runs, runs.ref(0), SLIDING, "")
    switches = {
        option["value"] for part in parts_of(parts) for option in getattr(part, "options", None) or []
    }
    assert {row["lever"] for row in ranked if row["to"] in ("0", "90")} == set(names["ops"])
    assert {row["lever"] for row in ranked if row["to"] == "gone"} == switches


def test_ranked_what_ifs_are_analysis_own_rows_in_its_order(runs: OpenRuns, decode: Run) -> None:
    rows = analysis.what_ifs(decode, layer_kind="sliding").to_pylist()
    shown = ranked_rows(what_ifs_of(runs, runs.ref(0), SLIDING))
    assert [(row["target"], row["saved_us"], row["off_ns"]) for row in shown] == [
        (row["target"], row["saved_mean_ns"] / 1000, row["saved_mean_uncertainty_ns"]) for row in rows
    ]


@pytest.mark.parametrize("of", ["launch", "step"])
def test_parts_and_edges_are_those_of_analysis(runs: OpenRuns, decode: Run, of: str) -> None:
    whole = of == "step"
    kind = None if whole else "sliding"
    found = analysis.critical_path(decode, layer_kind=kind, whole_steps=whole)
    figure, note, edges = draw_parts(runs, runs.ref(0), SLIDING, of, "light")
    drawn = sum(sum(trace.x) for trace in figure.data if trace.type == "bar")
    assert drawn == pytest.approx(sum(found.parts["mean_ns"].to_pylist()) / 1000)
    assert f"{found.length_ns / found.n / 1000:.2f} \N{MICRO SIGN}s a {of}" in note
    assert len(edges) == found.edges.num_rows
    assert sum(edge["n"] for edge in edges) == sum(found.edges["n"].to_pylist())


def test_the_strip_is_the_middle_launch_unless_one_is_chosen(runs: OpenRuns, decode: Run) -> None:
    examples = Examples(decode, SLIDING)
    assert (examples.shown.step, [one.launch for one in examples.launches]) == (1, [1, 2, 4])
    assert (examples.shown.launch, examples.value) == (2, MIDDLE)
    chosen = Examples(decode, SLIDING, "2.4")
    assert (chosen.shown.step, chosen.shown.launch, chosen.value) == (2, 4, "2.4")
    for nothing in ("9.1", "1.0", "x", ""):
        assert Examples(decode, SLIDING, nothing).value == MIDDLE
    figure, words, rows = draw_strip(runs, runs.ref(0), SLIDING, "2.4", "light")
    table = analysis.critical_spans(decode, step=2, launch=4)
    assert [row["dur_ns"] for row in rows] == table["dur_ns"].to_pylist()
    assert sum(len(bar.x) for bar in figure.data if bar.type == "bar") == sum(
        length > 0 for length in table["dur_ns"].to_pylist()
    )
    assert words == "one launch: layer 3, sliding, launch 4 of step 2"


def test_a_stretch_is_read_to_the_ns_with_a_way_to_its_span(runs: OpenRuns, decode: Run) -> None:
    rows = analysis.critical_spans(decode, step=1, launch=2).to_pylist()
    at = next(at for at, row in enumerate(rows) if row["how"] == "own" and row["dur_ns"] > 1000)
    read = read_stretch(runs, runs.ref(0), SLIDING, MIDDLE, at)
    said = text_of(read)
    for exact in (rows[at]["job"], f"{rows[at]['begin_ns']:,}", f"{rows[at]['dur_ns']:,}"):
        assert exact in said
    query = parse_qs(urlsplit(links_of(read)["its span in the timeline"]).query)
    rank, step, index = map(int, query["span"][0].split("."))
    span = decode.spans(rank, step).slice(index, 1).to_pylist()[0]
    assert decode.job_table.job_name(span["job"]) == rows[at]["job"]
    assert (step, span["launch"], span["block"]) == (1, 2, rows[at]["block"])


def test_what_a_wait_waited_for_has_a_way_of_its_own(runs: OpenRuns, decode: Run) -> None:
    rows = analysis.critical_spans(decode, step=1, launch=2).to_pylist()
    at = next(at for at, row in enumerate(rows) if row["how"] == "way")
    query = parse_qs(
        urlsplit(links_of(read_stretch(runs, runs.ref(0), SLIDING, MIDDLE, at))["what it came from"]).query
    )
    rank, step, index = map(int, query["span"][0].split("."))
    span = decode.spans(rank, step).slice(index, 1).to_pylist()[0]
    assert decode.job_table.job_name(span["job"]) == rows[at]["from_job"]
    assert (rank, span["block"]) == (rows[at]["from_rank"], rows[at]["from_block"])


@pytest.mark.parametrize(
    "click", [None, 3, {}, {"points": []}, {"points": [{}]}, {"points": [{"customdata": ["x"]}]}]
)
def test_what_is_no_click_reads_nothing(runs: OpenRuns, click: object) -> None:
    assert clicked(click) is None
    assert picked(click) is None
    for place in (None, -1, 10**6):
        assert read_stretch(runs, runs.ref(0), SLIDING, MIDDLE, place) == HINT


def test_a_link_restores_what_it_holds_and_the_rest_falls_back(runs: OpenRuns) -> None:
    query = {"kind": "global", "what": "gemm2=-10%,nope=0", "of": "step", "drawn": "1.3", "rank": "9"}
    page = layout(runs, runs.ref(0), query)
    assert page.fields == {
        "kind": "global", "rank": "all", "step": "all", "of": "step", "drawn": "1.3", "what": "gemm2=-10%",
    }  # fmt: skip
    plain = layout(runs, runs.ref(0), {"of": "x", "drawn": "<b>"})
    assert plain.fields == plain.defaults


def test_an_empty_run_says_why_there_is_nothing(empty_path: Any) -> None:
    runs = OpenRuns([open_run(empty_path)])
    ref, scope = runs.ref(0), Scope()
    assert layout(runs, ref, {}).fields == layout(runs, ref, {}).defaults
    for figure in (
        draw_parts(runs, ref, scope, "launch", "light")[0],
        draw_parts(runs, ref, scope, "step", "light")[0],
        draw_strip(runs, ref, scope, MIDDLE, "light")[0],
        draw_what_if(runs, ref, scope, "gemm2=-10%", "light")[0],
    ):
        assert "Nothing was stamped" in figure.layout.annotations[0].text
    assert make_levers(runs, ref, scope, "gemm2=-10%")[1]["ops"] == []


def test_hostile_names_are_levers_and_links_like_others(hostile: OpenRuns) -> None:
    ref = hostile.ref(0)
    scope = Scope(HOSTILE[2])
    parts, names, _ = make_levers(hostile, ref, scope, "")
    titles = [part.title for part in parts_of(parts) if getattr(part, "className", None) == "lever-name"]
    assert HOSTILE[0] in titles
    for name in names["ops"]:
        figure, words = draw_what_if(hostile, ref, scope, f"{name}=-10%", "light")
        assert figure.data, "the list with this name is understood"
        assert "replayed on" in text_of(words)
    figure, _, _ = draw_parts(hostile, ref, scope, "launch", "light")
    assert not [tick for tick in figure.layout.yaxis.ticktext if "<" in tick]
