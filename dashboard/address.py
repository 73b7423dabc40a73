"""The address bar holds the whole state of the page: which view, of which run, with what chosen."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

RUN = "run"  # the field of every view: the run's place on the command line
_LONGEST_QUERY = 4_000
_MOST_FIELDS = 48


def parse_query(search: str | None) -> dict[str, str]:
    """The fields of a query such as ``?kind=sliding&rank=0``; none of one that is too long or no query."""
    text = (search or "").removeprefix("?")
    if len(text) > _LONGEST_QUERY:
        return {}
    try:
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def write_query(fields: Mapping[str, str]) -> str:
    """The query of these fields; empty without any."""
    return f"?{urlencode(fields)}" if fields else ""


def address(view: str, run: int, **fields: str | int) -> str:
    """Where a view shows a run so: ``/idle?run=1&kind=sliding``. For links between views."""
    first = {RUN: str(run)} if run else {}
    return f"/{view}{write_query(first | {name: str(value) for name, value in fields.items()})}"


def to_location(where: str) -> tuple[str, str]:
    """What :func:`address` made, as ``dcc.Location`` takes it: ``pathname`` and ``search``."""
    path, mark, query = where.partition("?")
    return path, mark + query


def span_name(rank: int, step: int, span: int) -> str:
    """A span in the address of the timeline: ``span`` is its place in ``run.spans(rank, step)``."""
    return f"{rank}.{step}.{span}"


def run_index(query: Mapping[str, str]) -> int:
    """Which run a query means; the first for what is no number."""
    text = query.get(RUN, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0  # noqa: PLR2004
