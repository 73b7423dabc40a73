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
from musetrace.analysis.certainty.clock_quality import largest_first
from musetrace.analysis.gaps.one_stop import arrival_histogram, block_arrivals
from musetrace.analysis.gaps.stops import first_stop
from musetrace.analysis.paths.launch_sample import MOST_SPANS
from musetrace.analysis.timeline.one_step import launches_of_step, typical_step
from musetrace.dashboard.address import parse_query, run_index
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.pair import Pair, compared
from musetrace.dashboard.scope import ALL, Scope, ScopeArguments, ScopeChoices
from musetrace.dashboard.what_list import read_changes
from musetrace.errors import AnalysisError, UsageError
from musetrace.known_bytes import known_bytes

Question = Callable[[Any, ScopeArguments, Mapping[str, str]], pa.Table]


def blueprint(runs: OpenRuns) -> Blueprint:
    """The route, for these runs."""
    routes = Blueprint("tables", __name__)

    @routes.get("/api/table/<question>.<suffix>")
    def table(question: str, suffix: str) -> Response:
        if question not in (*QUESTIONS, *COMPARISONS) or suffix not in _WRITERS:
            abort(404)
        query = parse_query(request.query_string.decode("ascii", "replace"))
        try:
            answer = (_of_pair if question in COMPARISONS else _of_run)(runs, question, query)
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


def _of_run(runs: OpenRuns, question: str, query: Mapping[str, str]) -> pa.Table:
    ref = runs.ref(run_index(query))
    choices = runs.kept(ref, ScopeChoices, ScopeChoices)
    scope = choices.settle(query, Scope())
    return QUESTIONS[question](runs.run(ref), scope.arguments, query)


def _of_pair(runs: OpenRuns, question: str, query: Mapping[str, str]) -> pa.Table:
    if len(runs.names) == 1:
        raise UsageError("one run is open, and it takes two to compare: start musetrace view A B")
    found = compared(runs, Pair.of(runs, query.get("a"), query.get("b")), query.get("kind", ALL))
    table: pa.Table = getattr(found, question.removeprefix("compare_"))
    return table


def _over_scope(function: Callable[..., pa.Table]) -> Question:
    return lambda run, scope, _: function(run, **scope)


def _over_ranks_and_steps(function: Callable[..., pa.Table]) -> Question:
    return lambda run, scope, _: function(run, rank=scope["rank"], step=scope["step"])


def _stops(run: Any, scope: ScopeArguments, _: Mapping[str, str]) -> pa.Table:
    return analysis.stops(run, layer_kind=scope["layer_kind"], step=scope["step"])


def _critical_path(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> pa.Table:
    return _path(run, scope, query).parts


def _critical_edges(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> pa.Table:
    return _path(run, scope, query).edges


def _path(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> analysis.CriticalPath:
    """As the view of the path shows it: of a bounded number of launches, or of whole steps of all kinds."""
    of_steps = query.get("of") == "step"
    kind = None if of_steps else scope["layer_kind"]
    arguments: ScopeArguments = {**scope, "layer_kind": kind}
    return analysis.critical_path(run, **arguments, whole_steps=of_steps, most_spans=MOST_SPANS)


def _what_if(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> pa.Table:
    return analysis.what_if(run, read_changes(query.get("what", "")), together=True, **scope)


def _of_stop(function: Callable[..., pa.Table]) -> Question:
    def ask(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> pa.Table:
        stop = query.get("stop", first_stop(run.job_table) or "")
        return function(run, stop=stop, **scope)

    return ask


def _roofline(run: Any, scope: ScopeArguments, _: Mapping[str, str]) -> pa.Table:
    return analysis.roofline(run, **scope, moved=known_bytes(run))


def _launches_of_step(run: Any, scope: ScopeArguments, _: Mapping[str, str]) -> pa.Table:
    step = typical_step(run, scope["rank"]) if scope["step"] is None else scope["step"]
    if step is None:
        raise AnalysisError("this run has no step yet")
    return launches_of_step(run, step=step, rank=scope["rank"])


def _idle_examples(run: Any, scope: ScopeArguments, query: Mapping[str, str]) -> pa.Table:
    rows = largest_first(analysis.idle(run, **scope).to_pylist(), "total_ns", "total_uncertainty_ns")
    largest = next((row["wait"] or row["cause"] for row in rows), "tail")
    return analysis.idle_examples(run, query.get("cause") or largest, **scope)


# Each by the name that `musetrace explain` has for it where it has a page there.
QUESTIONS: dict[str, Question] = {
    **{
        name: _over_scope(getattr(analysis, name))
        for name in (
            "op_timeline",
            "idle",
            "idle_after",
            "idle_blocks",
            "attribution",
            "arrivals",
            "findings",
            "launches",
            "launch_strip",
            "overlap",
            "utilisation",
            "ring_ahead",
            "block_busy",
            "what_ifs",
        )
    },
    "roofline": _roofline,
    "launches_of_step": _launches_of_step,
    "idle_examples": _idle_examples,
    "stops": _stops,
    "block_arrivals": _of_stop(block_arrivals),
    "arrival_histogram": _of_stop(arrival_histogram),
    "critical_path": _critical_path,
    "critical_edges": _critical_edges,
    "what_if": _what_if,
    "step_times": _over_ranks_and_steps(analysis.step_times),
    "step_lengths": lambda run, scope, _: analysis.step_lengths(run, rank=scope["rank"]),
    "step_parts": _over_ranks_and_steps(analysis.step_parts),
}

# The tables of a comparison of two runs, with their names in words.
COMPARISONS = {
    "compare_times": "times",
    "compare_ops": "ops",
    "compare_busy": "busy",
    "compare_idle": "idle",
    "compare_saved": "saved",
    "compare_skew": "stops",
    "compare_only": "of one run",
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
