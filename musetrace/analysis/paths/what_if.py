"""How long launches would be if an op took less time, or a wait cost nothing: by replaying their graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, largest_first, sum_uncertainty_ns
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.paths.change import (
    Change,
    change_of,
    faster,
    gone,
    made_together,
    replay_arrays,
    zero,
)
from musetrace.analysis.paths.launch_graph import NO_TIME, LaunchGraph
from musetrace.analysis.paths.path_steps import LAST_PIECE, OWN, WAY, PathSteps
from musetrace.analysis.paths.sampled_graphs import SampledGraphs, sampled_graphs
from musetrace.analysis.spans.run_like import RunLike
from musetrace.job_table import JobTable

FASTER_PERCENT = 10

_FIELDS = [
    ("change", pa.string()),
    ("target", pa.string()),
    ("how", pa.string()),
    ("n", pa.uint64()),
    ("of_n", pa.uint64()),
    ("length_mean_ns", pa.int64()),
    ("new_mean_ns", pa.int64()),
    ("saved_mean_ns", pa.int64()),
    ("saved_mean_uncertainty_ns", pa.int64()),
    ("saved_share", pa.float64()),
    ("saved_step_ns", pa.int64()),
    ("saved_step_uncertainty_ns", pa.int64()),
    ("on_path_mean_ns", pa.int64()),
    ("residual_ns", pa.int64()),
]


def what_if(
    run: RunLike,
    changes: Sequence[str] = (),
    *,
    together: bool = False,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    sampled: SampledGraphs | None = None,
) -> pa.Table:
    """One row per change, as given: how long launches would be then. One row for all of them ``together``.

    A change is ``NAME=0`` (the jobs of an op, or a job, take no time), ``NAME=-10%`` (they take so much less;
    ``+10%`` more) or ``NAME=gone`` (its waits cost nothing and wait for nobody). Each launch is replayed:
    every span begins as soon as what it followed has ended (``critical_path``) and the gap behind that has
    passed. A span ends its own time after its begin, and besides

    * a wait: when all spans that it was for have ended, of those that had when it was recorded, and the way
      from there has passed; its own time is the shortest that a wait of its job took in the launch behind its
      begin and its producer. A wait whose producer was ready keeps its time. One for a piece of a span
      follows the begin of that span as it did, as the span's time changes;
    * what takes the pieces of another span: as long behind the end of that span as it did, unless the wait
      that it begins behind is gone;
    * a load that went on while what it is for worked waited for room: as long before the end of that work as
      it did, whatever its own time.

    Gaps and ways keep their time; a launch begins when it did. ``n`` launches of ``of_n`` in scope were
    replayed, evenly spread (``sampled_graphs``; those of ``sampled``, if given, whatever the scope says).
    ``saved_mean_ns`` is what a launch is shorter, ``saved_step_ns`` what that is for all launches in scope of
    a step if they follow each other. ``on_path_mean_ns`` is what the jobs have of the critical path: where
    much less is saved, another path is nearly as long. ``residual_ns`` is the largest difference of an
    unchanged replay from a recorded length, 0 if all is well.

    ``saved_mean_uncertainty_ns`` is that of the clock and of the alignment (``clock_quality``); what the
    model leaves out comes on top.

    A row of several changes has them in ``change``, a comma between two, no ``target``, and ``how`` is
    ``together``; of none, ``how`` is ``unchanged``.

    Meaning: which op to work on first, and when to stop. What is shared is not modelled: a load that begins
    earlier is as quick as it was, whatever else loads then, and what a span hides (a product that waits for
    its loads) is taken for its own time, so a saving can be too high. It is too low where a wait is matched
    with more spans than it needs.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind, or no such op or job.
        UsageError: a text is no change, or two that are to be made together are of one job.
    """
    wanted = [change_of(run.job_table, text) for text in changes]
    asked = [made_together(run.job_table, wanted)] if together else [[change] for change in wanted]
    if sampled is None:
        sampled = sampled_graphs(run, layer_kind=layer_kind, rank=rank, step=step)
    return answer(run, _FIELDS, _rows(run, asked, sampled), sampled.counted)


def what_ifs(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    sampled: SampledGraphs | None = None,
) -> pa.Table:
    """What :func:`what_if` says of each op at no time and 10 % faster, and of each stop and wait gone.

    Only of those that the replayed launches have, largest saving first; savings that cannot be told apart are
    in job-table order. ``how`` is ``zero``, ``faster`` or ``gone``, of which ``target`` is a stop or a wait.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    if sampled is None:
        sampled = sampled_graphs(run, layer_kind=layer_kind, rank=rank, step=step)
    seen = {int(job) for graph in sampled.graphs for job in np.unique(graph.job)}
    rows = _rows(run, [[change] for change in _every_change(run.job_table, seen)], sampled)
    ranked = largest_first(rows, "saved_mean_ns", "saved_mean_uncertainty_ns")
    return answer(run, _FIELDS, ranked, sampled.counted)


