"""Which spans of the store the steps of a path are of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.paths.launch_graph import LaunchGraph
from musetrace.analysis.paths.path_steps import PathSteps
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import LaunchColumns, step_bases

Ints = npt.NDArray[np.int64]


def span_ids(run: RunLike, graph: LaunchGraph, path: PathSteps) -> Ints:
    """int64[steps]: the place of each step's span among ``run.spans(rank, graph.step)``."""
    found = np.full(len(path.step), -1, dtype=np.int64)
    for rank in np.unique(path.rank).tolist():
        of_rank = np.flatnonzero(path.rank == rank)
        batch = run.spans(rank, graph.step)
        mine = np.flatnonzero(batch.column("launch").to_numpy() == graph.launch)
        begin, end = (times[mine] for times in _times(run, graph, rank))
        columns = {name: batch.column(name).to_numpy()[mine] for name in ("job", "block", "warp", "flag")}
        for at in of_rank.tolist():
            fits = (begin == path.span_begin[at]) & (end == path.span_end[at]) & (columns["flag"] == 0)
            for name in ("job", "block", "warp"):
                fits &= columns[name] == getattr(path, name)[at]
            places = np.flatnonzero(fits)
            found[at] = mine[places[0]] if len(places) else -1
    return found


def _times(run: RunLike, graph: LaunchGraph, rank: int) -> tuple[Ints, Ints]:
    """int64[spans] each: begins and ends of a step's spans on the axis of the graph."""
    times, columns = rank_times(run)[rank], LaunchColumns.of(run.launches(rank))
    launch = np.flatnonzero(
        columns.stamped & (columns.step == graph.step) & (columns.launch == graph.launch)
    )[:1]
    origin = times.aligned(columns.begin_ns[launch]) - graph.windows.begin[graph.ranks.index(rank)]
    batch = run.spans(rank, graph.step)
    stamped = step_bases(run.steps(rank))[graph.step] + batch.column("begin").to_numpy().astype(np.int64)
    lengths = batch.column("dur").to_numpy().astype(np.int64)
    begin, end = times.aligned(stamped) - origin, times.aligned(stamped + lengths) - origin
    return begin, np.maximum(begin, end)
