"""What grew in the steps that took much longer than the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import combined_ns, places, sum_uncertainty_ns
from musetrace.analysis.idle_pieces import OTHER_CAUSES, KindClasses, idle_pieces
from musetrace.analysis.intervals import newly_covered, opens_piece, sorted_axis
from musetrace.analysis.observed import Seen, total
from musetrace.analysis.outlier_steps import THRESHOLD, StepLengths
from musetrace.analysis.percentiles import nearest_rank
from musetrace.analysis.rows import JobRows, op_and_kind
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, LaunchColumns, Selection, StepSpans, spans_by_step

Ints = npt.NDArray[np.int64]
# ("busy", op), ("idle", wait job or other cause), ("gap", kind of the launch before it)
Name = tuple[str, str]

MOST_STEPS = 3
TYPICAL_STEPS = 5
BUSY, IDLE, GAP = "busy", "idle", "gap"

_FIELDS = [
    ("step", pa.uint32()),
    ("what", pa.string()),
    ("of", pa.string()),
    ("in_step_ns", pa.int64()),
    ("typical_ns", pa.int64()),
    ("typical_most_ns", pa.int64()),
    ("growth_ns", pa.int64()),
    ("growth_uncertainty_ns", pa.int64()),
    ("share", pa.float64()),
]


def step_growth(
    run: RunLike, *, rank: int | None = None, threshold: float = THRESHOLD, most_steps: int = MOST_STEPS
) -> pa.Table:
    """For each of the longest outlier steps, at most ``most_steps``: what grew in it, the largest first.

    ``what`` and ``of``: ``busy`` with an op; ``idle`` with a cause as ``idle`` has them (the job of a wait,
    or ``head``, ``tail``, ``load_only``, ``unlabelled``); ``gap`` with the kind of launch that it follows.
    Times are ns of a whole step, means over its ranks x blocks: of the union of an op's busy spans on a
    block, of the block's idle time of the cause, and of the time to the next launch (negative where launches
    overlap). Where no launch was lost, all busy time, all idle time and all gaps add up to the step, but ops
    that run at once on a block are each counted in full.

    ``typical_ns`` is the median of the five steps (or as many as there are) that are nearest to the run's
    median step and no outliers, ``typical_most_ns`` the most of them. ``growth_ns`` is ``in_step_ns`` less
    ``typical_ns``, and ``share`` that by the growth of the step (``outlier_steps``). What a typical step
    reaches too, and what is less than the clock leaves open (``growth_uncertainty_ns``), has not grown and
    has no row. Rows of a step that the clock does not tell apart stand in the order of their names.

    Meaning: what made the step slow. Waiting grows with whatever is late: an op that grew on one rank makes
    the others wait, and both stand here. It lies where the step has other launches than the typical ones.
    Only outliers and typical steps are read. Spans with a flag are left out (metadata ``ignored``).

    Raises:
        AnalysisError: the run has no such rank, or the threshold is not above 0.
    """
    steps = StepLengths.of(run, rank)
    tick = tick_ns(run)
    outliers = steps.outliers(threshold, tick)
    counted = Counted()
    if not outliers:
        return answer(run, _FIELDS, [], counted)
    parts = _Parts.of(run)
    typical = [parts.read(run, rank, step, counted) for step in _typical(steps, outliers)]
    rows: list[dict[str, object]] = []
    for at in outliers[:most_steps]:
        step = int(steps.step[at])
        growth_ns = int(steps.longest_ns[at]) - steps.median_ns
        rows += _grown(step, growth_ns, parts.read(run, rank, step, counted), typical, tick)
    return answer(run, _FIELDS, rows, counted)


def _typical(steps: StepLengths, outliers: Iterable[int]) -> list[int]:
    away = np.abs(steps.longest_ns - steps.median_ns)
    away[list(outliers)] = np.iinfo(np.int64).max
    order = np.argsort(away, kind="stable")[:TYPICAL_STEPS]
    return [int(steps.step[at]) for at in order if away[at] != np.iinfo(np.int64).max]


@dataclass
class _Sums:
    """Times of one step, summed over ranks x blocks; ``counts`` has the differences of stamps by launch."""

    blocks: int = 0  # of all ranks together
    sums: Counter[Name] = field(default_factory=Counter)
    counts: dict[Name, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def put(self, name: Name, launch_id: Ints, sums_ns: Ints, differences: Ints) -> None:
        """Add a time of some launches."""
        self.sums[name] += int(sums_ns.sum())
        for launch, number in zip(launch_id.tolist(), differences.tolist(), strict=True):
            self.counts[name][launch] += number

    def mean_ns(self, name: Name) -> int:
        """The mean over ranks x blocks, to the nearest ns."""
        return (2 * self.sums[name] + self.blocks) // (2 * self.blocks) if self.blocks else 0

    def uncertainty_ns(self, name: Name, tick: int | None) -> int | None:
        """What the clock leaves open in it."""
        squares = sum(number**2 for number in self.counts[name].values())
        of_sum = sum_uncertainty_ns(tick, squares)
        return None if of_sum is None else -(-of_sum // max(self.blocks, 1))


@dataclass(frozen=True)
class _Parts:
    """How a step is taken apart."""

    ops: JobRows[str]
    classes: KindClasses
    kinds: Mapping[int, LaunchColumns]

    @classmethod
    def of(cls, run: RunLike) -> _Parts:
        classes = KindClasses.of(run)

        def busy_op(job: int) -> str | None:
            return op_and_kind(run.job_table, job)[0] if classes.busy[job] else None

        columns = {rank: LaunchColumns.of(run.launches(rank)) for rank in run.ranks}
        return cls(JobRows(run.job_table, busy_op), classes, columns)

    def read(self, run: RunLike, rank: int | None, step: int, counted: Counted) -> _Sums:
        """The times of one step."""
        found, of_step = _Sums(), Counted()
        for of_ranks in spans_by_step(run, Selection(None, rank, step), of_step):
            for spans in of_ranks:
                found.blocks += run.blocks
                self._add_busy(found, spans)
                self._add_idle(found, spans, run)
                self._add_gaps(found, spans, run.blocks)
        counted.flagged += of_step.flagged
        counted.below_tick += of_step.below_tick
        for one, seen in of_step.seen.items():
            counted.seen[one] = total((counted.seen.get(one, Seen()), seen))
        return found

    def _add_busy(self, found: _Sums, spans: StepSpans) -> None:
        row = self.ops.of(spans.job)
        keep = np.flatnonzero(row >= 0)
        if not len(keep):
            return
        launches, blocks = len(spans.launch_id), int(spans.block.max()) + 1
        group = row[keep] * launches + spans.launch[keep]
        reach = int(spans.end.max()) + 1
        axis = (group * blocks + spans.block[keep], spans.begin[keep], spans.end[keep])
        order, begin, end = sorted_axis(*axis, reach)
        group = group[order]
        covered = np.bincount(group, newly_covered(begin, end)).astype(np.int64)
        pieces = np.bincount(group, opens_piece(begin, end)).astype(np.int64)
        for at in np.unique(group // launches).tolist():
            mine = np.arange(at * launches, min((at + 1) * launches, len(covered)))
            ids = spans.launch_id[mine % launches]
            found.put((BUSY, self.ops.names[at]), ids, covered[mine], pieces[mine])

    def _add_idle(self, found: _Sums, spans: StepSpans, run: RunLike) -> None:
        pieces = idle_pieces(spans, run.blocks, self.classes)
        launches = len(spans.launch_id)
        for cause in np.unique(pieces.cause).tolist():
            mine = pieces.cause == cause
            launch = pieces.instance[mine] % launches
            sums = np.bincount(launch, pieces.length_ns[mine], launches).astype(np.int64)
            name = OTHER_CAUSES.get(cause) or run.job_table.job_name(cause)
            found.put((IDLE, name), spans.launch_id, sums, np.bincount(launch, minlength=launches))

    def _add_gaps(self, found: _Sums, spans: StepSpans, blocks: int) -> None:
        columns = self.kinds[spans.rank]
        kinds: npt.NDArray[Any] = columns.kind[columns.chosen(spans.step, None)]
        gap = spans.launch_begin[1:] - spans.launch_end[:-1]
        followed = np.diff(spans.launch_id) == 1
        for kind in dict.fromkeys(kinds[:-1][followed].tolist()):
            mine = np.flatnonzero(followed & (kinds[:-1] == kind))
            each = np.full(len(mine), blocks)
            found.put((GAP, str(kind)), spans.launch_id[mine], gap[mine] * blocks, each)


def _grown(
    step: int, growth_ns: int, sums: _Sums, typical: list[_Sums], tick: int | None
) -> list[dict[str, object]]:
    rows = []
    for name in sorted({name for one in (sums, *typical) for name in one.sums}):
        others = np.array([one.mean_ns(name) for one in typical], dtype=np.int64)
        usual = nearest_rank(others, (50,))[0] or 0
        off = combined_ns(
            sums.uncertainty_ns(name, tick),
            max((one.uncertainty_ns(name, tick) or 0 for one in typical), default=0),
        )
        grown = sums.mean_ns(name) - usual
        if off is None or grown < max(off, 1) or sums.mean_ns(name) <= int(others.max(initial=0)):
            continue
        rows.append(
            {
                "step": step,
                "what": name[0],
                "of": name[1],
                "in_step_ns": sums.mean_ns(name),
                "typical_ns": usual,
                "typical_most_ns": int(others.max(initial=0)),
                "growth_ns": grown,
                "growth_uncertainty_ns": off,
                "share": grown / growth_ns,
            }
        )
    return _sorted_by_growth(rows)


def _sorted_by_growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    off = max((row["growth_uncertainty_ns"] for row in rows), default=0)
    order = places([-row["growth_ns"] for row in rows], combined_ns(off, off))
    return [row for _, row in sorted(zip(order, rows, strict=True), key=lambda one: one[0])]
