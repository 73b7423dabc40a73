"""The state of the op view, and the address bar's query that it is read from and written to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, urlencode

from musetrace.figures.lane_spans import LaneChoice

ALL = "all"
_LONGEST_QUERY = 2_000
_MOST_FIELDS = 32
_ROWS = re.compile(r"r(?P<rank>\d{1,9})(b(?P<block>\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class OpState:
    """What the pickers of the op view are set to, as the texts that they hold.

    ``kind``, ``rank`` and ``step`` choose what the op timeline is over; ``lane_step``, ``launch`` (its number
    within the step) and ``rows`` (``all``, ``r0``, ``r0b12``) what the lanes show.
    """

    kind: str
    rank: str
    step: str
    lane_step: str
    launch: str
    rows: str


FIELDS = tuple(field.name for field in fields(OpState))


def parse_query(search: str | None) -> dict[str, str]:
    """The known fields of a query such as ``?kind=sliding&rank=0``; anything else is left out."""
    text = (search or "")[:_LONGEST_QUERY].removeprefix("?")
    try:
        pairs = parse_qsl(text, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}
    return {name: value for name, value in pairs if name in FIELDS}


def write_query(state: OpState, leave_out: Iterable[str] = ()) -> str:
    """The query of a state but for some fields; empty when nothing is left."""
    left_out = set(leave_out)
    pairs = [(name, getattr(state, name)) for name in FIELDS if name not in left_out]
    return f"?{urlencode(pairs)}" if pairs else ""


def number(value: str) -> int | None:
    """The number that a picker holds; None for all."""
    return None if value == ALL else int(value)


def parse_rows(value: str) -> LaneChoice | None:
    """Which lanes ``all``, ``r0`` or ``r0b12`` means; None for anything else."""
    if value == ALL:
        return LaneChoice()
    match = _ROWS.fullmatch(value)
    if match is None:
        return None
    return LaneChoice(int(match["rank"]), None if match["block"] is None else int(match["block"]))


def rows_label(choice: LaneChoice) -> str:
    """A choice of lanes in words."""
    if choice.rank is None:
        return "blocks of all ranks"
    if choice.block is None:
        return f"blocks of rank {choice.rank}"
    return f"warps of rank {choice.rank}, block {choice.block}"
