"""A document as lines of text that fit a screen."""

from __future__ import annotations

from collections.abc import Iterator

from musetrace.cli.chart import MIN_CHART, Chart, legend
from musetrace.cli.output import Screen
from musetrace.cli.report.document import (
    Block,
    Document,
    Legend,
    Listing,
    Picture,
    Ranking,
    Section,
    Sentence,
    Table,
)
from musetrace.cli.table import table_lines, table_width
from musetrace.cli.text import fit, labelled_lines, wrap

_CHART_GAP = 2


def text_lines(document: Document, screen: Screen) -> list[str]:
    """The document's lines: each section behind an empty one."""
    lines = wrap(document.title, screen.width)
    for section in document.sections:
        if not section.blocks or not all(isinstance(block, Picture) for block in section.blocks):
            lines += [*([""] if section.title else []), *section_lines(section, screen)]
    return lines


def section_lines(section: Section, screen: Screen) -> list[str]:
    """Title and lead, then the blocks."""
    head = ": ".join(filter(None, (section.title, section.lead)))
    lines = wrap(head, screen.width, indent="  ") if head else []
    return lines + [line for block in section.blocks for line in block_lines(block, screen)]


def block_lines(block: Block, screen: Screen) -> list[str]:
    """The lines of one block; a picture has none."""
    if isinstance(block, str):
        return [fit(block.rstrip(" "), screen.width)]
    if isinstance(block, Sentence):
        return wrap(block.text, screen.width, indent=block.indent)
    if isinstance(block, Listing):
        return [
            line for entry in block.entries for line in labelled_lines(*entry, screen.width, block.most_lines)
        ]
    if isinstance(block, Ranking):
        return list(_ranked(block, screen.width))
    if isinstance(block, Legend):
        return wrap(legend(screen.unicode), screen.width, indent="  ")
    return [] if isinstance(block, Picture) else charted_lines(block, screen)


def _ranked(block: Ranking, width: int) -> Iterator[str]:
    room = max(map(len, block.marks), default=0) + 1
    for mark, item in zip(block.marks, block.items, strict=True):
        lines = [line for text in item for line in wrap(text, width - room)]
        yield from (f"{'' if index else mark:<{room}}{line}" for index, line in enumerate(lines))


def charted_lines(table: Table, screen: Screen) -> list[str]:
    """The table, with its bars where there is room for them."""
    width = screen.width - table_width(table.columns) - _CHART_GAP
    if width < MIN_CHART or not table.rows:
        return table_lines(table.columns, screen.width)
    chart = Chart(max(table.axis_ns, 1), width, screen.unicode)
    axis = chart.axis()
    if table.axis_labels is not None:
        first, last = table.axis_labels
        axis = f"{first}{last:>{width - len(first)}}"
    return table_lines(table.columns, screen.width, table.bars(chart), axis)
