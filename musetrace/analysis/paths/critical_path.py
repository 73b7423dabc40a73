"""What held up the end of each launch: its critical path, by op, and the waits that the path goes through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.paths.launch_graph import LaunchGraph, launch_graphs
from musetrace.analysis.paths.launch_sample import launch_sample
from musetrace.analysis.paths.path_steps import EDGES, GAP, HAND_OFF, OUTSIDE, STEP_NAMES, PathSteps
from musetrace.analysis.paths.sampled_graphs import SampledGraphs
from musetrace.analysis.paths.step_path import LaunchPaths, step_path
from musetrace.analysis.spans.rows import op_and_kind
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, check_scope
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

_PARTS = [
    ("op", pa.string()),
    ("kind", pa.string()),
    ("n", pa.uint64()),
    ("of_n", pa.uint64()),
    ("with_n", pa.uint64()),
    ("spans", pa.uint64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("mean_ns", pa.int64()),
    ("mean_uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
    ("share_uncertainty", pa.float64()),
]
_EDGES = [
    ("from_op", pa.string()),
    ("from_job", pa.string()),
    ("op", pa.string()),
    ("job", pa.string()),
    ("how", pa.string()),
    ("n", pa.uint64()),
    ("with_n", pa.uint64()),
    ("other_block_n", pa.uint64()),
    ("other_rank_n", pa.uint64()),
    ("cannot_tell_n", pa.uint64()),
    ("hop_total_ns", pa.int64()),
    ("hop_total_uncertainty_ns", pa.int64()),
    ("hop_p50_ns", pa.int64()),
    ("hop_uncertainty_ns", pa.int64()),
]


@dataclass(frozen=True)
class CriticalPath:
    """Two tables and what they are of: ``n`` launches of ``of_n`` in scope, or steps.

    ``length_ns`` is their length in all, the sum of ``total_ns`` of ``parts``. ``dropped`` dependences could
    not be kept: they closed a circle within a tick or the error of the clocks.
    """

    parts: pa.Table
    edges: pa.Table
    n: int
    of_n: int
    length_ns: int
    dropped: int


def critical_path(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    whole_steps: bool = False,
    most_spans: int | None = None,
    sampled: SampledGraphs | None = None,
) -> CriticalPath:
    """The critical path of each launch: what held up its last end, on all ranks or on ``rank``.

    From the last end the path goes back through the span that ended then. At the begin of a span it goes to
    what ended last before it in its warp (or in the warps of its role, which move in step; for the first span
    of a warp, or one behind a gap of 2 % of the launch, in its block). At the end of a wait whose producer
    was not ready when the wait began it goes to the producer (``attribution`` says which span that is), on
    whatever block or rank that ran; where the producer was ready the wait's time is its own. What follows a
    wait for a piece of a span that goes on takes its pieces as they come, and its end comes from the end of
    that span; so does the end of what follows a stop, where it took so long that it must have waited itself
    (twice as long as the quickest of its job, or as long as that behind the last end that the stop is for).
    The path ends at the first begin of the launch on a rank. Its times follow each other without a hole: the
    ``total_ns`` of all rows are the launches' lengths exactly.

    ``parts``: one row per op and kind of job on a path, jobs in job-table order. ``kind`` is the job's, or
    ``gap``: from the end of the span before to the begin of one of the op. Rows without an op: ``head``, from
    the launch's begin to the path's first span; ``before``, of a launch that began before the one before it
    had ended, the time until then; ``launch_way``, from that end to the first span; ``tail``, behind the last
    span; ``between``, from one launch to the next. ``with_n`` of the ``n`` launches have it on their path,
    with ``spans`` stretches of time (``of_n`` launches are in scope); ``mean_ns`` is per launch of all ``n``,
    ``share`` of their length.

    ``edges``: one row per way from one job to another that a path takes between warps. ``how``: ``way``, a
    wait that ended after its producer had; ``piece``, while it was under way; ``last_piece``, the end of what
    takes pieces; ``hand_off``, the begin of a span. ``hop_*`` is the time from the end of the cause to what
    it caused. Of the ``n``, ``other_block_n`` come from another block and ``other_rank_n`` from another rank;
    ``cannot_tell_n`` of the waits may as well have been for another span (``attribution``).

    Uncertainties take each stretch as one difference of stamps (``clock_quality``); edges between ranks add
    the error between their clocks.

    With ``whole_steps`` they are paths of steps, through their launches in order, and ``n`` counts steps.
    With ``most_spans`` they are of evenly spread launches (or steps) with about so many spans, of one at
    least; with ``sampled`` of these launches, whatever the scope says.

    Meaning: a path says what was in the way, not what it would bring to make it shorter: the next path may be
    nearly as long (``what_ifs``). It lies where a job's stamps hide a wait (a product that waits for its
    ring), and where a wait needs only some of the spans that it is matched with. Spans with a flag are left
    out (metadata ``ignored``).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    asked = _Asked(Selection(layer_kind, rank, step), whole_steps, most_spans)
    paths, counted, of_n = _all_paths(run, asked, sampled)
    return paths.answer(run, counted, of_n)


