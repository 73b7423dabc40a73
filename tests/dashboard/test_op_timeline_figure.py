"""The op timeline as numbers: what is drawn where, against tables written out here."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pytest
from hostile import HOSTILE

from musetrace.figures.op_rows import LANE_PX, arrange
from musetrace.figures.op_timeline import OpTimeline, op_timeline_figure, op_timelines_figure

COLUMNS = ("begin_p10_ns", "begin_p50_ns", "begin_p90_ns", "end_p10_ns", "end_p50_ns", "end_p90_ns")


def row(op: str, kind: str, *times: int, blocks: int = 4, n: int = 12) -> dict[str, Any]:
    assert len(times) == 6
    return {
        "op": op,
        "kind": kind,
        **dict(zip(COLUMNS, times, strict=True)),
        "dur_p50_ns": times[4] - times[1],
        "dur_mean_ns": times[4] - times[1] + 7,
        "begin_uncertainty_ns": 32,
        "end_uncertainty_ns": 32,
        "dur_uncertainty_ns": 32,
        "dur_mean_uncertainty_ns": 9,
        "blocks": blocks,
        "blocks_total": 4,
        "n": n,
    }


ROWS = [
    row("attention", "load", 100, 200, 300, 6_000, 7_500, 9_000),
    row("attention", "wait", 400, 500, 700, 2_000, 2_100, 2_200),
    row("attention", "compute", 2_000, 2_500, 2_600, 12_000, 12_345, 14_001, blocks=3),
    row("stop1", "wait", 20_000, 20_500, 21_000, 23_000, 24_000, 25_000),
    row("stop1", "recv", 24_000, 24_500, 25_000, 24_700, 25_500, 26_000),
    row("gemm1", "prefetch", 700, 700, 700, 15_000, 15_000, 15_000, blocks=1),
    row("gemm1", "load", 30_000, 33_000, 34_000, 41_000, 45_000, 46_000),
]


def figure_of(
    rows: list[dict[str, Any]], stops: tuple[str, ...] = ("stop1",), theme: str = "light"
) -> go.Figure:
    return op_timeline_figure(pa.Table.from_pylist(rows), stops, theme)


def trace(figure: go.Figure, name: str, kind: str = "bar") -> Any:
    return next(found for found in figure.data if found.name == name and found.type == kind)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_bar_runs_from_the_median_begin_to_the_median_end_in_us(theme: str) -> None:
    figure = figure_of(ROWS, theme=theme)
    loads = trace(figure, "load")
    assert list(loads.base) == [0.2, 33.0]
    assert list(loads.x) == pytest.approx([7.3, 12.0])
    assert list(trace(figure, "compute").base) == [2.5]
    assert list(trace(figure, "compute").x) == [9.845]
    assert {found.name for found in figure.data if found.type == "bar"} == {
        "load", "prefetch", "wait", "compute", "recv",
    }  # fmt: skip


def test_whiskers_span_p10_to_p90_at_both_ends() -> None:
    figure = figure_of(ROWS)
    kinds = ("load", "prefetch", "wait", "compute", "recv")
    lanes_px = {y for kind in kinds for y in trace(figure, kind).y}
    for edge, first, shift_px in (("begin", 0, -2), ("end", 3, 2)):
        found = sorted(teeth(trace(figure, f"{edge} p10 to p90", "scatter")))
        expected = sorted((one[COLUMNS[first]] / 1000, one[COLUMNS[first + 2]] / 1000) for one in ROWS)
        assert [low for low, _, _ in found] == pytest.approx([low for low, _ in expected])
        assert [high for _, high, _ in found] == pytest.approx([high for _, high in expected])
        assert {round(y, 6) for *_, y in found} == {round(y + shift_px, 6) for y in lanes_px}


def teeth(comb: Any) -> list[tuple[float, float, float]]:
    """Begin, end and middle of each rectangle of a comb: up at its begin, down at its end, 1.2 px high."""
    corners = list(zip(comb.x, comb.y, strict=True))
    up = [at for at in range(len(corners) - 1) if corners[at + 1][1] == pytest.approx(corners[at][1] - 1.2)]
    assert all(corners[at + 2][1] == corners[at + 1][1] for at in up)
    return [(corners[at][0], corners[at + 2][0], corners[at][1] - 0.6) for at in up]


def test_block_counts_stand_in_brackets_where_not_all_blocks_run_the_op() -> None:
    counts = trace(figure_of(ROWS), "blocks", "scatter")
    assert [text.strip("\N{NO-BREAK SPACE}") for text in counts.text] == ["(3)", "(1)"]
    assert list(counts.x) == [14.001, 15.0]


def test_hover_has_exact_integers_and_its_template_no_name() -> None:
    figure = figure_of(
        [row("a", "compute", 1, 1_234_567_891, 1_234_567_892, 2_000_000_001, 2_000_000_003, 2_000_000_007)]
    )
    bar = trace(figure, "compute")
    texts = " ".join(bar.customdata[0]).replace(",", "")
    for exact in (
        "1 ",
        "1234567891",
        "1234567892",
        "2000000001",
        "2000000003",
        "2000000007",
        "765432112",
        "4 of 4",
    ):
        assert exact in texts
    assert "compute" not in bar.hovertemplate
    assert trace(figure, "compute", "scatter").hovertemplate == bar.hovertemplate


def test_hover_says_what_the_clock_leaves_open_in_each_time() -> None:
    def hover(**changed: int | None) -> str:
        bar = trace(figure_of([{**row("a", "compute", 1, 2, 3, 4, 12, 16), **changed}]), "compute")
        return "\n".join(bar.customdata[0]).replace("\N{NO-BREAK SPACE}", " ")

    sign = "\N{PLUS-MINUS SIGN}"
    for line in (
        f"1   2   3  {sign} 32 ns",
        f"4  12  16  {sign} 32 ns",
        f"10 {sign} 32 ns",
        f"17 {sign} 9 ns",
    ):
        assert line in hover(), line
    unknown = dict.fromkeys(f"{name}_uncertainty_ns" for name in ("begin", "end", "dur", "dur_mean"))
    assert hover(**unknown).count(f"{sign} unknown") == 4


def test_stops_are_numbered_and_marked_where_their_wait_ends() -> None:
    figure = figure_of(ROWS, stops=("fc_stop", "stop0", "stop1"))
    marks = [(mark.text, mark.x) for mark in figure.layout.annotations]
    assert marks == [("1", 24.0)], "the number of its name; stops that the table lacks have no mark"
    assert figure.layout.yaxis.ticktext == ("attention", "<b>stop1</b>", "gemm1")


def test_rows_do_not_overlap_and_kinds_of_an_op_have_their_own_lanes() -> None:
    placed = arrange(ROWS)
    assert [one.op for one in placed] == ["attention", "stop1", "gemm1"]
    for above, below in zip(placed, placed[1:], strict=False):
        assert above.bottom_px == below.top_px
    lanes = {bar.values["kind"]: bar.y_px for bar in placed[0].bars}
    assert lanes["wait"] - lanes["load"] == lanes["compute"] - lanes["wait"] == LANE_PX
    assert placed[2].bars[0].y_px == placed[2].bars[1].y_px, "load and prefetch share a lane"


def test_every_row_of_the_table_is_drawn_also_of_a_kind_that_is_not_known() -> None:
    figure = figure_of([*ROWS, row("new", "teleport", 1, 2, 3, 4, 5, 6)])
    assert sum(len(found.y) for found in figure.data if found.type == "bar") == len(ROWS) + 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_reaches_plotly_as_text(name: str) -> None:
    figure = figure_of([row(name, "compute", 1, 2, 3, 4, 5, 6)], stops=())
    shown = [*figure.layout.yaxis.ticktext, *trace(figure, "compute").customdata[0]]
    assert not [text for text in shown if "<" in text or ">" in text]
    plain = figure_of([row("a", "compute", 1, 2, 3, 4, 5, 6)], stops=())
    assert trace(figure, "compute").hovertemplate == trace(plain, "compute").hovertemplate


def test_an_empty_table_and_a_table_of_zero_times_can_be_drawn() -> None:
    empty = pa.Table.from_pylist(ROWS).slice(0, 0)
    assert op_timeline_figure(empty, (), "light").layout.height > 0
    low, high = figure_of([row("a", "compute", *[0] * 6)]).layout.xaxis.range
    assert low < high


def test_two_timelines_have_the_same_bars_as_each_alone_the_second_below_the_first() -> None:
    later = [{**row, **{name: row[name] + 1_000 for name in COLUMNS}} for row in ROWS if row["op"] != "stop1"]
    both = op_timelines_figure(
        [
            OpTimeline(pa.Table.from_pylist(ROWS), ("stop1",), f"A: {HOSTILE[0]}"),
            OpTimeline(pa.Table.from_pylist(later), ("stop1",), "B: after"),
        ],
        "light",
    )
    first, second = figure_of(ROWS), figure_of(later)
    for name in ("load", "compute"):
        mine, a, b = (trace(figure, name) for figure in (both, first, second))
        assert list(mine.base) == [*a.base, *b.base]
        assert list(mine.x) == [*a.x, *b.x]
        assert list(mine.y[: len(a.y)]) == list(a.y)
        shifts = {below - alone for below, alone in zip(mine.y[len(a.y) :], b.y, strict=True)}
        assert len(shifts) == 1
        assert shifts.pop() > first.layout.yaxis.range[0], "below all rows of the first"
    assert both.layout.yaxis.ticktext == first.layout.yaxis.ticktext + second.layout.yaxis.ticktext
    numbers = [mark.text for mark in both.layout.annotations if mark.text.isdigit()]
    assert numbers == ["1"], "only the first has the stop"
    titles = [mark.text for mark in both.layout.annotations if not mark.text.isdigit()]
    assert titles == ["<b>A: &lt;img src=x onerror=alert(1)&gt;</b>", "<b>B: after</b>"]
