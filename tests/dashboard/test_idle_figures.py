"""The figures of the overview and the idle view: what is drawn equals the tables."""

from __future__ import annotations

import numpy as np
import pytest
from hostile import HOSTILE

from musetrace import analysis
from musetrace.figures.heat import heat_scale
from musetrace.figures.idle_blocks import MOST_CAUSES, idle_blocks_figure
from musetrace.figures.launch_strip import launch_strip_figure
from musetrace.figures.step_times import step_times_figure
from musetrace.figures.theme import theme
from musetrace.store import Run, open_run
from tests.unit.fake_run import FakeRun, Launch


def test_step_times_are_those_of_the_table_on_an_axis_for_each_clock(decode: Run) -> None:
    table = analysis.step_lengths(decode)
    figure = step_times_figure(table, "light")
    assert [trace.name for trace in figure.data] == ["device", "host"]
    for trace in figure.data:
        rows = [row for row in table.to_pylist() if row["clock"] == trace.name]
        assert list(trace.x) == [row["step"] for row in rows]
        assert list(trace.y) == [row["step_ns"] / 1000 for row in rows]
        assert [one[2] for one in trace.customdata] == [f"{row['step_ns']:,}" for row in rows]
        axis = figure.layout[trace.yaxis.replace("y", "yaxis")]
        low, high = axis.range
        assert low < min(trace.y) <= max(trace.y) < high
        assert high - low >= 0.1 * max(trace.y)
        assert trace.name in axis.title.text


def test_slow_steps_are_ringed_with_their_number() -> None:
    lengths = [50, 51, 52, 50, 51, 400, 52]
    launches = [Launch(0, step, 0, 0, "sliding", 0, end, 1) for step, end in enumerate(lengths)]
    figure = step_times_figure(analysis.step_lengths(FakeRun(launches, [], 1, (0,))), "dark")
    rings = figure.data[-1]
    assert (rings.name, list(rings.x), list(rings.y), list(rings.text)) == ("outliers", [5], [0.4], ["5"])


def test_the_strip_has_a_cell_for_each_launch_in_order(decode: Run) -> None:
    table = analysis.launch_strip(decode)
    figure = launch_strip_figure(table, "light")
    time, idle = figure.data
    rows = table.to_pylist()
    assert [row["kind"] for row in rows] == ["entry", "sliding", "sliding", "global", "sliding", "head"]
    assert np.array_equal(time.z, [[row["launch_p50_ns"] / 1000 for row in rows]])
    assert np.array_equal(idle.z, [[row["idle_share_p50"] for row in rows]])
    assert [text[1] for text in time.customdata[0]] == [
        f"{row['launch_p50_ns']:,} ns \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}1 ns" for row in rows
    ]
    assert list(figure.layout.xaxis.ticktext) == ["entry", "0", "1", "2", "3", "4"]
    for strip in (time, idle):
        assert strip.zmax == np.max(strip.z)
        assert strip.zmin <= min(np.min(strip.z), 0.9 * strip.zmax)


def test_a_strip_of_one_launch_says_its_numbers_once(tiny_path) -> None:  # type: ignore[no-untyped-def]
    figure = launch_strip_figure(analysis.launch_strip(open_run(tiny_path)), "light")
    texts = [mark.text for mark in figure.layout.annotations]
    assert texts == ["1,300 \N{MICRO SIGN}s", "14.5 %"]
    assert list(figure.layout.xaxis.ticktext) == ["sliding"]


def test_every_cell_of_blocks_and_causes_is_that_of_the_table(decode: Run) -> None:
    table = analysis.idle_blocks(decode, layer_kind="sliding")
    rows = table.to_pylist()
    causes = [(key, key) for key in dict.fromkeys(row["wait"] or row["cause"] for row in rows)]
    figure = idle_blocks_figure(table, causes, causes[1][0], "light")
    (heat,) = figure.data
    drawn = causes[:MOST_CAUSES]
    assert heat.z.shape == (len(drawn), 8)
    cells = {
        (row["wait"] or row["cause"], row["rank"], row["block"]): row
        for row in rows
        if (row["wait"] or row["cause"]) in dict(drawn)
    }
    assert np.count_nonzero(~np.isnan(heat.z)) == len(cells)
    for (key, rank, block), row in cells.items():
        at = [key for key, _ in drawn].index(key), 4 * rank + block
        assert heat.z[at] == row["share_of_time"]
        told = [rank, block, row["total_ns"], row["total_uncertainty_ns"]]
        assert heat.customdata[at].tolist() == told
        assert heat.text[at[0]][at[1]] == key
    frame = next(shape for shape in figure.layout.shapes if shape.type == "rect")
    assert (frame.y0, frame.y1) == (0.5, 1.5)
    assert list(figure.layout.xaxis.ticktext) == ["rank 0", "rank 1"]


@pytest.mark.parametrize("theme_name", ["light", "dark"])
def test_names_in_figures_are_shown_literally(hostile_path, theme_name: str) -> None:  # type: ignore[no-untyped-def]
    run = open_run(hostile_path)
    blocks = analysis.idle_blocks(run)
    causes = [(key, key) for key in dict.fromkeys(x["wait"] or x["cause"] for x in blocks.to_pylist())]
    figures = [
        idle_blocks_figure(blocks, causes, "", theme_name),
        launch_strip_figure(analysis.launch_strip(run), theme_name),
    ]
    for figure in figures:
        text = figure.to_json()
        for name in HOSTILE[:2]:
            assert name not in text.replace("\\u003c", "<").replace("\\u003e", ">")
        for trace in figure.data:
            names = [name for name in HOSTILE if not name.startswith("%{")]
            assert not any(name in trace.hovertemplate for name in names)
    assert "unknown" in figures[0].data[0].hovertemplate


def test_a_heat_scale_goes_from_faint_to_its_hue() -> None:
    look = theme("light")
    scale = heat_scale(look, look.poor, lifted=True)
    assert scale[0][0] == 0.0
    assert scale[-1] == [1.0, look.poor]
    reds = [int(colour[1:3], 16) for _, colour in scale]
    assert reds == sorted(reds, reverse=True)
    assert heat_scale(look, look.poor)[0] == scale[0]