@dataclass(frozen=True)
class _Asked:
    """Paths of launches or of steps, of all in scope or of so many spans."""

    scope: Selection
    whole_steps: bool
    most_spans: int | None


def _all_paths(run: RunLike, asked: _Asked, sampled: SampledGraphs | None) -> tuple[_Paths, Counted, int]:
    """The paths of the launches in scope, or of some; and of how many these are."""
    of: int | None = None
    if sampled is not None:
        scope, counted, graphs = sampled.scope, sampled.counted, iter(sampled.graphs)
        of = sampled.of_launches
    else:
        scope, counted, only = asked.scope, Counted(), None
        check_scope(run, scope)
        if asked.most_spans is not None:
            sample = launch_sample(run, scope, asked.most_spans, whole_steps=asked.whole_steps)
            only, of = sample.launches, sample.steps if asked.whole_steps else sample.of
        graphs = launch_graphs(run, scope, counted, only)
    paths = _Paths(run.job_table)
    for path in (_step_paths if asked.whole_steps else _launch_paths)(graphs, scope.rank, paths):
        paths.add(path)
    return paths, counted, paths.n if of is None else of


def _launch_paths(graphs: Iterator[LaunchGraph], rank: int | None, paths: _Paths) -> Iterator[PathSteps]:
    for graph in graphs:
        paths.dropped += graph.native.dropped
        path = PathSteps.of(graph, rank)
        if path is not None:
            yield path


def _step_paths(graphs: Iterator[LaunchGraph], rank: int | None, paths: _Paths) -> Iterator[PathSteps]:
    """Of each step, and of each group of ranks that share an axis."""
    for _, of_step in groupby(graphs, key=lambda graph: (graph.step, graph.ranks)):
        launches = []
        for graph in of_step:
            paths.dropped += graph.native.dropped
            found = {one: PathSteps.of(graph, one) for one in graph.ranks}
            by_rank = {one: path for one, path in found.items() if path is not None}
            launches.append(LaunchPaths(graph.launch, graph.ranks, graph.windows, by_rank))
        path = step_path(launches, rank)
        if path is not None:
            yield path


@dataclass
class _Part:
    """What an op and kind have of the paths."""

    with_n: int = 0
    spans: int = 0
    total_ns: int = 0
    squares: int = 0
    error_ns: int = 0


@dataclass
class _Edge:
    """The ways from one job to another."""

    hops: list[int] = field(default_factory=list)
    with_n: int = 0
    other_block_n: int = 0
    other_rank_n: int = 0
    cannot_tell_n: int = 0
    squares: int = 0
    error_ns: int = 0
    worst_error_ns: int = 0


PartName = tuple[str | None, str]
EdgeName = tuple[int, int, int]  # job of the cause, job, step


