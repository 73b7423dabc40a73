"""The comb encloses exactly the spans: checked by counting how often it winds around points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from musetrace.figures.comb import comb_path

Span = tuple[int, int, int]  # row, begin, end
TOP, BOTTOM = 0.25, 0.75


@st.composite
def span_lists(draw: st.DrawFn) -> list[Span]:
    """Sorted by row and begin, as the lanes have them; overlapping, touching and empty ones too."""
    one = st.tuples(st.integers(0, 4), st.integers(-3, 30), st.integers(0, 12))
    return sorted((row, begin, begin + length) for row, begin, length in draw(st.lists(one, max_size=12)))


def path_of(spans: list[Span], x0: float = 0.0) -> tuple[list[float], list[float]]:
    row, begin, end = (np.array([span[i] for span in spans], dtype=np.int64) for i in range(3))
    x, y = comb_path(row, begin.astype(float), end.astype(float), TOP, BOTTOM, x0)
    return x.tolist(), y.tolist()


def winding(x: list[float], y: list[float], px: float, py: float) -> int:
    """How often a closed polygon winds around a point, by the crossings of a ray to the right."""
    turns = 0
    for (ax, ay), (bx, by) in zip(zip(x, y, strict=True), zip(x[1:], y[1:], strict=False), strict=False):
        side = (bx - ax) * (py - ay) - (px - ax) * (by - ay)
        if ay <= py < by and side > 0:
            turns += 1
        elif by <= py < ay and side < 0:
            turns -= 1
    return turns


def holding(spans: list[Span], px: float, py: float) -> int:
    """How many of the spans' rectangles hold a point."""
    return sum(begin < px < end and row + TOP < py < row + BOTTOM for row, begin, end in spans)


@given(span_lists(), st.sampled_from([0.0, -5.0, 7.0, 50.0]))
def test_the_path_winds_around_a_point_once_for_each_span_that_holds_it(spans: list[Span], x0: float) -> None:
    x, y = path_of(spans, x0)
    for row in range(-1, 6):
        for px in np.arange(-5.5, 45.0):
            for py in (row + 0.1, row + 0.5, row + 0.9):
                assert abs(winding(x, y, px, py)) == holding(spans, px, py)


@given(span_lists())
def test_the_area_is_that_of_the_spans_and_the_path_is_closed(spans: list[Span]) -> None:
    x, y = path_of(spans)
    twice_area = sum(ax * by - bx * ay for ax, bx, ay, by in zip(x, x[1:], y, y[1:], strict=False))
    assert abs(twice_area) / 2 == sum(end - begin for _, begin, end in spans) * (BOTTOM - TOP)
    assert (x[:1], y[:1]) == (x[-1:], y[-1:])


@given(span_lists())
def test_the_path_has_four_points_a_span_and_changes_rows_at_x0_only(spans: list[Span]) -> None:
    x, y = path_of(spans, x0=-9.0)
    rows = len({row for row, _, _ in spans})
    assert len(x) == len(y) == (4 * len(spans) + 2 * rows + 1 if spans else 0)
    for ax, bx, ay, by in zip(x, x[1:], y, y[1:], strict=False):
        assert ax == bx or ay == by, "a slanted line"
        if int(ay) != int(by):
            assert ax == bx == -9.0


def test_no_spans_make_no_path() -> None:
    assert path_of([]) == ([], [])
