"""When each op runs within its launch: the rows of the layer's timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread, spread_fields, tick_ns
from musetrace.analysis.instances import extents
from musetrace.analysis.launch_counts import LaunchCounts
from musetrace.analysis.rows import JobRows, op_and_kind
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, chosen_ranks, step_spans

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("op", pa.string()),
    ("kind", pa.string()),
    *spread_fields("begin"),
    *spread_fields("end"),
    *spread_fields("dur"),
    ("blocks", pa.uint32()),
    ("blocks_total", pa.uint32()),
    ("n", pa.uint64()),
]


def op_timeline(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (op, kind of job) in job-table order: its begin and end, relative to the launch's begin.

    An instance is what one block does of it in one (rank, step, launch): from the earliest begin to the
    latest end of its spans. ``begin_*``, ``end_*`` and ``dur_*`` are exact nearest-rank percentiles and means
    over the ``n`` instances; ``blocks`` of ``blocks_total`` (rank, block) pairs run it at all. A row that
    no sound span belongs to is left out, so an empty run gives an empty table.

    Meaning: where the op stands in a typical launch. It lies where it mixes things: the median begin and
    the median end need not come from the same block, and without ``layer_kind`` launches of different shape
    are pooled. An instance with a pause in it counts as one piece. A load's end is its issue, not its
    landing, where the kernel stamps it so. Spans with a flag are left out (metadata ``ignored``).
    Source: the article's figure, "bars are medians over blocks x layers x replays x GPUs".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    selection = Selection(layer_kind, rank, step)
    counted = Counted()
    rows = JobRows(run.job_table, lambda job: op_and_kind(run.job_table, job))
    parts: dict[int, _Part] = {}
    for spans in step_spans(run, selection, counted):
        _collect(spans, rows.of(spans.job), parts)
    blocks = run.job_table.blocks_of(layer_kind or "", run.blocks)
    blocks_total = blocks * len(chosen_ranks(run, selection))
    tick = tick_ns(run)
    return answer(
        run,
        _FIELDS,
        [
            _row(name, parts[index], blocks_total, tick)
            for index, name in enumerate(rows.names)
            if index in parts
        ],
        counted,
    )


@dataclass
class _Part:
    """The instances of one row, as they come."""

    begins: list[Ints] = field(default_factory=list)
    ends: list[Ints] = field(default_factory=list)
    counts: LaunchCounts = field(default_factory=LaunchCounts)
    blocks: set[tuple[int, int]] = field(default_factory=set)


def _collect(spans: StepSpans, row: Ints, parts: dict[int, _Part]) -> None:
    if len(row) == 0:
        return
    launches, blocks = len(spans.launch_id), int(spans.block.max()) + 1
    per_row = launches * blocks
    key = row * per_row + spans.launch * blocks + spans.block
    key, begin, end = extents(key, spans.begin, spans.end, (int(row.max()) + 1) * per_row)
    launch, block = key // blocks % launches, key % blocks
    begin, end = begin - spans.launch_begin[launch], end - spans.launch_begin[launch]
    row_of_key = key // per_row
    present = np.unique(row_of_key)
    bounds = np.append(np.searchsorted(row_of_key, present), len(key))
    for index, first, last in zip(present.tolist(), bounds[:-1], bounds[1:], strict=True):
        part = parts.setdefault(index, _Part())
        part.begins.append(begin[first:last])
        part.ends.append(end[first:last])
        part.counts.add(spans, launch[first:last])
        part.blocks.update((spans.rank, one) for one in np.unique(block[first:last]).tolist())


def _row(name: tuple[str, str], part: _Part, blocks_total: int, tick: int | None) -> dict[str, object]:
    begins, ends = np.concatenate(part.begins), np.concatenate(part.ends)
    per_launch = part.counts.per_launch()
    return {
        "op": name[0],
        "kind": name[1],
        **spread("begin", begins, per_launch, tick),
        **spread("end", ends, per_launch, tick),
        **spread("dur", ends - begins, per_launch, tick),
        "blocks": len(part.blocks),
        "blocks_total": blocks_total,
        "n": len(begins),
    }
