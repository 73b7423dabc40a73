"""Pictures of many steps, made of what the index keeps of each block of each launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.kept_sums.cubes import kept
from musetrace.analysis.kept_sums.question import from_spans
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import LaunchColumns, Selection
from musetrace.analysis.windows.job_strips import JobStrips
from musetrace.analysis.windows.launch_cover import LAUNCH_COVER
from musetrace.analysis.windows.rows import BLOCKS
from musetrace.analysis.windows.window import Raster, View
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankCovers:
    """The stamped launches of a rank by begin, int64[n] ns from the origin, and ``packed`` int64[blocks, n].

    ``packed`` is as ``launch_cover`` has it, 0 where a block left no sound span.
    """

    begin: Ints
    end: Ints
    reach: Ints
    packed: Ints

    def native(self, first_row: int) -> tuple[Any, ...]:
        """What the compiled loops take."""
        return self.begin, self.end, self.reach, self.packed, first_row


@dataclass(frozen=True)
class Overview:
    """The launches of all ranks, and how their jobs are drawn."""

    ranks: dict[int, RankCovers]
    strips: JobStrips

    def raster(self, view: View) -> Raster:
        """A window as :class:`window.Raster`, every launch filled evenly with what its blocks do most.

        Raises:
            AnalysisError: the rows are not blocks.
        """
        if view.rows.kind != BLOCKS:
            raise AnalysisError(
                f"so long a time is not shown by {view.rows.kind}: show blocks, or a shorter time"
            )
        groups, width = view.bins
        ranks = view.rows.ranks_inside(view.row_from, view.row_to)
        covers = [self.ranks[rank].native(view.rows.first_row(rank)) for rank in ranks]
        jobs = self.strips.of_launches(view.strips)
        return Raster(
            *_core.analysis.cover_raster(covers, view.window, width, groups, jobs, view.strips != 1)
        )


def kept_overview(run: RunLike, axis: RunAxis) -> Overview | None:
    """The overview that the index keeps; None where it does not."""
    ranks: dict[int, RankCovers] = {}
    for rank in run.ranks:
        found = kept(run, LAUNCH_COVER, Selection(rank=rank))
        if found is None:
            return None
        ranks[rank] = _covers(run, axis, rank, found[0])
    return Overview(ranks, JobStrips.of(run.job_table))


def overview_of_spans(run: RunLike, axis: RunAxis) -> Overview:
    """The overview made of all spans, which may take a minute."""
    states = {rank: from_spans(run, LAUNCH_COVER, Selection(rank=rank))[0] for rank in run.ranks}
    covers = {rank: _covers(run, axis, rank, state) for rank, state in states.items()}
    return Overview(covers, JobStrips.of(run.job_table))


def _covers(run: RunLike, axis: RunAxis, rank: int, state: State) -> RankCovers:
    columns = LaunchColumns.of(run.launches(rank))
    columns = columns.take(np.flatnonzero(columns.stamped))
    begin, end = axis.on_axis(rank, columns.begin_ns), axis.on_axis(rank, columns.end_ns)
    cover = state.sum_of("cover", 4)
    _, step, launch, block = cover.keys
    packed = np.zeros((run.blocks, len(begin)), dtype=np.int64)
    place = np.searchsorted(_key(columns.step, columns.launch), _key(step, launch))
    packed[block, place] = cover.sums
    order = np.argsort(begin, kind="stable")
    begin, end = np.ascontiguousarray(begin[order]), np.ascontiguousarray(end[order])
    reach: Ints = np.maximum.accumulate(end) if len(end) else end
    return RankCovers(begin, end, reach, np.ascontiguousarray(packed[:, order]))


def _key(step: Ints, launch: Ints) -> Ints:
    return step << 16 | launch