@dataclass
class _Paths:
    """Sums over paths, which add up whatever order they come in."""

    table: JobTable
    n: int = 0
    length_ns: int = 0
    dropped: int = 0
    parts: dict[PartName, _Part] = field(default_factory=lambda: defaultdict(_Part))
    edges: dict[EdgeName, _Edge] = field(default_factory=lambda: defaultdict(_Edge))

    def add(self, path: PathSteps) -> None:
        """Add one path."""
        self.n += 1
        self.length_ns += int(path.length.sum())
        parts: dict[PartName, list[int]] = defaultdict(list)
        edges: dict[EdgeName, list[int]] = defaultdict(list)
        steps, jobs, causes = path.step.tolist(), path.job.tolist(), path.cause_job.tolist()
        for at, (step, job, cause) in enumerate(zip(steps, jobs, causes, strict=True)):
            if step in EDGES:
                edges[cause, job, step].append(at)
            parts[self._name(step, job)].append(at)
        length, error = path.length, path.error_ns
        for name, places in parts.items():
            mine = [at for at in places if length[at] > 0]
            part = self.parts[name]
            part.with_n += bool(mine)
            part.spans += len(mine)
            part.squares += len(mine) ** 2
            part.total_ns += int(length[mine].sum())
            part.error_ns += int(error[mine].sum())
        for edge, places in edges.items():
            self._add_edge(self.edges[edge], path, places)

    def _name(self, step: int, job: int) -> PartName:
        if step in OUTSIDE:
            return None, STEP_NAMES[step]
        op, kind = op_and_kind(self.table, job)
        return op, "gap" if step in (GAP, HAND_OFF) else kind

    @staticmethod
    def _add_edge(edge: _Edge, path: PathSteps, places: list[int]) -> None:
        elsewhere = path.rank[places] != path.cause_rank[places]
        edge.hops += path.length[places].tolist()
        edge.with_n += 1
        edge.other_rank_n += int(elsewhere.sum())
        edge.other_block_n += int((elsewhere | (path.block[places] != path.cause_block[places])).sum())
        edge.cannot_tell_n += int(path.tied[places].sum())
        edge.squares += len(places) ** 2
        error = path.error_ns[places]
        edge.error_ns += int(error.sum())
        edge.worst_error_ns = max(edge.worst_error_ns, int(error.max()))

    def answer(self, run: RunLike, counted: Counted, of_n: int) -> CriticalPath:
        """All of them as tables; they are ``of_n`` in scope."""
        tick = tick_ns(run)
        return CriticalPath(
            parts=answer(run, _PARTS, self.part_rows(tick, of_n), counted),
            edges=answer(run, _EDGES, self.edge_rows(tick), counted),
            n=self.n,
            of_n=of_n,
            length_ns=self.length_ns,
            dropped=self.dropped,
        )

    def part_rows(self, tick: int | None, of_n: int) -> list[dict[str, object]]:
        """The rows of ``parts``."""
        jobs = range(len(self.table.jobs))
        known = dict.fromkeys(
            name for job in jobs for name in (op_and_kind(self.table, job), (self.table.op_name(job), "gap"))
        )
        order = [name for name in dict.fromkeys([*known, *self.parts]) if self.parts[name].with_n]
        of_all = None if tick is None else sum_uncertainty_ns(tick, self.n)
        return [
            {"op": op, "kind": kind, "of_n": of_n, **self._part_row(self.parts[op, kind], tick, of_all)}
            for op, kind in order
        ]

    def _part_row(self, part: _Part, tick: int | None, of_all: int | None) -> dict[str, object]:
        off = combined_ns(sum_uncertainty_ns(tick, part.squares), part.error_ns)
        return {
            "n": self.n,
            "with_n": part.with_n,
            "spans": part.spans,
            "total_ns": part.total_ns,
            "total_uncertainty_ns": off,
            "mean_ns": (2 * part.total_ns + self.n) // (2 * self.n),
            "mean_uncertainty_ns": None if off is None else -(-off // self.n),
            "share": part.total_ns / self.length_ns if self.length_ns else None,
            "share_uncertainty": share_uncertainty(part.total_ns, off, self.length_ns, of_all),
        }

    def edge_rows(self, tick: int | None) -> list[dict[str, object]]:
        """The rows of ``edges``, in job-table order of what they lead to."""
        rows: list[dict[str, object]] = []
        for cause, job, step in sorted(self.edges, key=lambda name: (name[1], name[0], name[2])):
            edge = self.edges[cause, job, step]
            hops = np.array(edge.hops, dtype=np.int64)
            rows.append(
                {
                    "from_op": op_and_kind(self.table, cause)[0],
                    "from_job": self.table.job_name(cause),
                    "op": op_and_kind(self.table, job)[0],
                    "job": self.table.job_name(job),
                    "how": STEP_NAMES[step],
                    "n": len(hops),
                    "with_n": edge.with_n,
                    "other_block_n": edge.other_block_n,
                    "other_rank_n": edge.other_rank_n,
                    "cannot_tell_n": edge.cannot_tell_n,
                    "hop_total_ns": int(hops.sum()),
                    "hop_total_uncertainty_ns": combined_ns(
                        sum_uncertainty_ns(tick, edge.squares), edge.error_ns
                    ),
                    "hop_p50_ns": nearest_rank(hops, (50,))[0],
                    "hop_uncertainty_ns": combined_ns(tick, edge.worst_error_ns),
                }
            )
        return rows
