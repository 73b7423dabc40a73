"""``/api/window`` and the other routes of the timeline: what a page of blocks, SMs or warps asks for.

Times are whole ns from the run's origin. A run is named by its place on the command line, nothing by a path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, request

from musetrace.analysis.windows.rows import BLOCKS, OWNED_BY_BLOCK, SMS, Rows
from musetrace.analysis.windows.window import View
from musetrace.dashboard.address import parse_query
from musetrace.dashboard.api import span_routes
from musetrace.dashboard.api.asked_place import asked_row_range, asked_rows, asked_time
from musetrace.dashboard.api.parameters import MOST_NS, MOST_PX, Parameters
from musetrace.dashboard.api.refusals import refusing
from musetrace.dashboard.api.run_document import minimap, run_document
from musetrace.dashboard.api.timelines import RunTimeline, Timelines
from musetrace.dashboard.api.window_answer import WindowAnswer, is_final, window_answer
from musetrace.dashboard.open_runs import OpenRuns

Route = Callable[[Timelines, RunTimeline, Parameters], Response | str]


def blueprint(runs: OpenRuns) -> Blueprint:
    """The routes, for these runs."""
    routes, timelines = Blueprint("windows", __name__), Timelines(runs)

    def add(name: str, answer: Route) -> None:
        def route() -> Response:
            asked = Parameters(parse_query(request.query_string.decode("ascii", "replace")))
            found = answer(timelines, timelines.of(asked.run_index(timelines.count)), asked)
            response = Response(found, mimetype="application/json") if isinstance(found, str) else found
            # Another run may be shown at this address tomorrow; the server remembers answers itself.
            response.headers["Cache-Control"] = "no-store"
            return response

        routes.add_url_rule(f"/api/{name}", name, refusing(route), methods=["GET"])

    for name, answer in _ROUTES.items():
        add(name, answer)
    return routes


def _window(timelines: Timelines, of: RunTimeline, asked: Parameters) -> Response:
    """Spans or a raster, as bytes."""
    rows = asked_rows(of, asked)
    view = View(
        rows,
        *asked_time(of, asked),
        *asked_row_range(asked, rows),
        asked.number("width", 1, MOST_PX),
        asked.number("height", 1, MOST_PX),
        int(asked.choice("strips", ("1", "4"), "4")),
    )
    seq = asked.number("seq", 0, MOST_NS, 0)
    found = timelines.kept(of, view, lambda: window_answer(of, view), WindowAnswer.size, keeps=is_final)
    return Response(found.encoded(seq), mimetype="application/octet-stream")


def _run(timelines: Timelines, of: RunTimeline, _: Parameters) -> str:
    """What the page knows of the run."""
    document = timelines.kept(of, "run", lambda: json.dumps(run_document(of)), len)
    small = timelines.kept(
        of, "minimap", lambda: json.dumps(minimap(of)), len, keeps=lambda text: text != "null"
    )
    return f'{document[:-1]}, "minimap": {small}}}'


def _row_list(_: Timelines, of: RunTimeline, asked: Parameters) -> str:
    """What each row is."""
    rows = asked_rows(of, asked)
    return json.dumps({"rows": [_row(rows, rank, number) for rank in rows.ranks for number in rows.numbers]})


def _row(rows: Rows, rank: int, number: int) -> list[Any]:
    """Rank, block, warp, SM and label of a row."""
    if rows.kind == BLOCKS:
        return [rank, number, None, None, f"rank {rank}, block {number}"]
    if rows.kind == SMS:
        return [rank, None, None, number, f"rank {rank}, SM {number}"]
    warp = "jobs of the block" if number == OWNED_BY_BLOCK else f"warp {number}"
    return [rank, rows.block, number, None, f"rank {rank}, block {rows.block}, {warp}"]


_ROUTES: dict[str, Route] = {"window": _window, "run": _run, "rows": _row_list, **span_routes.ROUTES}
