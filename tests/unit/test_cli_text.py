"""Text on a terminal: nothing from a file can move the cursor, and no line is wider than asked for."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.cli.chart import Chart
from musetrace.cli.table import Column, table_lines, table_width
from musetrace.cli.text import cells, fit, pad, shown, wrap
from musetrace.wording.numbers import count, decimals_for, percent, size, us

HARMLESS = ("L", "M", "N", "P", "S", "Zs")  # letters, marks, numbers, punctuation, symbols, the space


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layer 3", "layer 3"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\x7f\x9b", "a\\x0ab\\x09c\\x7f\\x9b"),
        ("\u202egnp.exe\u2028", "\\u202egnp.exe\\u2028"),
        ("\udc80\U000e0001", "\\udc80\\U000e0001"),
        ("größe 層", "größe 層"),
    ],
)
def test_only_printable_characters_are_shown_as_they_are(text: str, expected: str) -> None:
    assert shown(text) == expected


@given(st.text())
def test_shown_text_is_harmless(text: str) -> None:
    for char in shown(text):
        assert unicodedata.category(char).startswith(HARMLESS)
        assert char == " " or not char.isspace()
    assert shown(text, ascii_only=True).isascii()
    assert shown(shown(text)) == shown(text)


names = st.text(st.sampled_from("ab1層\u0301é~ "), max_size=30)


@given(names, st.integers(0, 12))
def test_fit_and_pad_keep_to_the_width(text: str, width: int) -> None:
    assert cells(fit(text, width)) <= width
    assert cells(pad(text, width)) == width or width == 0
    if cells(text) <= width:
        assert fit(text, width) == text
        assert pad(text, width, right=True).endswith(text)


@given(names, st.integers(6, 20), st.sampled_from(["", "   "]))
def test_wrap_keeps_to_the_width_and_loses_nothing(text: str, width: int, indent: str) -> None:
    lines = wrap(text, width, indent)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


texts = st.lists(names, min_size=3, max_size=3)


@given(st.lists(st.tuples(names, texts, names, st.booleans()), min_size=1, max_size=6), st.integers(20, 80))
def test_a_table_keeps_to_the_width_and_to_its_columns(
    found: list[tuple[str, list[str], str, bool]], width: int
) -> None:
    columns = [Column(title, rows, over=over, left=left) for title, rows, over, left in found]
    lines = table_lines(columns, width)
    assert all(cells(line) <= width for line in lines)
    assert len(lines) == 4 + any(over for _, _, over, _ in found)
    assert max(cells(line) for line in table_lines(columns, 1000)) <= table_width(columns)


def test_a_group_stands_over_its_columns() -> None:
    columns = [Column("op", ["a", "b"], left=True), Column("p10", ["1", "22"], over="begin", spans=2)]
    columns += [Column("p50", ["3", "4"]), Column("n", ["5", "6"])]
    assert table_lines(columns, 80, ["#", " ##"], "0 us") == [
        "     begin",
        "op  p10 p50  n  0 us",
        "a     1   3  5  #",
        "b    22   4  6   ##",
    ]


def test_bars_cover_the_cells_of_their_time() -> None:
    chart = Chart(axis_ns=100, width=10, unicode=False)
    assert chart.bar("compute", 20, 60, 0, 100) == "..####...."
    assert chart.bar("load", 21, 59, 21, 59) == "  ===="  # every cell that it touches
    assert chart.bar("wait", 50, 50, 50, 50) == "     -"  # a moment is one cell
    assert chart.bar("send", 95, 300, -50, 300) == ".........>"  # what is outside ends at the edge
    assert chart.stacked([("busy", 50), ("loading", 20), ("waiting", 20)]) == "#####==--"
    assert Chart(100, 10, unicode=True).bar("compute", 20, 60, 0, 100) == "··████····"


@given(st.integers(1, 10**12), st.integers(12, 150), st.tuples(*[st.integers(-(10**12), 2 * 10**12)] * 4))
def test_no_bar_and_no_axis_leaves_its_chart(axis_ns: int, width: int, times: tuple[int, ...]) -> None:
    chart = Chart(axis_ns, width, unicode=True)
    assert len(chart.bar("compute", *times)) <= width
    assert len(chart.axis()) <= width


def test_the_axis_labels_stand_at_their_times() -> None:
    axis = Chart(axis_ns=80_000, width=40, unicode=True).axis()
    assert axis == "0 us      20        40        60"
    assert Chart(axis_ns=900, width=40, unicode=True).axis().split()[2:] == ["0.2", "0.4", "0.6", "0.8"]


@pytest.mark.parametrize(
    ("longest_ns", "time_ns", "text"),
    [
        (9_999, 1_234, "1.23"),
        (10_000, 1_234, "1.2"),
        (84_000, 84_049, "84.0"),
        (1_000_000, 12_345_678, "12,346"),
        (9_999, -1_500, "-1.50"),
        (10_000, -4, "0.0"),
        (9_999, None, "-"),
    ],
)
def test_times_have_about_four_digits(longest_ns: int, time_ns: int | None, text: str) -> None:
    assert us(time_ns, decimals_for(longest_ns)) == text


def test_counts_shares_and_sizes() -> None:
    assert [count(n) for n in (0, 999_999, 1_234_567)] == ["0", "999,999", "1.23M"]
    assert [percent(x) for x in (None, 0.0, 0.125, 1.0)] == ["-", "0.0 %", "12.5 %", "100.0 %"]
    assert [size(n) for n in (0, 999, 1_000, 12_345_678)] == ["0 B", "999 B", "1.0 kB", "12.3 MB"]
