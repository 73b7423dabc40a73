"""Text inside a figure: names made harmless, numbers exact."""

from __future__ import annotations

import html

from musetrace.analysis.certainty.clock_quality import combined_ns

US = 1_000.0  # ns in one us
_LONGEST_NAME = 60


def shown(name: str, longest: int = _LONGEST_NAME) -> str:
    """A name as Plotly must be given it, so that it appears literally.

    Plotly reads ``<b>``, ``<a>`` and entities in every text, and ``%{...}`` in a template: pass the result as
    data (``text``, ``customdata``, a tick), never as part of a template.
    """
    if len(name) > longest:
        name = name[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return html.escape(
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name), quote=False
    )


def exact_ns(value: int | None) -> str:
    """An integer number of ns with its thousands marked, ``12,345``; a dash for None."""
    return "\N{EN DASH}" if value is None else f"{value:,}"


def plus_minus(uncertainty_ns: int | None) -> str:
    """What stands behind a time: ``± 32 ns``."""
    sign = "\N{PLUS-MINUS SIGN}"
    return f"{sign} unknown" if uncertainty_ns is None else f"{sign}\N{NO-BREAK SPACE}{uncertainty_ns:,} ns"


def many(number: int, one: str, several: str = "") -> str:
    """``1 block``, ``1,024 blocks``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def lane_uncertainty(uncertainty_ns: int | None, apart_ns: int | None) -> str:
    """What is open in a time of a lane, and against times of another rank where the ranks' clocks differ."""
    own = plus_minus(uncertainty_ns)
    if apart_ns == 0:
        return own
    if apart_ns is None:
        return f"{own}; its rank is not aligned with others"
    return f"{own}, {plus_minus(combined_ns(uncertainty_ns, apart_ns))} against another rank"


def aligned_words(apart_ns: int | None) -> str:
    """How well ranks of several clocks are placed."""
    return "ranks are not aligned" if apart_ns is None else f"ranks aligned to {plus_minus(apart_ns)}"
