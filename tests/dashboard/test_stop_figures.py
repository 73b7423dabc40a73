"""Stops as pictures: numbers against the answers that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import extents, trace
from hostile import HOSTILE

from musetrace import analysis
from musetrace.analysis.gaps.one_stop import EARLY, LEAD, arrival_histogram, block_arrivals
from musetrace.figures.interval_rows import Band
from musetrace.figures.one_stop import block_lasts_figure, block_means_figure, histogram_figure
from musetrace.figures.stop_rows import (
    keys_of,
    last_figure,
    lead_figure,
    spread_figure,
    stop_rows,
    wait_figure,
)
from musetrace.figures.strips import Strip, strips_figure
from musetrace.figures.theme import theme
from musetrace.figures.wording import shown
from musetrace.store import Run


@pytest.mark.parametrize("look", ["light", "dark"])
def test_all_pictures_of_stops_have_the_same_rows_with_the_answers_tenths_in_us(
    decode: Run, look: str
) -> None:
    waits, arrived = analysis.stops(decode), analysis.arrivals(decode)
    keys = keys_of(waits, arrived)
    assert keys[:4] == [("stop1", 0), ("stop1", 1), ("stop2", 0), ("stop2", 1)]
    for figure, table, name in (
        (wait_figure(waits, keys, "stop2", look), waits, "wait"),
        (spread_figure(arrived, keys, "stop2", look), arrived, "spread"),
        (lead_figure(arrived, keys, "stop2", 0, look), arrived, "lead"),
    ):
        of = {(row["stop"], row["rank"]): row for row in table.to_pylist()}
        dots = trace(figure, "intervals")
        drawn = [keys[place] for place in dots.y]
        assert set(drawn) == {key for key, row in of.items() if row[f"{name}_p50_ns"] is not None}
        np.testing.assert_allclose(dots.x, [of[key][f"{name}_p50_ns"] / 1000 for key in drawn])
        assert list(extents(figure).values()) == [
            (of[key][f"{name}_p10_ns"] / 1000, of[key][f"{name}_p90_ns"] / 1000) for key in drawn
        ]
        assert [one[1] for one in dots.customdata] == [stop for stop, _ in drawn]
        black = [
            key for key, colour in zip(drawn, dots.marker.color, strict=True) if colour == theme(look).ink
        ]
        assert {stop for stop, _ in black} == {"stop2"}
        assert len(figure.layout.yaxis.ticktext) == len(keys)


def test_below_the_error_of_the_clocks_a_band_says_that_nothing_is_told(decode: Run) -> None:
    arrived = analysis.arrivals(decode)
    keys = keys_of(arrived)
    for error_ns in (0, 3_200):
        figure = lead_figure(arrived, keys, "stop1", error_ns, "light")
        bands = [(one.x0, one.x1) for one in figure.layout.shapes if one.type == "rect"]
        assert bands == ([(0.0, 3.2)] if error_ns else [])
        assert [one.text for one in figure.layout.annotations] == (
            ["within the error of the clocks"] if error_ns else []
        )  # fmt: skip
        bins = arrival_histogram(decode, stop="stop1")
        figure = histogram_figure(bins, LEAD, "light", error_ns=error_ns)
        assert [(one.x0, one.x1) for one in figure.layout.shapes if one.type == "rect"] == bands
        assert not [one for one in histogram_figure(bins, EARLY, "light", error_ns=error_ns).layout.shapes
                    if one.type == "rect"]  # fmt: skip


def test_how_often_a_rank_was_last_runs_from_what_is_certain_to_what_may_be() -> None:
    rows = [
        {"stop": "stop1", "rank": 0, "last_share": 0.25, "tied_share": 0.5, "last_n": 1_008},
        {"stop": "stop1", "rank": 1, "last_share": 0.25, "tied_share": 0.5, "last_n": 1_008},
        {"stop": "stop2", "rank": 0, "last_share": None, "tied_share": None, "last_n": 0},
    ]
    keys = [("stop1", 0), ("stop1", 1), ("stop2", 0), ("stop2", 1)]
    figure = last_figure(pa.Table.from_pylist(rows), keys, "stop1", "light")
    dots = trace(figure, "intervals")
    assert (list(dots.x), list(dots.y)) == ([25.0, 25.0], [0, 1])
    assert list(extents(figure).values()) == [(25.0, 75.0)] * 2
    assert dots.customdata[0][0] == (
        "stop1, rank 0<br>last for certain in 25.0 % of 1,008 launches<br>tied in 50.0 %"
    )
    assert list(trace(figure, "notes").text) == ["not known", "none"]
    assert figure.layout.xaxis.range == (-4, 104)


def steps(figure: Any, label: str) -> tuple[list[float], list[float]]:
    """The begin and the height, of 1, of each step of a strip."""
    row = list(figure.layout.yaxis.ticktext).index(label)
    (outline,) = (one for one in figure.data if one.name.startswith("outlines"))
    beside = outline.x[0]
    # Of a row: there, up, the steps' corners, down, back.
    whole = [at for at, x in enumerate(outline.x[:-1]) if x == beside]
    first, past = whole[2 * row], whole[2 * row + 1]
    assert {outline.y[at] for at in (first, first + 1, past - 1, past)} == {row + 1}
    begins, tops = list(outline.x[first + 2 : past - 1 : 2]), outline.y[first + 2 : past - 1 : 2]
    assert beside < figure.layout.xaxis.range[0] - 0.5
    return begins, [(row + 1 - y) / 0.88 for y in tops]


def heights(figure: Any, label: str) -> list[float]:
    return steps(figure, label)[1]


def test_a_histogram_is_as_high_as_the_counts_and_says_what_is_beyond() -> None:
    rows = [
        {"measure": "early", "rank": 0, "from_ns": 0, "to_ns": 64, "n": 8},
        {"measure": "early", "rank": 0, "from_ns": 128, "to_ns": 192, "n": 2},
        {"measure": "early", "rank": 0, "from_ns": 192, "to_ns": None, "n": 1_234},
        {"measure": "early", "rank": 1, "from_ns": 64, "to_ns": 128, "n": 4},
        {"measure": "lead", "rank": 1, "from_ns": 0, "to_ns": 32, "n": 9},
    ]
    figure = histogram_figure(pa.Table.from_pylist(rows), EARLY, "light")
    assert heights(figure, "rank 0") == pytest.approx([1.0, 0.0, 0.25])
    assert heights(figure, "rank 1") == pytest.approx([0.0, 0.5, 0.0])
    assert steps(figure, "rank 0")[0] == [0.0, 0.064, 0.128]
    assert [one.text for one in figure.layout.annotations] == ["1,234 beyond"]
    assert trace(figure, "steps").customdata[0] == "rank 0<br>0 to 64 ns<br>8"


def test_a_histogram_with_everything_beyond_is_drawn() -> None:
    rows = [{"measure": "early", "rank": 0, "from_ns": 0, "to_ns": None, "n": 3}]
    assert (
        histogram_figure(pa.Table.from_pylist(rows), EARLY, "light").layout.annotations[0].text == "3 beyond"
    )


def test_blocks_stand_at_their_numbers_with_their_means_and_shares(decode: Run) -> None:
    table = block_arrivals(decode, stop="stop1")
    rows = table.to_pylist()
    means, lasts = block_means_figure(table, "light"), block_lasts_figure(table, "dark")
    for rank in (0, 1):
        mine = {row["block"]: row for row in rows if row["rank"] == rank}
        blocks = range(max(row["block"] for row in rows) + 1)
        most, often = max(row["early_mean_ns"] for row in rows), max(row["last_share"] for row in rows)
        assert heights(means, f"rank {rank}") == pytest.approx(
            [mine[block]["early_mean_ns"] / most if block in mine else 0.0 for block in blocks]
        )
        assert heights(lasts, f"rank {rank}") == pytest.approx(
            [mine[block]["last_share"] / often if block in mine else 0.0 for block in blocks]
        )
        assert steps(means, f"rank {rank}")[0][:2] == [-0.5, 0.5]


def test_strips_of_hostile_names_are_shown_literally() -> None:
    for name in HOSTILE:
        figure = strips_figure(
            [Strip(name, [0, 1], [1.0], [(name,)], "send", aside=name)], "x", "light", band=Band(0, 0.5, name)
        )
        assert figure.layout.yaxis.ticktext == (shown(name),)
        assert trace(figure, "steps").customdata == (shown(name, 120),)
        assert {one.text for one in figure.layout.annotations} == {shown(name), shown(name, 80)}


def test_of_many_ranks_every_fourth_has_its_label() -> None:
    def labels(ranks: int) -> list[str]:
        table = pa.table({"stop": ["stop1"] * ranks, "rank": list(range(ranks))})
        return [row.label for row in stop_rows(table.slice(0, 0), "wait", "n", keys_of(table), "")]

    assert labels(1) == ["stop1"]
    assert labels(8) == ["stop1  r0", *(f"r{rank}" for rank in range(1, 8))]
    assert labels(9) == ["stop1  r0", "", "", "", "r4", "", "", "", "r8"]
