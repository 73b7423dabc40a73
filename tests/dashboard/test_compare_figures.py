"""The figures of a comparison as numbers, against rows written out here."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import HOSTILE

from musetrace.figures.difference_forest import MOST_ROWS, difference_forest_figure
from musetrace.figures.idle_pairs import MOST_CAUSES, idle_pairs_figure
from musetrace.figures.theme import theme


def row(a: int, off: int, low: int, high: int, verdict: str, band: int | None = 64) -> dict[str, Any]:
    return {
        "a_ns": a,
        "b_ns": a + off,
        "difference_ns": off,
        "low_ns": low,
        "high_ns": high,
        "uncertainty_ns": band,
        "band_ns": band,
        "verdict": verdict,
    }


ROWS = [
    row(10_000, 2_000, 1_500, 2_600, "slower"),
    row(8_000, -800, -900, -640, "faster"),
    row(5_000, 10, -40, 50, "same"),
    row(4_000, 300, -400, 1_000, "cannot tell"),
    row(0, -30, -90, 20, "cannot tell", band=None),
]
NAMES = ["gemm2 compute", HOSTILE[0], "qkv load", "stop1 wait", "gap"]


def marks(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.type == "scatter"}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_each_row_is_its_difference_with_its_interval_and_the_mark_of_its_verdict(name: str) -> None:
    figure = difference_forest_figure(ROWS, NAMES, name)
    found, look = marks(figure), theme(name)
    assert {verdict: list(trace.y) for verdict, trace in found.items()} == {
        "slower": [0], "faster": [1], "same": [2], "cannot tell": [3, 4],
    }  # fmt: skip
    assert list(found["cannot tell"].x) == [0.3, -0.03]
    assert list(found["cannot tell"].error_x.array) == pytest.approx([0.7, 0.05])
    assert list(found["cannot tell"].error_x.arrayminus) == pytest.approx([0.7, 0.06])
    assert len({trace.marker.symbol for trace in found.values()}) == 4, "told apart without colour too"
    assert (found["slower"].marker.color, found["faster"].marker.color) == (look.bad, look.good)
    bands = figure.data[0]
    assert list(bands.base) == [-0.064, -0.064, -0.064, -0.064, 0]
    assert list(bands.x) == [0.128, 0.128, 0.128, 0.128, 0]
    assert figure.layout.yaxis.ticktext[1] == "&lt;img src=x onerror=alert(1)&gt;"
    low, high = figure.layout.xaxis.range
    assert low < -0.9
    assert high > 2.6


def test_as_a_share_each_row_is_in_percent_of_its_own_time() -> None:
    figure = difference_forest_figure(ROWS[:2], NAMES[:2], "light", as_share=True)
    found = marks(figure)
    assert list(found["slower"].x) == [20.0]
    assert list(found["slower"].error_x.array) == pytest.approx([6.0])
    assert list(found["faster"].x) == [-10.0]
    assert list(figure.data[0].x) == pytest.approx([1.28, 1.6])


def test_hover_has_exact_ns() -> None:
    slower = marks(difference_forest_figure(ROWS, NAMES, "light"))["slower"]
    assert list(slower.customdata[0]) == [
        "gemm2 compute", "slower", "10,000", "12,000",
        "2,000 ns \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}64 ns", "1,500 to 2,600",
    ]  # fmt: skip


def test_as_many_rows_are_drawn_as_can_be_read() -> None:
    figure = difference_forest_figure(ROWS * 20, NAMES * 20, "light")
    assert len(figure.layout.yaxis.ticktext) == MOST_ROWS
    assert len(idle_pairs_figure(ROWS * 20, NAMES * 20, "light").layout.yaxis.ticktext) == MOST_CAUSES


def test_idle_causes_of_both_runs_stand_side_by_side() -> None:
    figure = idle_pairs_figure(ROWS[:3], NAMES[:3], "light")
    a, b, verdicts = figure.data
    assert list(a.x) == [10.0, 8.0, 5.0]
    assert list(b.x) == [12.0, 7.2, 5.01]
    assert all(one < other for one, other in zip(a.y, b.y, strict=True)), "A above B: the axis goes down"
    assert [text.strip() for text in verdicts.text] == ["+2.00 slower", "-0.80 faster", "+0.01 same"]
    assert list(verdicts.x) == [12.0, 8.0, 5.01]
    assert figure.layout.yaxis.ticktext[1] == "&lt;img src=x onerror=alert(1)&gt;"
