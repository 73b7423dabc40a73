"""What a report is made of.

Texts are plain and harmless (``Screen.shown``); who renders them escapes what has a meaning in its own form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from musetrace.cli.table import Column


class Bars(Protocol):
    """Draws bars over a time axis; ``musetrace.cli.chart.Chart`` does so with characters."""

    def bar(self, kind: str, begin_ns: int, end_ns: int, early_ns: int, late_ns: int) -> str:
        """A bar for a kind of job, and whiskers out to the earliest and the latest."""

    def stacked(self, parts: Sequence[tuple[str, int]]) -> str:
        """Lengths in ns end to end, each ``busy``, ``loading`` or ``waiting``."""


@dataclass(frozen=True)
class Sentence:
    """A paragraph. ``indent`` stands before its second line and all further ones on a page of text."""

    text: str
    indent: str = ""


@dataclass(frozen=True)
class Listing:
    """Labels with a text each, of which a page of text shows at most ``most_lines`` lines."""

    entries: Sequence[tuple[str, str]]
    most_lines: int = 8


@dataclass(frozen=True)
class Ranking:
    """Items in the order of what they say: a headline each, and sentences below it.

    ``marks`` stand before them: a place, or that of a tie.
    """

    marks: Sequence[str]
    items: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Table:
    """A table; with ``bar`` also a bar for each of the ``rows``, over an axis of ``axis_ns``.

    ``axis_labels`` stand at the ends of an axis that is none of time.
    ``folded`` is what opens it where a table can be folded, because a picture shows the same.
    """

    columns: Sequence[Column]
    rows: Sequence[dict[str, Any]] = ()
    axis_ns: int = 0
    bar: Callable[[Bars, dict[str, Any]], str] | None = None
    folded: str = ""
    axis_labels: tuple[str, str] | None = None

    def bars(self, bars: Bars) -> list[str]:
        """The bars of the rows."""
        return [] if self.bar is None else [self.bar(bars, row) for row in self.rows]


@dataclass(frozen=True)
class Legend:
    """What the bars of kinds of jobs mean."""


@dataclass(frozen=True)
class Picture:
    """A figure, where figures can be shown; ``draw`` makes it for a theme's name and loads plotly.

    ``name`` is its own in the document. With ``has_kinds`` it has the colours of kinds of jobs.
    """

    name: str
    caption: str
    draw: Callable[[str], Any]
    has_kinds: bool = True


# A ``str`` is a line that was laid out by hand.
Block = str | Sentence | Listing | Ranking | Table | Legend | Picture


@dataclass(frozen=True)
class Section:
    """One answer: ``title`` names it, ``lead`` says what it shows; ``key`` is that of its question."""

    key: str
    title: str
    lead: str
    blocks: Sequence[Block]
    page: str = ""  # of ``musetrace explain``


@dataclass(frozen=True)
class Document:
    """A report: what was recorded under which conditions, then sections."""

    title: str
    sections: Sequence[Section]
