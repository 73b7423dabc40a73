"""The figures of the critical path and the what-if as numbers, against tables written out here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hostile import HOSTILE

from musetrace.figures.critical_bar import critical_bar_figure
from musetrace.figures.path_parts import path_parts_figure
from musetrace.figures.what_if_bar import what_if_figure


def part(op: str | None, kind: str, mean_ns: int, off_ns: int | None = 32) -> dict[str, Any]:
    return {
        "op": op,
        "kind": kind,
        "n": 4,
        "with_n": 3,
        "mean_ns": mean_ns,
        "mean_uncertainty_ns": off_ns,
        "share": mean_ns / 10_000,
        "share_uncertainty": None if off_ns is None else off_ns / 10_000,
    }


PARTS = [
    part("a", "gap", 100),
    part("a", "load", 400),
    part("a", "compute", 1_500),
    part("b", "wait", 5_000),
    part(HOSTILE[0], "compute", 1_950),
    part(None, "head", 1_050),
]


def name_of(row: Any) -> str:
    return str(row["op"] or "launched later")


def parts_figure(parts: list[dict[str, Any]], theme: str = "light") -> Any:
    return path_parts_figure(pa.Table.from_pylist(parts), name_of, theme)


def segments(figure: Any) -> dict[tuple[int, str], tuple[float, float]]:
    """(begin, length) in us by (row, name of the trace), the plain ones in the order of their begins."""
    return {
        (y, trace.name if trace.name != "between" else f"between {base:g}"): (base, x)
        for trace in figure.data
        if trace.type == "bar"
        for base, x, y in zip(trace.base, trace.x, trace.y, strict=True)
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_segments_of_an_op_follow_each_other_and_the_largest_op_is_first(theme: str) -> None:
    figure = parts_figure(PARTS, theme)
    # a, 2,000, and the hostile one, 1,950, are 50 apart, and each good to 3 x 32 and 32.
    hostile = "&lt;img src=x onerror=aler\N{HORIZONTAL ELLIPSIS}"
    assert list(figure.layout.yaxis.ticktext) == ["b", "a", hostile, "launched later"]
    assert segments(figure) == {
        (0, "wait"): (0.0, 5.0),
        (1, "between 0"): (0.0, 0.1),
        (1, "load"): (0.1, 0.4),
        (1, "compute"): (0.5, 1.5),
        (2, "compute"): (0.0, 1.95),
        (3, "between 0"): (0.0, 1.05),
    }
    amounts = next(trace for trace in figure.data if trace.name == "us")
    assert [text.split() for text in amounts.text] == [
        ["5.00", "50.0", "%"], ["2.00", "20.0", "%"], ["1.95", "19.5", "%"], ["1.05", "10.5", "%"],
    ]  # fmt: skip
    assert list(amounts.x) == pytest.approx([5.032, 2.096, 1.982, 1.082])
    assert figure.layout.xaxis.range[1] > 5.032, "what is outside of the axis is not drawn"
    assert list(amounts.error_x.arrayminus) == pytest.approx([0.064, 0.192, 0.064, 0.064])


def test_hover_has_exact_times_with_what_the_clock_leaves_open() -> None:
    wait = next(trace for trace in parts_figure(PARTS).data if trace.name == "wait")
    assert list(wait.customdata[0]) == [
        "b",
        "wait",
        "5,000 ns a launch \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns",
        "50.00 % \N{PLUS-MINUS SIGN} 0.32",
        "3 of 4 launches",
    ]


def test_nothing_is_ranked_by_a_clock_of_unknown_tick() -> None:
    unknown = [{**row, "mean_uncertainty_ns": None, "share_uncertainty": None} for row in PARTS]
    figure = parts_figure(unknown)
    assert [text[:1] for text in figure.layout.yaxis.ticktext] == ["a", "b", "&", "l"], "as they came"


def row_of(length: int, new: int, off: int | None) -> dict[str, Any]:
    return {"length_mean_ns": length, "new_mean_ns": new, "saved_mean_uncertainty_ns": off}


def test_the_two_bars_are_the_length_as_recorded_and_then() -> None:
    figure = what_if_figure(row_of(133_372, 130_993, 14), "light")
    (bars,) = figure.data
    assert list(bars.x) == [133.372, 130.993]
    assert list(bars.error_x.array) == [0, 0.014]
    assert list(figure.layout.yaxis.ticktext) == ["recorded", "then"]
    assert bars.customdata[1][1] == "130,993 ns \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}14 ns"
    longer = what_if_figure(row_of(1_000, 3_000, None), "dark")
    assert longer.layout.xaxis.range[1] >= 3.0
    assert "unknown" in longer.data[0].customdata[1][1]


def test_a_click_on_the_strip_tells_the_row_of_the_table() -> None:
    rows = [
        {"how": "head", "op": None, "kind": None, "job": None, "begin_ns": 0, "dur_ns": 5},
        {"how": "own", "op": "a", "kind": "compute", "job": "a_run", "begin_ns": 5, "dur_ns": 0},
        {"how": "own", "op": "b", "kind": "compute", "job": "b_run", "begin_ns": 5, "dur_ns": 9},
    ]
    more = dict.fromkeys(("rank", "block", "warp", "from_job", "from_block"))
    figure = critical_bar_figure(pa.Table.from_pylist([{**more, **row} for row in rows]), "light")
    places = {bar.name: [data[-1] for data in bar.customdata] for bar in figure.data if bar.type == "bar"}
    assert places == {"between": [0], "compute": [2]}
