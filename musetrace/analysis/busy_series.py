"""How long a block is busy with an op in a launch: a number for each step of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
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

_Sums = dict[Name, dict[int, list[int]]]  # by name and step: covered ns, pieces


def busy_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> dict[Name, Series]:
    """Busy time of every op, by (kind of launch, op).

    A step's number is the mean, over ranks x launches of the kind x blocks that count (as in ``idle``), of
    the length of the union of the op's compute, send, receive and sync spans on the block; a block that did
    nothing of it counts with 0, and what a span covers outside its launch is cut off. So these numbers add up
    to the busy time of the block, except where spans of two ops overlap on it. ``uncertainty_ns`` is a tick
    for each piece of those unions, by the same blocks, in the step where that is most.
    """
    rows = JobRows(run.job_table, lambda job: _busy_op(run, job))
    sums: _Sums = {}
    blocks: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    launches: dict[str, int] = {}
    for spans, kinds in spans_with_kinds(run, ranks, layer_kind):
        counted = counted_blocks(spans, run.blocks).sum(axis=1)
        for kind in dict.fromkeys(kinds.tolist()):
            mine = kinds == kind
            blocks[kind][spans.step] += int(counted[mine].sum())
            launches[kind] = max(launches.get(kind, 0), int(mine.sum()))
        _add(sums, spans, kinds, rows)
    tick = tick_ns(run)
    return {
        name: _series(of_step, blocks[name[0]], launches[name[0]], tick) for name, of_step in sums.items()
    }


def _busy_op(run: RunLike, job: int) -> str | None:
    op, kind = op_and_kind(run.job_table, job)
    return op if kind in BUSY_KINDS else None


def _add(sums: _Sums, spans: StepSpans, kinds: npt.NDArray[Any], rows: JobRows[str]) -> None:
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
        step = sums.setdefault(name, {}).setdefault(spans.step, [0, 0])
        step[0] += int(covered[one])
        step[1] += int(pieces[one])


def _series(of_step: dict[int, list[int]], blocks: dict[int, int], launches: int, tick: int | None) -> Series:
    """Every step that has launches of the kind counts, with 0 where the op did nothing in it."""
    steps = sorted(step for step, number in blocks.items() if number)
    sums = [of_step.get(step, [0, 0]) for step in steps]
    means = [
        (2 * covered + blocks[step]) // (2 * blocks[step])
        for (covered, _), step in zip(sums, steps, strict=True)
    ]
    off = [-(-pieces * (tick or 0) // blocks[step]) for (_, pieces), step in zip(sums, steps, strict=True)]
    count = sum(pieces for _, pieces in sums)
    return Series(np.array(means, np.int64), None if tick is None else max(off), launches, count)
