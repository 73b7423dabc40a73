"""``/api/table/QUESTION.csv`` and ``.arrow``: the whole table behind a view."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.csv
from flask import Blueprint, Response, abort, request

from musetrace import analysis
from musetrace.dashboard.address import parse_query, run_index
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.scope import Scope, ScopeArguments, ScopeChoices

Question = Callable[[Any, ScopeArguments, Mapping[str, str]], pa.Table]


def blueprint(runs: OpenRuns) -> Blueprint:
    """The route, for these runs."""
    routes = Blueprint("tables", __name__)

    @routes.get("/api/table/<question>.<suffix>")
    def table(question: str, suffix: str) -> Response:
        if question not in QUESTIONS or suffix not in _WRITERS:
            abort(404)
        query = parse_query(request.query_string.decode("ascii", "replace"))
        ref = runs.ref(run_index(query))
        try:
            choices = runs.kept(ref, ScopeChoices, ScopeChoices)
            scope = choices.settle(query, Scope())
            answer = QUESTIONS[question](runs.run(ref), scope.arguments, query)
        except Exception as error:
            return Response(sentence_of(error) + "\n", 400, mimetype="text/plain")
        write, mimetype = _WRITERS[suffix]
        name = f"{question}.{suffix}"
        return Response(
            write(answer),
            mimetype=mimetype,
            headers={"Content-Disposition": f"attachment; filename={name}", "Cache-Control": "no-store"},
        )

    return routes


def _over_scope(function: Callable[..., pa.Table]) -> Question:
    return lambda run, scope, _: function(run, **scope)


def _over_ranks_and_steps(function: Callable[..., pa.Table]) -> Question:
    return lambda run, scope, _: function(run, rank=scope["rank"], step=scope["step"])


def _stops(run: Any, scope: ScopeArguments, _: Mapping[str, str]) -> pa.Table:
    return analysis.stops(run, layer_kind=scope["layer_kind"], step=scope["step"])


def _critical_path(run: Any, scope: ScopeArguments, _: Mapping[str, str]) -> pa.Table:
    return analysis.critical_path(run, **scope).parts


# Each by the name that `musetrace explain` has for it where it has a page there.
QUESTIONS: dict[str, Question] = {
    **{
        name: _over_scope(getattr(analysis, name))
        for name in (
            "op_timeline",
            "idle",
            "idle_after",
            "attribution",
            "arrivals",
            "findings",
            "launches",
            "overlap",
            "utilisation",
            "roofline",
            "ring_ahead",
            "block_busy",
            "what_ifs",
        )
    },
    "stops": _stops,
    "critical_path": _critical_path,
    "step_times": _over_ranks_and_steps(analysis.step_times),
    "step_parts": _over_ranks_and_steps(analysis.step_parts),
}


def to_csv(table: pa.Table) -> bytes:
    """A table as CSV with a header; lists and structs as JSON."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        nested = pa.types.is_nested(column.type)
        columns[name] = [json.dumps(value) for value in column.to_pylist()] if nested else column
    out = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns), out)
    return out.getvalue()


def to_arrow(table: pa.Table) -> bytes:
    """A table as an Arrow IPC file, with its schema's metadata."""
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


_WRITERS: dict[str, tuple[Callable[[pa.Table], bytes], str]] = {
    "csv": (to_csv, "text/csv"),
    "arrow": (to_arrow, "application/vnd.apache.arrow.file"),
}
