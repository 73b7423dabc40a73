"""What grew in the steps that took much longer than the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, largest_first, sum_uncertainty_ns
from musetrace.analysis.certainty.observed import Seen, total
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.gaps.idle_pieces import OTHER_CAUSES
from musetrace.analysis.kept_sums.cubes import kept
from musetrace.analysis.kept_sums.key_sums import nothing_summed
from musetrace.analysis.kept_sums.question import from_spans
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.step_sums import BELOW_TICK, FLAGGED, SOUND, STEP_SUMS, busy_ops
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import (
    Counted,
    LaunchColumns,
    Selection,
    chosen_ranks,
    nothing_counted,
)
from musetrace.analysis.timeline.outlier_steps import THRESHOLD, StepLengths

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
    block, cut off at the launch, of the block's idle time of the cause, and of the time to the next launch
    (negative where launches overlap). Where no launch was lost, all busy time, all idle time and all gaps add
    up to the step, but ops that run at once on a block are each counted in full.

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
    wanted = [*_typical(steps, outliers), *(int(steps.step[at]) for at in outliers[:most_steps])]
    read = _read(run, rank, wanted, counted)
    typical = [read[step] for step in _typical(steps, outliers)]
    rows: list[dict[str, Any]] = []
    for at in outliers[:most_steps]:
        step = int(steps.step[at])
        growth_ns = int(steps.longest_ns[at]) - steps.median_ns
        rows += _grown(step, growth_ns, read[step], typical, tick)
    return answer(run, _FIELDS, rows, counted)


def _typical(steps: StepLengths, outliers: Iterable[int]) -> list[int]:
    away = np.abs(steps.longest_ns - steps.median_ns)
    away[list(outliers)] = np.iinfo(np.int64).max
    order = np.argsort(away, kind="stable")[:TYPICAL_STEPS]
    return [int(steps.step[at]) for at in order if away[at] != np.iinfo(np.int64).max]


@dataclass
class _Parts:
    """Times of one step, summed over ranks x blocks, with the squares that ``sum_uncertainty_ns`` takes."""

    blocks: int = 0  # of all ranks together
    sums: Counter[Name] = field(default_factory=Counter)
    squares: Counter[Name] = field(default_factory=Counter)

    def mean_ns(self, name: Name) -> int:
        """The mean over ranks x blocks, to the nearest ns."""
        return (2 * self.sums[name] + self.blocks) // (2 * self.blocks) if self.blocks else 0

    def uncertainty_ns(self, name: Name, tick: int | None) -> int | None:
        """What the clock leaves open in it."""
        of_sum = sum_uncertainty_ns(tick, self.squares[name])
        return None if of_sum is None else -(-of_sum // max(self.blocks, 1))


def _read(run: RunLike, rank: int | None, steps: Iterable[int], counted: Counted) -> dict[int, _Parts]:
    """The parts of some steps, from what the index keeps of all, else from the spans of each."""
    wanted = list(steps)
    kept_sums = kept(run, STEP_SUMS, Selection(rank=rank))
    found = {}
    for step in wanted:
        selection = Selection(None, rank, step)
        state = from_spans(run, STEP_SUMS, selection)[0] if kept_sums is None else kept_sums[0]
        found[step] = _parts_of(run, state, step)
        of_step = nothing_counted(run, selection)
        spans = state.sum_of("spans", 3)
        for (of, of_rank, what), number in spans.as_dict().items():
            if of == step:
                of_step.add(of_rank, *(number if what == one else 0 for one in (SOUND, FLAGGED, BELOW_TICK)))
        _add_counted(counted, of_step)
    gaps = [(one, LaunchColumns.of(run.launches(one))) for one in chosen_ranks(run, Selection(rank=rank))]
    for step, parts in found.items():
        _add_gaps(parts, step, gaps, run.blocks)
    return found


def _parts_of(run: RunLike, state: State, step: int) -> _Parts:
    """Busy time by op and idle time by cause of one step; blocks are counted with the gaps."""
    found, rows = _Parts(), busy_ops(run)
    for what in (BUSY, IDLE):
        sums, squares = state.sum_of(what, 2), state.squares.get(what, nothing_summed(2))
        for of, into in ((sums, found.sums), (squares, found.squares)):
            mine = of.where(of.keys[0] == step)
            for number, value in zip(mine.keys[1].tolist(), mine.sums.tolist(), strict=True):
                into[what, rows.name_of(number) if what == BUSY else _cause(run, number)] += value
    return found


def _cause(run: RunLike, number: int) -> str:
    return OTHER_CAUSES.get(number) or run.job_table.job_name(number)


def _add_gaps(found: _Parts, step: int, of_ranks: Iterable[tuple[int, LaunchColumns]], blocks: int) -> None:
    """Add the times to the next launch, which every block of a rank waits for."""
    differences: dict[str, Counter[int]] = defaultdict(Counter)
    for _, columns in of_ranks:
        of_step = columns.take(columns.chosen(step, None))
        found.blocks += blocks if len(of_step.launch) else 0
        gap = of_step.begin_ns[1:] - of_step.end_ns[:-1]
        for at in np.flatnonzero(np.diff(of_step.launch) == 1).tolist():
            kind = str(of_step.kind[at])
            found.sums[GAP, kind] += int(gap[at]) * blocks
            differences[kind][int(of_step.launch[at])] += blocks
    for kind, by_launch in differences.items():
        found.squares[GAP, kind] += sum(number**2 for number in by_launch.values())


def _add_counted(counted: Counted, other: Counted) -> None:
    counted.flagged += other.flagged
    counted.below_tick += other.below_tick
    for rank, seen in other.seen.items():
        counted.seen[rank] = total((counted.seen.get(rank, Seen()), seen))


def _grown(
    step: int, growth_ns: int, sums: _Parts, typical: list[_Parts], tick: int | None
) -> list[dict[str, Any]]:
    rows = []
    for name in sorted({name for one in (sums, *typical) for name in one.sums}):
        others = np.array([one.mean_ns(name) for one in typical], dtype=np.int64)
        usual = nearest_rank(others, (50,))[0] or 0
        most = int(others.max()) if len(others) else 0
        off = combined_ns(
            sums.uncertainty_ns(name, tick),
            max((one.uncertainty_ns(name, tick) or 0 for one in typical), default=0),
        )
        grown = sums.mean_ns(name) - usual
        if off is None or grown < max(off, 1) or sums.mean_ns(name) <= most:
            continue
        rows.append(
            {
                "step": step,
                "what": name[0],
                "of": name[1],
                "in_step_ns": sums.mean_ns(name),
                "typical_ns": usual,
                "typical_most_ns": most,
                "growth_ns": grown,
                "growth_uncertainty_ns": off,
                "share": grown / growth_ns,
            }
        )
    return largest_first(rows, "growth_ns", "growth_uncertainty_ns")
