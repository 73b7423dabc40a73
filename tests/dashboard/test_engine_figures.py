"""Engines and bandwidth as pictures: what is drawn where, against tables written here and real answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import extents, trace
from hostile import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.figures.engine_shares import STATE_WORDS, engine_shares_figure, share_words
from musetrace.figures.engine_use import STRIPS, engine_use_figure
from musetrace.figures.interval_rows import Band, IntervalRow, interval_rows_figure
from musetrace.figures.roofline_rows import drawn_rows, part_words, roofline_figure
from musetrace.figures.theme import theme
from musetrace.figures.wording import shown
from musetrace.store import Run


@pytest.mark.parametrize("look", ["light", "dark"])
def test_each_state_is_a_bar_as_long_as_its_share_in_the_order_of_the_answer(decode: Run, look: str) -> None:
    table = analysis.overlap(decode, layer_kind="sliding")
    figure = engine_shares_figure(table, look)
    assert list(figure.layout.yaxis.ticktext) == list(STATE_WORDS.values())
    bars, alone = trace(figure, "at work"), trace(figure, "and no other")
    np.testing.assert_array_equal(bars.x, [100 * share for share in table["share"].to_pylist()])
    assert list(bars.y) == list(range(9))
    only = dict(zip(alone.y, alone.x, strict=True))
    for place, row in enumerate(table.to_pylist()):
        assert only.get(place, bars.x[place]) == pytest.approx(100 * row["only_share"])
    # What is drawn as dark lines, and the bars without one, make up the time.
    assert sum(only.get(place, bars.x[place]) for place in range(9)) == pytest.approx(100)
    assert bars.marker.color[1] == theme(look).kinds["compute"].fill


def test_shares_of_a_clock_without_a_tick_are_of_unknown_uncertainty(hostile: Run) -> None:
    table = analysis.overlap(hostile)
    assert set(table["share_uncertainty"].to_pylist()) == {None}
    words = trace(engine_shares_figure(table, "light"), "share").text
    assert all(one.endswith("\N{PLUS-MINUS SIGN} unknown") for one in words)


@pytest.mark.parametrize(
    ("share", "off", "expected"),
    [
        (0.5, 0.1, "50 % ± 10"),
        (0.7494, 0.00096, "74.9 % ± 0.1"),
        (0.7991, 0.00048, "79.91 % ± 0.05"),
        (0.0, 0.0, "0.00 % ± 0.00"),
        (0.123456, 0.0000004, "12.35 % ± 0.01"),
        (None, None, "–"),
        (0.25, None, "25.0 % ± unknown"),
    ],
)
def test_a_share_says_no_more_digits_than_the_clock_leaves(
    share: float | None, off: float | None, expected: str
) -> None:
    assert share_words(share, off) == expected


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_said_to_be_open_is_never_less_than_what_is(share: float, off: float) -> None:
    said = float(share_words(share, off).split("± ")[1])
    assert said >= 100 * off - 1e-9


def test_a_strip_is_as_high_as_the_share_of_each_bin(decode: Run) -> None:
    table = analysis.utilisation(decode, layer_kind="global", bins=37)
    figure = engine_use_figure(table, "light")
    rows = [row for row in table.to_pylist() if row["block_ns"]]
    for name, (words, _) in STRIPS.items():
        strip = trace(figure, words)
        np.testing.assert_allclose(strip.y, [100 * row[f"{name}_share"] for row in rows])
        np.testing.assert_allclose(strip.x, [(row["begin_ns"] + row["end_ns"]) / 2000 for row in rows])
    axes = [figure.layout[f"yaxis{place or ''}"].domain for place in (0, 2, 3, 4, 5)]
    assert all(low < high for low, high in axes)
    assert all(above[0] > below[1] for above, below in zip(axes, axes[1:], strict=False))


def moved(part: str, name: str, gb_s: float | None, n: int = 4, **more: Any) -> dict[str, Any]:
    """A row of a roofline answer."""
    row: dict[str, Any] = {
        "part": part, "kind": "sliding", "name": name, "op": name, "way": "reads", "layers": [0], "n": n,
        "bytes": 1000, "bytes_low": 900, "bytes_basis": "", "unknown_jobs": [], "covered_p50_ns": 500,
        "covered_uncertainty_ns": 32, "bandwidth_gb_s": gb_s, "ceiling_share": None,
        "bandwidth_low_gb_s": None if gb_s is None else gb_s / 2, "bandwidth_high_gb_s": None,
    }  # fmt: skip
    return row | more


MOVED = [
    moved("op", "gemm1", 30.0),
    moved("op", "gemm1", 80.0, n=2, layers=[7]),
    moved("op", "sends_only", 9.0, way="sends"),
    moved("job", "gemm1_load", 31.0),
    moved("launch", "sliding", 20.0),
    moved("phase", "end", 5.0),
    moved("phase", "stop1", 7.0),
    moved("op", "router", None, bytes=None, unknown_jobs=["router_load"]),
    moved("op", "nothing known", None, bytes=None, bytes_low=0),
]


def test_the_roofline_has_launches_then_phases_then_ops_in_the_layers_with_most_launches() -> None:
    assert [part_words(row) for row in drawn_rows(MOVED)] == [
        "whole sliding", "to the end", "to stop1", "gemm1", "router",
    ]  # fmt: skip
    figure = roofline_figure(pa.Table.from_pylist(MOVED), "light")
    dots = trace(figure, "intervals")
    assert list(dots.x) == [20.0, 5.0, 7.0, 30.0]
    assert list(dots.y) == [0, 1, 2, 3]
    assert extents(figure) == {0: (10.0, 20.0), 1: (2.5, 5.0), 2: (3.5, 7.0), 3: (15.0, 30.0)}
    assert trace(figure, "notes").text == ("bytes not known of router_load",)
    assert figure.layout.xaxis.type != "log"


def test_the_ceiling_is_a_line_in_a_band_on_a_linear_and_on_a_logarithmic_axis() -> None:
    for log in (False, True):
        figure = roofline_figure(
            pa.Table.from_pylist(MOVED), "dark", log=log, ceiling_gb_s=(100.0, 90.0, 95.0)
        )
        shapes = [(one.type, one.x0, one.x1) for one in figure.layout.shapes if one.yref == "paper"]
        assert shapes == [("rect", 90.0, 100.0), ("line", 100.0, 100.0)]
        note = figure.layout.annotations[0]
        assert (note.text, note.x) == ("ceiling 100 GB/s", 2.0 if log else 100.0)
        assert figure.layout.xaxis.type == ("log" if log else None)
        low, high = figure.layout.xaxis.range
        assert (10**low < 2.5 and 10**high > 100) if log else (low == 0 and high > 100)


ends = st.one_of(st.none(), st.floats(-1e6, 1e6))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(ends, st.floats(0, 10), st.floats(0, 10)), max_size=30), st.booleans(), st.booleans()
)
def test_every_known_interval_is_drawn_where_it_is_and_fits_the_axis(
    values: list[tuple[float | None, float, float]], log: bool, banded: bool
) -> None:
    rows = [
        IntervalRow(
            str(place), None if middle is None else middle - less, middle,
            None if middle is None else middle + more, (), note="none",
        )
        for place, (middle, less, more) in enumerate(values)
    ]  # fmt: skip
    band = Band(1.0, 2.0, "band") if banded else None
    figure = interval_rows_figure(rows, "x", "light", log=log, band=band)
    drawn = [
        place for place, (middle, _, _) in enumerate(values) if middle is not None and (not log or middle > 0)
    ]
    dots = trace(figure, "intervals")
    assert list(dots.y) == drawn
    assert list(dots.x) == [values[place][0] for place in drawn]
    assert list(trace(figure, "notes").y) == [place for place in range(len(values)) if place not in drawn]
    first, last = (10.0**end if log else end for end in figure.layout.xaxis.range)
    assert all(first <= x <= last for x in dots.x)
    assert set(extents(figure)) == set(drawn)
    for place, (low, high) in extents(figure).items():
        middle, less, more = values[place]
        assert (low, high) == pytest.approx((max(middle - less, first), max(middle + more, first)))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_rows_are_shown_literally(name: str) -> None:
    figure = interval_rows_figure([IntervalRow(name, 1, 2, 3, (name,), note=name)], "x", "light")
    assert figure.layout.yaxis.ticktext == (shown(name, 30),)
    assert trace(figure, "intervals").customdata[0][0] == shown(name, 120)
    assert "%{customdata[0]}" in trace(figure, "intervals").hovertemplate
