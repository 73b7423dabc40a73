"""A document as Markdown: tables as tables, tables with bars as text, pictures left out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from musetrace.cli.chart import legend
from musetrace.cli.markdown import fenced, paragraph, plain_text, table_line
from musetrace.cli.output import Screen
from musetrace.cli.report.as_text import charted_lines
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
from musetrace.cli.table import full_titles

# Wide enough for every column, narrow enough for a code block in a page.
MARKDOWN_WIDTH = 120


def markdown_text(document: Document, screen: Screen) -> str:
    """The whole document; ``screen`` is that of its tables with bars."""
    parts = [f"# {plain_text(document.title)}"]
    for section in document.sections:
        if not section.blocks or not all(isinstance(block, Picture) for block in section.blocks):
            parts += _section(section, screen)
    return "\n\n".join(parts) + "\n"


def _section(section: Section, screen: Screen) -> Iterator[str]:
    if section.title:
        yield f"## {plain_text(section.title)}"
    if section.lead:
        yield paragraph(section.lead)
    for is_line, blocks in groupby(section.blocks, key=lambda block: isinstance(block, str)):
        if is_line:
            yield fenced([block.rstrip(" ") for block in blocks if isinstance(block, str)])
        else:
            yield from filter(None, (_block(block, screen) for block in blocks))


def _block(block: Block, screen: Screen) -> str:
    if isinstance(block, Sentence):
        return paragraph(" ".join(block.text.split()))
    if isinstance(block, Listing):
        return "\n".join(f"- **{plain_text(label)}** {plain_text(text)}" for label, text in block.entries)
    if isinstance(block, Ranking):
        return "\n".join(_items(block))
    if isinstance(block, Table):
        return fenced(charted_lines(block, screen)) if block.rows else _table(block)
    return paragraph(legend(screen.unicode)) if isinstance(block, Legend) else ""


def _items(block: Ranking) -> Iterator[str]:
    for mark, (headline, *details) in zip(block.marks, block.items, strict=True):
        yield f"- **{plain_text(mark)} {plain_text(headline)}**"
        yield from (f"  - {paragraph(text)}" for text in details)


def _table(table: Table) -> str:
    columns = table.columns
    rules = ["---" if column.left else "---:" for column in columns]
    rows = zip(*(column.cells for column in columns), strict=True)
    return "\n".join(
        [
            table_line([plain_text(title) for title in full_titles(columns)]),
            table_line(rules),
            *(table_line([plain_text(cell) for cell in row]) for row in rows),
        ]
    )
