"""What the timeline's page knows of a run before it asks for windows: names, colours, steps, launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from musetrace.analysis import tick_ns
from musetrace.analysis.gaps.stops import stop_jobs, stop_number
from musetrace.analysis.spans.rows import op_and_kind
from musetrace.analysis.windows import window
from musetrace.analysis.windows.job_strips import STRIPS
from musetrace.analysis.windows.lane_store import MOST_NEAR
from musetrace.analysis.windows.window import View
from musetrace.dashboard.api.timelines import RunTimeline
from musetrace.figures.op_colours import op_colours

MINIMAP_BINS = 1_024
MOST_LAUNCHES = 60_000


def run_document(of: RunTimeline) -> dict[str, Any]:
    """The document, all but the minimap."""
    run, axis = of.run, of.timeline.axis
    sms = of.sms()
    launches = _launches(of)
    return {
        "name": of.name,
        "origin_ns": str(axis.origin_ns),
        "from": 0,
        "to": axis.to_ns,
        "spans": of.spans,
        "ranks": list(run.ranks),
        "blocks": run.blocks,
        "has_kernels": bool(run.job_table.kernels),
        "has_sms": sms is not None,
        "sms": None if sms is None else list(sms),
        "warps": _warps(of),
        "ops": _ops(of),
        "jobs": _jobs(of),
        "steps": _steps(of),
        "launches": launches[:MOST_LAUNCHES],
        "launches_total": len(launches),
        "tick_ns": tick_ns(run),
        "uncertainty_ns": of.apart_ns(),
    }


def minimap(of: RunTimeline) -> dict[str, Any] | None:
    """The share of all blocks' time that each strip covers, in 1/255; None while it is being made."""
    run, rows, to_ns = of.run, of.timeline.all_blocks(), of.timeline.axis.to_ns
    if rows.count == 0:
        return {"strips": len(STRIPS), "bins": 0, "share": []}
    view = View(rows, 0, to_ns, 0, rows.count, MINIMAP_BINS, 1)
    if of.timeline.is_near(run.ranks, 0, to_ns):
        found = window.raster(of.timeline, view, window.near(of.timeline, view))
    else:
        overview = of.pictures.overview()
        if overview is None:
            return None
        found = overview.raster(view)
    return {"strips": len(STRIPS), "bins": found.share.shape[2], "share": found.share[0].ravel().tolist()}


def _ops(of: RunTimeline) -> list[dict[str, str]]:
    ops = of.timeline.strips.ops
    colours = op_colours(ops)
    return [{"name": op, "light": colours[op].light, "dark": colours[op].dark} for op in ops]


def _jobs(of: RunTimeline) -> list[dict[str, Any]]:
    table = of.run.job_table
    stops = {wait: stop_number(op) for op, (wait, _) in stop_jobs(table).items()}
    found = []
    for number in [*range(len(table.jobs)), *_unknown_jobs(of)]:
        job = table.jobs[number] if number < len(table.jobs) else None
        found.append(
            {
                "id": number,
                "name": table.job_name(number),
                "op": op_and_kind(table, number)[0],
                "op_index": int(of.timeline.strips.op[number]),
                "kind": table.kind_name(number),
                "awaits": None if job is None else job.awaits,
                "scope": None if job is None else job.scope,
                "stop": stops.get(number),
            }
        )
    return found


def _unknown_jobs(of: RunTimeline) -> list[int]:
    """Jobs that spans have and the job table does not; of a large run those of each rank's first steps."""
    if not of.run.losses.get("unknown_job"):
        return []
    known, seen, spans = len(of.run.job_table.jobs), set[int](), 0
    for (rank, step), count in of.timeline.spans_of.items():
        spans += count
        if spans > MOST_NEAR:
            break
        seen.update(pc.unique(of.run.spans(rank, step).column("job")).to_pylist())
    return sorted(job for job in seen if job >= known)


def _warps(of: RunTimeline) -> list[dict[str, Any]]:
    roles: dict[int, str] = {}
    for job in of.run.job_table.jobs:
        for warp in job.stamped_by:
            roles.setdefault(warp, job.role)
    return [{"warp": warp, "role": roles[warp]} for warp in sorted(roles)]


def _steps(of: RunTimeline) -> list[dict[str, int]]:
    found: dict[int, tuple[int, int]] = {}
    for steps in of.timeline.axis.ranks.values():
        rows = zip(steps.step.tolist(), steps.from_ns.tolist(), steps.to_ns.tolist(), strict=True)
        for step, from_ns, to_ns in rows:
            first, last = found.get(step, (from_ns, to_ns))
            found[step] = min(first, from_ns), max(last, to_ns)
    return [{"step": step, "from": found[step][0], "to": found[step][1]} for step in sorted(found)]


def _launches(of: RunTimeline) -> list[dict[str, Any]]:
    """Those that left stamps, by rank and step."""
    found: list[dict[str, Any]] = []
    for rank in of.run.ranks:
        table = of.run.launches(rank)
        table = table.filter(table["begin_ns"].to_numpy() > 0)
        times = [
            of.timeline.axis.on_axis(rank, table[name].to_numpy().astype(np.int64)).tolist()
            for name in ("begin_ns", "end_ns")
        ]
        columns = [table[name].to_pylist() for name in ("step", "launch", "layer", "kind")]
        names = ("step", "launch", "layer", "kind", "from", "to")
        rows = zip(*columns, *times, strict=True)
        found += [{"rank": rank, **dict(zip(names, row, strict=True))} for row in rows]
    return found
