"""The launches view's callbacks as plain functions."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import HOSTILE

from musetrace import analysis
from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.dashboard.conditions import conditions
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views import launches
from musetrace.dashboard.views.launches.edges import draw_edges, edge_row
from musetrace.dashboard.views.launches.one_step import clicked_launch, draw_step
from musetrace.dashboard.views.launches.steps import list_steps
from musetrace.store import Run


def said(figure: Any) -> str:
    return " ".join(one.text for one in figure.layout.annotations).replace("<br>", " ")


def points(figure: Any) -> Any:
    return next(one for one in figure.data if one.name == "launches")


def test_the_fields_of_the_address_are_rank_step_and_kind(decode: Run) -> None:
    runs = OpenRuns([decode])
    page = launches.VIEW.layout(runs, RunRef(0), {"rank": "1", "step": "2", "kind": "global"})
    assert page.fields == {"kind": "global", "rank": "1", "step": "2"}
    assert launches.VIEW.layout(runs, RunRef(0), {"rank": "7"}).fields == page.defaults
    assert page.defaults == {"kind": "all", "rank": "all", "step": "all"}


def test_the_strip_is_the_chosen_step_of_the_chosen_ranks(decode: Run) -> None:
    figure, note, host = draw_step(decode, Scope("all", "1", "2"), "light")
    assert len(points(figure).x) == 3 * 6
    assert {one[1] for one in points(figure).customdata} == {1}
    assert note.startswith("step 2: 6 launches; ")
    assert note.endswith("none still under way when the next begins")
    assert host is not None
    _, note, _ = draw_step(decode, Scope(), "light")
    assert "6 launches a rank" in note


def test_a_click_on_a_launch_leads_to_its_window_in_the_timeline(decode: Run) -> None:
    figure, _, _ = draw_step(decode, Scope("all", "1", "2"), "light")
    row = next(
        one for one in decode.launches(1).to_pylist() if (one["step"], one["launch"]) == (2, 3)
    )  # fmt: skip
    begin, end = (row[name] - origin_ns(decode) for name in ("begin_ns", "end_ns"))
    around = (end - begin) // 10 + 1
    data = list(points(figure).customdata[3 * 3 + 1])
    expected = f"/timeline?run=2&ranks=1&from={begin - around}&to={end + around}"
    assert clicked_launch({"points": [{"customdata": data}]}, 2) == expected


@pytest.mark.parametrize(
    "click",
    [
        None, {}, {"points": []}, {"points": [3]}, {"points": [{}]}, {"points": [{"customdata": ["x"]}]},
        {"points": [{"customdata": ["x", "1", 2, 3]}]}, {"points": [{"customdata": [1, True, 2, 3]}]}, "x",
    ],
)  # fmt: skip
def test_anything_but_a_launch_leads_nowhere(click: object) -> None:
    assert clicked_launch(click, 0) is None


def test_the_edges_are_those_of_the_answer(decode: Run) -> None:
    scope = Scope("sliding", "0", "1")
    *figures, note, table = draw_edges(decode, scope, "light")
    rows = analysis.launches(decode, layer_kind="sliding", rank=0, step=1).to_pylist()
    assert [row["launch"] for row in table.rowData] == [
        f"sliding \N{RIGHTWARDS ARROW} {row['next_kind']}" for row in rows
    ]  # fmt: skip
    assert [row["lead_p50_ns"] for row in table.rowData] == [row["lead_p50_ns"] for row in rows]
    assert all(len(one.data[0].x) for one in figures)
    assert "PDL" in note


def test_an_overlap_is_a_share_of_the_pairs_that_the_clock_can_tell() -> None:
    row = {"kind": "a", "next_kind": "b", "overlap_n": 3, "next_n": 4}
    assert edge_row(row)["overlap"] == 75.0
    assert edge_row({**row, "overlap_n": None})["overlap"] is None
    assert edge_row({**row, "next_n": 0, "next_kind": None})["overlap"] is None


def test_steps_are_listed_by_clock_and_by_part(decode: Run, drafted: Run) -> None:
    note, table = list_steps(decode, Scope())
    assert note.startswith("a step is verify alone, 6 launches")
    assert [row["what"] for row in table.rowData] == ["step (device)", "step (host)", "verify"]
    note, table = list_steps(drafted, Scope())
    assert note.startswith("4 launches a step")
    parts = [(row["what"], row["launches"]) for row in table.rowData[-3:]]
    assert parts == [("draft", "2"), ("verify", "1"), ("accept", "1")]


def test_a_step_with_overlapping_launches_says_how_many(drafted: Run) -> None:
    _, note, _ = draw_step(drafted, Scope(), "light")
    assert "; 1 still under way when the next begins" in note


def test_runs_with_stamps_off_have_the_hosts_times_alone(unstamped: Run) -> None:
    figure, note, host = draw_step(unstamped, Scope(), "light")
    assert "stamps off" in said(figure)
    assert "on the device" not in note
    assert host is not None
    assert len([x for x in host.data[1].x if x is not None]) == 3 * 2
    assert all("stamps off" in said(one) for one in draw_edges(unstamped, Scope(), "light")[:3])
    assert [row["what"] for row in list_steps(unstamped, Scope())[1].rowData] == ["step (host)"]


def test_steps_without_launches_have_the_note_that_says_why(batched: Run) -> None:
    figure, note, host = draw_step(batched, Scope(), "light")
    assert (note, host) == ("step 0: no launch of it is here", None)
    words = said(figure)
    assert "it has step times, but no timeline. Note: a batch runs elsewhere &lt;b&gt;." in words
    (stamps,) = [one for one in conditions(batched) if one.label == "stamps"]
    assert (stamps.value, stamps.detail) == ("off", "a batch runs elsewhere <b>")
    assert [row["what"] for row in list_steps(batched, Scope())[1].rowData] == ["step (host)"]


def test_an_empty_run_says_so(empty: Run) -> None:
    figure, note, host = draw_step(empty, Scope(), "light")
    assert said(figure) == "This run has no step yet."
    assert (note, host) == ("", None)
    assert "Nothing was stamped" in said(draw_edges(empty, Scope(), "light")[0])
    assert list_steps(empty, Scope()) == ("No step was timed in what was chosen.", None)


def test_one_launch_is_followed_by_none(tiny: Run) -> None:
    figures = draw_edges(tiny, Scope(), "light")[:3]
    assert said(figures[1]) == said(figures[2]) == "No launch is followed by another."


def test_a_scope_that_the_run_has_not_is_a_sentence(decode: Run) -> None:
    assert "no rank 9" in said(draw_step(decode, Scope(rank="9"), "light")[0])
    assert "no rank 9" in said(draw_edges(decode, Scope(rank="9"), "light")[0])
    assert "no rank 9" in list_steps(decode, Scope(rank="9"))[0]


def test_hostile_kinds_are_in_the_table_as_they_are(hostile: Run) -> None:
    table = draw_edges(hostile, Scope(), "light")[-1]
    assert table.rowData[0]["launch"] == f"{HOSTILE[2]} \N{RIGHTWARDS ARROW} {HOSTILE[0]}"
