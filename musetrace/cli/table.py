"""A table as lines of text that never exceed a width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from musetrace.cli.text import cells, fit, pad


@dataclass(frozen=True)
class Column:
    """One column: its title, and its cells, already text.

    ``over`` stands above the titles of this column and the ``spans - 1`` after it, set a little apart.
    """

    title: str
    cells: Sequence[str]
    over: str = ""
    spans: int = 1
    left: bool = False
    widest: int = 24


@dataclass(frozen=True)
class _Place:
    """Where a column stands in a line: the blanks before it, and its width."""

    gap: int
    width: int


def full_titles(columns: Sequence[Column]) -> list[str]:
    """The title of each column with what stands above it, for tables that have one line of titles."""
    titles, over, until = [], "", 0
    for index, column in enumerate(columns):
        if column.over:
            over, until = column.over, index + column.spans
        titles.append(_joined_title(over, column.title) if index < until else column.title)
    return titles


def _joined_title(over: str, title: str) -> str:
    """What stands over several columns is of one unit; a title that has its own drops that."""
    above = over.removesuffix("us").rstrip(", ") if title.endswith(" ns") else over
    return f"{above} {title}".strip()


def table_width(columns: Sequence[Column]) -> int:
    """Cells of a line of these columns."""
    return sum(place.gap + place.width for place in _places(columns))


def table_lines(
    columns: Sequence[Column], width: int, chart: Sequence[str] = (), axis: str = ""
) -> list[str]:
    """The table's lines: titles, then rows. ``chart`` has a last cell for each row, ``axis`` is its title."""
    places = _places(columns)
    lines = [_line(columns, places, [column.title for column in columns], axis)]
    if any(column.over for column in columns):
        lines.insert(0, _over_line(columns, places))
    for row in range(len(columns[0].cells)):
        lines.append(
            _line(columns, places, [column.cells[row] for column in columns], chart[row] if chart else "")
        )
    return [fit(line.rstrip(" "), width) for line in lines]


def _places(columns: Sequence[Column]) -> list[_Place]:
    """Each column as wide as its content, a group at least as wide as what stands over it."""
    places: list[_Place] = []
    group_ends = 0
    for index, column in enumerate(columns):
        content = max((cells(cell) for cell in column.cells), default=0)
        is_apart = bool(column.over) or index == group_ends > 0
        width = min(max(content, cells(column.title)), column.widest)
        places.append(_Place((2 if is_apart else 1) if index else 0, width))
        if column.over:
            group_ends = index + column.spans
    for index, column in enumerate(columns):
        lack = cells(column.over) - _group_width(places, index, column.spans)
        if column.over and lack > 0:
            places[index] = _Place(places[index].gap, places[index].width + lack)
    return places


def _group_width(places: Sequence[_Place], first: int, spans: int) -> int:
    group = places[first : first + spans]
    return sum(place.gap + place.width for place in group) - group[0].gap


def _over_line(columns: Sequence[Column], places: Sequence[_Place]) -> str:
    line, index = "", 0
    while index < len(columns):
        column = columns[index]
        width = _group_width(places, index, column.spans)
        blanks = (width - cells(column.over)) // 2
        line += " " * places[index].gap + pad(" " * blanks + column.over, width)
        index += column.spans
    return line


def _line(columns: Sequence[Column], places: Sequence[_Place], texts: Sequence[str], last: str) -> str:
    line = ""
    for column, place, text in zip(columns, places, texts, strict=True):
        line += " " * place.gap + pad(text, place.width, right=not column.left)
    return f"{line}  {last}" if last else line
