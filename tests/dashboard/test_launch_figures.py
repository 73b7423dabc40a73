"""One step as a strip and the edges of launches as pictures: numbers against the tables they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import extents, trace
from hostile import HOSTILE

from musetrace import analysis
from musetrace.analysis.timeline.one_step import launches_of_step
from musetrace.figures.launch_edges import all_in_figure, gap_figure, lead_figure, pair_words
from musetrace.figures.step_strip import MOST_RANKS, host_strip_figure, step_strip_figure
from musetrace.figures.theme import theme
from musetrace.figures.wording import shown
from musetrace.store import Run


def launched(rank: int, launch: int, begin: int, end: int, gap: int | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": rank, "launch": launch, "layer": launch - 1, "kind": "sliding",
        "begin_ns": begin, "end_ns": end, "from_ns": 5_000 + begin, "gap_ns": gap, "uncertainty_ns": 32,
        "blocks": 4, "blocks_total": 4, "submit_ns": 10 * launch, "host_step_ns": 9_000,
    }  # fmt: skip
    return row | more


STEP = [
    launched(0, 0, 0, 1_000, 200, kind="entry"),
    launched(0, 1, 1_200, 5_000, -800),
    launched(0, 2, 4_200, 9_000, None, blocks=3),
    launched(1, 0, 100, 1_100, None, kind="entry"),
    launched(1, 1, 0, 0, None, begin_ns=None, end_ns=None, from_ns=None),
]


def tables(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def rectangles(path: Any) -> list[tuple[float, float]]:
    """Begin and end of each tooth of a comb."""
    teeth = np.asarray(path.x, dtype=float)
    return (
        []
        if len(teeth) == 0
        else sorted({(float(a), float(b)) for a, b in zip(teeth, teeth[1:], strict=False)})
    )


@pytest.mark.parametrize("look", ["light", "dark"])
def test_launches_take_turns_in_two_lanes_and_an_overlap_has_a_line(look: str) -> None:
    figure = step_strip_figure(tables(STEP), "sliding", look)
    even, odd = (one for one in figure.data if one.name == "sliding")
    assert (4.2, 9.0) in rectangles(even)
    assert (1.2, 5.0) in rectangles(odd)
    assert max(odd.y) > max(even.y)
    assert {one.fillcolor for one in (even, odd)} == {theme(look).accent}
    assert (4.2, 5.0) in rectangles(trace(figure, "overlap"))
    assert list(figure.layout.yaxis.ticktext) == ["rank 0", "rank 1"]


def test_a_click_tells_rank_begin_and_end_from_the_runs_origin() -> None:
    points = trace(step_strip_figure(tables(STEP), None, "light"), "launches")
    assert len(points.x) == 3 * 4
    assert [list(one[1:]) for one in points.customdata[::3]] == [
        [0, 5_000, 6_000], [0, 6_200, 10_000], [0, 9_200, 14_000], [1, 5_100, 6_100],
    ]  # fmt: skip
    assert list(points.x[3:6]) == [1.2, 3.1, 5.0]
    told = [one[0] for one in points.customdata[::3]]
    assert "gap to the next 200 ns" in told[0]
    assert "overlaps the next by 800 ns" in told[1]
    assert "3 of 4 blocks reported" in told[2]
    assert all("each \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns" in one for one in told)


def test_kinds_differ_in_shade_and_only_the_picked_one_has_the_accent() -> None:
    kinds = [f"kind {number}" for number in range(6)]
    rows = [launched(0, at, 1_000 * at, 1_000 * at + 900, 100, kind=kind) for at, kind in enumerate(kinds)]
    figure = step_strip_figure(tables(rows), "kind 3", "light")
    colours = {one.name: one.fillcolor for one in figure.data if one.name in kinds}
    assert colours.pop("kind 3") == theme("light").accent
    assert len({*colours.values(), theme("light").accent}) == 6


def test_a_launch_is_told_by_kind_or_by_layer_where_there_is_room_on_whole_ranks_only() -> None:
    wide = [launched(0, 0, 0, 500, None, layer=3), launched(0, 1, 500, 515, None, layer=12)]
    narrow = launched(0, 2, 990, 1_000, None, layer=-1)
    told = trace(step_strip_figure(tables([*wide, narrow]), "sliding", "light"), "kinds")
    assert list(told.text) == ["sliding", "12"]
    many = [launched(rank, at, 20 * at, 20 * at + 19, None) for rank in range(5) for at in range(50)]
    told = trace(step_strip_figure(tables(many), None, "light"), "kinds")
    assert {int(y) for y in told.y} == {0, 1, 2, 3}
    assert len(told.text) == 4 * 49  # the first has no layer, and its kind no room


def test_the_host_has_its_own_axis_and_a_line_for_each_launch_submitted() -> None:
    figure = host_strip_figure(tables(STEP), "light")
    assert list(trace(figure, "step").x) == [9.0, 9.0]
    ticks = trace(figure, "submitted")
    assert list(ticks.x) == [*[0.0] * 3, *[0.01] * 3, *[0.02] * 3, None, *[0.0] * 3, *[0.01] * 3, None]
    assert {y for y in ticks.y[:9]} == {0.25, -0.25}


def test_no_more_ranks_are_drawn_than_fit() -> None:
    rows = [launched(rank, 0, 0, 100, None) for rank in range(MOST_RANKS + 3)]
    for draw in (
        lambda: step_strip_figure(tables(rows), None, "light"),
        lambda: host_strip_figure(tables(rows), "light"),
    ):
        assert len(draw().layout.yaxis.ticktext) == MOST_RANKS


def test_edges_are_the_tenths_of_the_answers_in_us(decode: Run) -> None:
    table, times = analysis.launches(decode), analysis.launch_times(decode)
    rows = table.to_pylist()
    for figure, name, of in (
        (all_in_figure(table, "light"), "all_in", rows),
        (lead_figure(table, "dark"), "lead", [row for row in rows if row["next_kind"]]),
        (gap_figure(times, "light"), "gap", [row for row in times.to_pylist() if row["gap_n"]]),
    ):
        dots = trace(figure, "intervals")
        np.testing.assert_allclose(dots.x, [row[f"{name}_p50_ns"] / 1000 for row in of])
        assert list(extents(figure).values()) == [
            (row[f"{name}_p10_ns"] / 1000, row[f"{name}_p90_ns"] / 1000) for row in of
        ]
    assert trace(gap_figure(times, "light"), "notes").text == ("nothing follows",)
    assert [pair_words(row) for row in rows][-1] == "head"


def test_hostile_kinds_are_shown_literally(hostile: Run) -> None:
    table = launches_of_step(hostile, step=0, rank=0)
    figure = step_strip_figure(table, HOSTILE[0], "light")
    told = [one[0] for one in trace(figure, "launches").customdata]
    assert told[0].startswith(f"<b>{shown(HOSTILE[2])}</b> ")
    assert told[-1].startswith(f"<b>{shown(HOSTILE[0])}</b> ")
    assert {one.name for one in figure.data} >= {shown(HOSTILE[0]), shown(HOSTILE[2])}
