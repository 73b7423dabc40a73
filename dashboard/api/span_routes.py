"""The timeline's questions about spans: one, under a point, next to it, in an area, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from musetrace.analysis.windows.area import area
from musetrace.analysis.windows.places import Place, neighbour, span_at
from musetrace.analysis.windows.rows import BLOCKS, SMS, Rows
from musetrace.analysis.windows.search import BEFORE_ALL, Hit, Search, search
from musetrace.dashboard.api.asked_place import (
    MOST_ROWS,
    asked_row_range,
    asked_rows,
    asked_span,
    asked_time,
)
from musetrace.dashboard.api.parameters import MOST_NS, Parameters
from musetrace.dashboard.api.refusals import NotThereError
from musetrace.dashboard.api.span_documents import checked, hit_documents, short_spans, span_document
from musetrace.dashboard.api.timelines import RunTimeline, Timelines


def _span(timelines: Timelines, of: RunTimeline, asked: Parameters) -> str:
    name = asked_span(asked)
    return timelines.kept(of, ("span", name), lambda: json.dumps(span_document(of, name)), len)


def _place(of: RunTimeline, place: Place | None) -> str:
    names = [] if place is None else [(place.rank, place.step, place.id)]
    return json.dumps({"span": next(iter(short_spans(of, names)), None)})


def _at(_: Timelines, of: RunTimeline, asked: Parameters) -> str:
    rows = asked_rows(of, asked)
    row = asked.number("row", 0, MOST_ROWS)
    if row >= rows.count:
        raise NotThereError(f"there is no row {row}: there are {rows.count}")
    strip = asked.choice("strip", ("any", "0", "1", "2", "3"), "any")
    slack_ns = asked.number("slack", 0, MOST_NS, 0)
    number = None if strip == "any" else int(strip)
    return _place(of, span_at(of.timeline, rows, row, number, asked.time("t"), slack_ns))


def _next(_: Timelines, of: RunTimeline, asked: Parameters) -> str:
    rows, name = asked_rows(of, asked), asked_span(asked)
    checked(of, name)
    direction = int(asked.choice("dir", ("1", "-1"), "1"))
    one_strip = asked.choice("strips", ("1", "4"), "1") == "1"
    return _place(of, neighbour(of.timeline, rows, *name, direction, one_strip=one_strip))


def _area(timelines: Timelines, of: RunTimeline, asked: Parameters) -> str:
    rows = asked_rows(of, asked)
    place = (*asked_time(of, asked), *asked_row_range(asked, rows))
    key = ("area", rows, place)
    return timelines.kept(of, key, lambda: json.dumps(_measured(of, rows, place)), len)


def _measured(of: RunTimeline, rows: Rows, place: tuple[int, int, int, int]) -> dict[str, Any]:
    found = area(of.timeline, rows, *place)
    ops = {op: number for number, op in enumerate(of.timeline.strips.ops)}
    note = "Spans that lie in the area, also those that do in part, with their whole lengths."
    if found.flagged:
        note += f" {found.flagged:,} with a flag are left out."
    numbers = ("n", "total_ns", "inside_ns", "min_ns", "p10_ns", "p50_ns", "p90_ns", "max_ns")
    return {
        "spans": sum(group.n for group in found.groups),
        "flagged": found.flagged,
        "edges_ns": found.edges_ns.tolist(),
        "rows": [
            {
                "op": ops.get(group.op, len(ops) - 1),
                "name": group.op,
                "kind": group.kind,
                **{name: getattr(group, name) for name in numbers},
                "counts": group.histogram.tolist(),
            }
            for group in found.groups
        ],
        "note": note,
    }


def _search(timelines: Timelines, of: RunTimeline, asked: Parameters) -> str:
    rows = asked_rows(of, asked)
    blocks = of.rows(BLOCKS, rows.ranks, None)
    window = (*asked_time(of, asked), *_searched_rows(asked, rows, blocks))
    longest_first = asked.choice("sort", ("time", "dur"), "time") == "dur"
    lengths = (asked.number("min_ns", 0, MOST_NS, 0), asked.number("max_ns", 0, MOST_NS, MOST_NS))
    wanted, after = Search(asked.text("op"), *lengths, longest_first), _after(asked, longest_first)

    def made() -> str:
        found = search(of.timeline, blocks, window, wanted, after)
        hits = hit_documents(of, found.hits, with_sm=rows.kind == SMS)
        passed = found.total - found.rest
        return json.dumps(
            {"total": found.total, "passed": passed, "hits": hits, "more": found.rest > len(hits)}
        )

    return timelines.kept(of, ("search", rows, window, wanted, after), made, len)


def _searched_rows(asked: Parameters, rows: Rows, blocks: Rows) -> tuple[int, int]:
    """The blocks that are searched: those of the rows; all of them for SMs, and for warps that one."""
    if rows.kind == BLOCKS:
        return asked_row_range(asked, rows)
    if rows.block is None:
        return 0, blocks.count
    return rows.block, rows.block + 1


def _after(asked: Parameters, longest_first: bool) -> Hit:
    """The last hit that was told: BEGIN.RANK.STEP.ID, with the longest first DUR.BEGIN.RANK.STEP.ID."""
    numbers = asked.numbers("after", 5 if longest_first else 4)
    if numbers is None:
        return BEFORE_ALL
    return Hit(-numbers[0], *numbers[1:]) if longest_first else Hit(0, *numbers)


ROUTES: dict[str, Callable[[Timelines, RunTimeline, Parameters], str]] = {
    "span": _span,
    "at": _at,
    "next": _next,
    "area": _area,
    "search": _search,
}
