"""How long a block is busy with an op in a launch: a number for each step of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.intervals import newly_covered, opens_piece, sorted_axis
from musetrace.analysis.rows import BUSY_KINDS, JobRows, op_and_kind
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import StepSpans, counted_blocks
from musetrace.analysis.step_series import Name, Series, spans_with_kinds

Ints = npt.NDArray[np.int64]


@dataclass
class _Part:
    """Of one rank's step: covered ns and pieces by (kind of launch, op), and blocks of launches by kind."""

    covered_ns: dict[Name, int] = field(default_factory=lambda: defaultdict(int))
    pieces: dict[Name, int] = field(default_factory=lambda: defaultdict(int))
    blocks: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True)
class BusySeries:
    """Busy time of every op, by (kind of launch, op): of all ranks, and of each."""

    ops: dict[Name, Series]
    by_rank: dict[tuple[int, Name], Series]

    def of(self, name: Name, rank: int | None = None) -> Series:
        """The series of an op that there is; 0 in every step where a rank has none of it."""
        return self.ops[name] if rank is None else self.by_rank[rank, name]


def busy_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> BusySeries:
    """Busy time of every op.

    A step's number is the mean, over ranks x launches of the kind x blocks that count (as in ``idle``), of
    the length of the union of the op's compute, send, receive and sync spans on the block; a block that did
    nothing of it counts with 0, and what a span covers outside its launch is cut off. So these numbers add up
    to the busy time of the block, except where spans of two ops overlap on it. ``uncertainty_ns`` is a tick
    for each piece of those unions, by the same blocks, in the step where that is most.
    """
    rows = JobRows(run.job_table, lambda job: _busy_op(run, job))
    parts: dict[tuple[int, int], _Part] = {}  # by step and rank
    launches: dict[str, int] = {}
    for spans, kinds in spans_with_kinds(run, ranks, layer_kind):
        part = parts.setdefault((spans.step, spans.rank), _Part())
        counted = counted_blocks(spans, run.blocks).sum(axis=1)
        for kind in dict.fromkeys(kinds.tolist()):
            mine = kinds == kind
            part.blocks[kind] += int(counted[mine].sum())
            launches[kind] = max(launches.get(kind, 0), int(mine.sum()))
        _add(part, spans, kinds, rows)
    names = dict.fromkeys(name for part in parts.values() for name in part.pieces)
    tick = tick_ns(run)
    by_step: dict[int, list[_Part]] = defaultdict(list)
    of_rank: dict[int, dict[int, list[_Part]]] = defaultdict(dict)
    for step, rank in sorted(parts):
        by_step[step].append(parts[step, rank])
        of_rank[rank][step] = [parts[step, rank]]
    return BusySeries(
        {name: _series(by_step, name, launches[name[0]], tick) for name in names},
        {
            (rank, name): _series(steps, name, launches[name[0]], tick)
            for rank, steps in of_rank.items()
            for name in names
            if any(part.blocks.get(name[0]) for of_step in steps.values() for part in of_step)
        },
    )


def _busy_op(run: RunLike, job: int) -> str | None:
    op, kind = op_and_kind(run.job_table, job)
    return op if kind in BUSY_KINDS else None


def _add(part: _Part, spans: StepSpans, kinds: npt.NDArray[Any], rows: JobRows[str]) -> None:
    row = rows.of(spans.job)
    keep = np.flatnonzero(row >= 0)
    if len(keep) == 0:
        return
    launches, blocks = len(spans.launch_id), int(spans.block.max()) + 1
    key = (row[keep] * launches + spans.launch[keep]) * blocks + spans.block[keep]
    wall = (spans.launch_end - spans.launch_begin)[spans.launch[keep]]
    begin, end = (
        np.clip(times[keep] - spans.launch_begin[spans.launch[keep]], 0, wall)
        for times in (spans.begin, spans.end)
    )
    order, begin, end = sorted_axis(key, begin, end, int(wall.max()) + 1)
    names, kind_of_launch = np.unique(kinds.astype(str), return_inverse=True)
    group = (row[keep] * len(names) + kind_of_launch[spans.launch[keep]])[order]
    size = int(group.max()) + 1
    # Whole ns: sums of a step stay far below 2^53, where doubles are exact.
    covered = np.bincount(group, newly_covered(begin, end), size).astype(np.int64)
    pieces = np.bincount(group, opens_piece(begin, end), size).astype(np.int64)
    for one in np.unique(group).tolist():
        name = (str(names[one % len(names)]), rows.names[one // len(names)])
        part.covered_ns[name] += int(covered[one])
        part.pieces[name] += int(pieces[one])


def _series(steps: Mapping[int, list[_Part]], name: Name, launches: int, tick: int | None) -> Series:
    """Every step that has launches of the kind counts, with 0 where the op did nothing in it."""
    means, offs, count = [], [0], 0
    for step in sorted(steps):
        blocks = sum(part.blocks.get(name[0], 0) for part in steps[step])
        covered = sum(part.covered_ns.get(name, 0) for part in steps[step])
        pieces = sum(part.pieces.get(name, 0) for part in steps[step])
        if blocks:
            means.append((2 * covered + blocks) // (2 * blocks))
            offs.append(-(-pieces * (tick or 0) // blocks))
            count += pieces
    return Series(np.array(means, np.int64), None if tick is None else max(offs), launches, count)
