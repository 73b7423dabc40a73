"""The critical path of one launch, span by span: for a picture, and to check it by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import answer
from musetrace.analysis.paths.launch_graph import launch_graphs
from musetrace.analysis.paths.launch_sample import launch_sample
from musetrace.analysis.paths.path_steps import OUTSIDE, STEP_NAMES, PathSteps
from musetrace.analysis.paths.span_ids import span_ids
from musetrace.analysis.spans.rows import op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection
from musetrace.errors import AnalysisError
from musetrace.job_table import JobTable

_FIELDS = [
    ("how", pa.string()),
    ("op", pa.string()),
    ("kind", pa.string()),
    ("job", pa.string()),
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("warp", pa.uint32()),
    ("begin_ns", pa.int64()),
    ("dur_ns", pa.int64()),
    ("span_begin_ns", pa.int64()),
    ("span_dur_ns", pa.int64()),
    ("from_job", pa.string()),
    ("from_rank", pa.uint32()),
    ("from_block", pa.uint32()),
    ("step", pa.uint32()),
    ("launch", pa.uint32()),
    ("span", pa.uint64()),
]


def critical_spans(
    run: RunLike, *, rank: int | None = None, step: int | None = None, launch: int | None = None
) -> pa.Table:
    """One row per stretch of the path of one launch (``critical_path``), from its begin to its end.

    It is launch ``launch`` of step ``step``; where these are not given the first launch of the first step.
    Times are ns from the first begin of the launch on a rank, on the axis of the first rank. The stretch is
    ``begin_ns`` and ``dur_ns``, the span that it is of ``span_begin_ns`` and ``span_dur_ns``. ``how``:
    ``own``, in the span; ``gap``, in front of it; ``way``, ``piece``, ``last_piece`` and ``hand_off`` come
    from the span of ``from_job`` on ``from_rank`` and ``from_block``; ``head``, ``before``, ``launch_way``
    and ``tail`` are of no span. ``span`` is the place of the span among ``run.spans(rank, step)``.

    ``rank``: to the end on this rank.

    Raises:
        AnalysisError: the run has no such rank, step or launch.
    """
    counted, scope = Counted(), Selection(None, rank, step)
    sample = launch_sample(run, scope, None)
    only = {at: [one for one in ids if launch in (None, one)] for at, ids in sample.launches.items()}
    first = {at: ids[:1] for at, ids in only.items() if ids}
    if launch is not None and not first:
        of_step = "this run" if step is None else f"step {step}"
        raise AnalysisError(f"{of_step} has no launch {launch} that left a stamp")
    rows: list[dict[str, object]] = []
    for graph in launch_graphs(run, scope, counted, dict(list(first.items())[:1])):
        path = PathSteps.of(graph, rank)
        if path is not None and not rows:
            rows = _rows(run.job_table, path, graph.windows.whole[0])
            ids = span_ids(run, graph, path).tolist()
            for row, span in zip(rows, ids, strict=True):
                row |= {"step": graph.step, "launch": graph.launch}
                row["span"] = span if "job" in row and span >= 0 else None
    return answer(run, _FIELDS, rows, counted)


def _rows(table: JobTable, path: PathSteps, from_ns: int) -> list[dict[str, object]]:
    outside = np.isin(path.step, OUTSIDE)
    rows: list[dict[str, object]] = []
    for at, step in enumerate(path.step.tolist()):
        row: dict[str, object] = {
            "how": STEP_NAMES[step],
            "begin_ns": int(path.begin[at]) - from_ns,
            "dur_ns": int(path.length[at]),
        }
        if not outside[at]:
            job = int(path.job[at])
            op, kind = op_and_kind(table, job)
            row |= {"op": op, "kind": kind, "job": table.job_name(job)}
            row |= {name: int(getattr(path, name)[at]) for name in ("rank", "block", "warp")}
            row |= {
                "span_begin_ns": int(path.span_begin[at]) - from_ns,
                "span_dur_ns": int(path.span_end[at] - path.span_begin[at]),
            }
        if path.edge[at]:
            row |= {
                "from_job": table.job_name(int(path.cause_job[at])),
                "from_rank": int(path.cause_rank[at]),
                "from_block": int(path.cause_block[at]),
            }
        rows.append(row)
    return rows