def _every_change(table: JobTable, seen: set[int]) -> list[Change]:
    jobs = [job for number, job in enumerate(table.jobs) if number in seen]
    ops = list(dict.fromkeys(job.op for job in jobs if job.kind != "wait"))
    stops = [op for op in stop_jobs(table) if any(job.op == op and job.kind == "wait" for job in jobs)]
    return [
        *(zero(table, op) for op in ops),
        *(faster(table, op, FASTER_PERCENT) for op in ops),
        *(gone(table, op) for op in stops),
        *(gone(table, job.name) for job in jobs if job.kind == "wait" and job.awaits is not None),
    ]


@dataclass
class _Sums:
    """What changes made together do to the launches, as they come; ``squares`` by change."""

    changes: Sequence[Change]
    new_ns: int = 0
    on_path_ns: int = 0
    squares: list[int] = field(default_factory=list)


@dataclass
class _Replayed:
    """The launches as they were."""

    n: int = 0
    length_ns: int = 0
    error_ns: int = 0
    residual_ns: int = 0
    changed: list[_Sums] = field(default_factory=list)


def _rows(run: RunLike, asked: Sequence[Sequence[Change]], sampled: SampledGraphs) -> list[dict[str, Any]]:
    whole = _Replayed(changed=[_Sums(changes, squares=[0] * len(changes)) for changes in asked])
    for graph in sampled.graphs:
        _replay(run, graph, sampled.scope.rank, whole)
    if not whole.n:
        return []
    tick = tick_ns(run)
    per_step = sampled.of_launches / max(sampled.steps, 1)
    return [_row(sums, whole, sampled, per_step, tick) for sums in whole.changed]


def _replay(run: RunLike, graph: LaunchGraph, rank: int | None, whole: _Replayed) -> None:
    path = PathSteps.of(graph, rank)
    if path is None or not len(graph.job):
        return
    place = slice(None) if rank is None else slice(graph.ranks.index(rank), graph.ranks.index(rank) + 1)

    def last_end(changes: Sequence[Change]) -> int:
        return int(graph.native.replay(*replay_arrays(run.job_table, changes))[place].max())

    recorded = max(
        int(graph.end[graph.rank == at].max(initial=NO_TIME)) for at in range(len(graph.ranks))[place]
    )
    if recorded == NO_TIME:
        return
    length = int(path.length.sum())
    whole.n += 1
    whole.length_ns += length
    whole.error_ns += int(graph.error_ns.max())
    whole.residual_ns = max(whole.residual_ns, abs(last_end(()) - recorded))
    for sums in whole.changed:
        sums.new_ns += length + last_end(sums.changes) - recorded
        for at, change in enumerate(sums.changes):
            steps = (OWN, WAY) if change.gone else (OWN, LAST_PIECE)
            mine = np.isin(path.job, change.jobs) & np.isin(path.step, steps)
            sums.on_path_ns += int(path.length[mine].sum())
            sums.squares[at] += int(mine.sum()) ** 2


def _row(
    sums: _Sums, whole: _Replayed, sampled: SampledGraphs, per_step: float, tick: int | None
) -> dict[str, Any]:
    n, saved = whole.n, whole.length_ns - sums.new_ns
    # Another path than the recorded one ends at another stamp, maybe of another clock.
    off = combined_ns(
        *(_scaled(change, squares, tick) for change, squares in zip(sums.changes, sums.squares, strict=True)),
        sum_uncertainty_ns(tick, n),
        whole.error_ns,
    )
    mean, mean_off = _rounded(saved, n), None if off is None else -(-off // n)
    return {
        **_named(sums.changes),
        "n": n,
        "of_n": sampled.of_launches,
        "length_mean_ns": _rounded(whole.length_ns, n),
        "new_mean_ns": _rounded(sums.new_ns, n),
        "saved_mean_ns": mean,
        "saved_mean_uncertainty_ns": mean_off,
        "saved_share": saved / whole.length_ns if whole.length_ns else None,
        "saved_step_ns": round(saved / n * per_step),
        "saved_step_uncertainty_ns": None if off is None else int(np.ceil(off / n * per_step)),
        "on_path_mean_ns": _rounded(sums.on_path_ns, n),
        "residual_ns": whole.residual_ns,
    }


def _scaled(change: Change, squares: int, tick: int | None) -> int | None:
    """What the clock leaves open in the part of a change's time that goes away."""
    of_spans = sum_uncertainty_ns(tick, squares)
    return None if of_spans is None else int(np.ceil(of_spans * abs(change.saved_part)))


def _named(changes: Sequence[Change]) -> dict[str, str | None]:
    if len(changes) == 1:
        return {"change": changes[0].text, "target": changes[0].target, "how": changes[0].how}
    how = "together" if changes else "unchanged"
    return {"change": ", ".join(change.text for change in changes), "target": None, "how": how}


def _rounded(total: int, n: int) -> int:
    return (2 * total + n) // (2 * n)
