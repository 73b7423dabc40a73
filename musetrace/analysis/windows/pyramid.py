"""The pixel pyramid: pictures of each step, made of all spans and kept in the index.

They are cells of several lengths, at each level four times as long as at the one before, from the step's
base and by the rank's own clock. Each tells what a block does in it as a row of one strip is drawn: of the
first class that has something there (work and comm, then loads, then waits) the job that takes most of the
time, and how much of the cell the class covers, in 1/255, rounded up. A raster of coarser cells is the sum of
these.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.spans.byte_memory import ByteMemory
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.job_strips import Drawn, JobStrips
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes, own_lanes
from musetrace.analysis.windows.rows import BLOCKS
from musetrace.analysis.windows.window import Raster, View
from musetrace.store.pyramid_store import Cells, Key, PyramidFile, PyramidStore

VERSION = 1
CELLS_OF_A_PIXEL = 2  # at least: so the edge of a span is less than half a pixel off

_FACTOR = 4
_LEAST_CELL_NS = 2
_LEAST_COLUMNS = 64  # of the longest step at the last level
_MOST_COLUMNS = 8_192  # that are made at once
_MOST_PLACES = 254
_MOST_BLOCKS = 1 << 14
_THREADS = 2

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepCells:
    """Cells of a step: column i is ``[edge[i], edge[i + 1])`` ns from the run's origin."""

    edge: Ints
    cells: Cells

    @property
    def bytes(self) -> int:
        """What it takes of memory."""
        return self.edge.nbytes + self.cells.bytes


class PyramidMemory(ByteMemory[StepCells]):
    """Cells that were read; those that were asked for longest ago go first."""

    def __init__(self, most_bytes: int) -> None:
        """Keep up to so many bytes, and always what is in use."""
        super().__init__(most_bytes, _THREADS)


class DamagedPyramidError(Exception):
    """Cells that were kept cannot be read any more."""


@dataclass(frozen=True)
class Pyramid:
    """The pyramid of a run; ``cell_ns`` of each level, growing."""

    timeline: Timeline
    file: PyramidFile
    cell_ns: tuple[int, ...]
    memory: PyramidMemory

    def level_of(self, view: View) -> int | None:
        """The level of the longest cells of which ``CELLS_OF_A_PIXEL`` fit into a pixel; None: of none."""
        pixel_ns = (view.to_ns - view.from_ns) // view.bins[1]
        fitting = [at for at, cell in enumerate(self.cell_ns) if cell * CELLS_OF_A_PIXEL <= pixel_ns]
        return max(fitting, default=None)

    def raster(self, view: View, level: int) -> Raster:
        """A window of blocks in one strip, made of the cells of a level.

        Raises:
            DamagedPyramidError: the file has changed for the worse: make the pyramid anew.
        """
        wanted = self.timeline.steps_inside(view.ranks, view.from_ns, view.to_ns)
        key = self.timeline.key
        found = self.memory.all_of(
            [((key, *one, level), partial(self._cells, *one, level)) for one in wanted]
        )
        sources = [
            (one.edge, one.cells.place, one.cells.share, view.rows.first_row(rank))
            for one, (rank, _) in zip(found, wanted, strict=True)
        ]
        groups, width = view.bins
        return Raster(
            *_core.analysis.cells_raster(sources, view.window, width, groups, self.timeline.strips.by_class)
        )

    def _cells(self, rank: int, step: int, level: int) -> StepCells:
        cells = self.file.cells(rank, step, level)
        if cells is None:
            raise DamagedPyramidError
        steps, axis = self.timeline.axis.ranks[rank], self.timeline.axis
        place = steps.place_of(step)
        assert place is not None
        times = int(steps.base_ns[place]) + self.cell_ns[level] * np.arange(cells.place.shape[1] + 1)
        return StepCells(np.maximum.accumulate(axis.on_axis(rank, times)), cells)


def kept_pyramid(timeline: Timeline, memory: PyramidMemory) -> Pyramid | None:
    """The pyramid that the index keeps; None where it does not."""
    store = _store(timeline.run)
    file = None if store is None else store.read(VERSION)
    if file is None:
        return None
    return Pyramid(timeline, file, tuple(file.about["cell_ns"]), memory)


def keep_pyramid(timeline: Timeline) -> None:
    """Make the pyramid of a run that lacks it and keep it in its index, if that can be written.

    It has at most as many cells of the least length as there are spans. A job table of more than 254 ops in
    strips, and a run of more than 16,384 blocks, have none.
    """
    run, axis, strips = timeline.run, timeline.axis, timeline.strips
    store = _store(run)
    if store is None or len(strips.by_strip[1]) > _MOST_PLACES or run.blocks > _MOST_BLOCKS:
        return
    if store.read(VERSION) is not None:
        return
    cell_ns = levels(_lengths_ns(run, axis), run.blocks, sum(timeline.spans_of.values()))
    try:
        store.write(VERSION, {"cell_ns": list(cell_ns)}, _parts(run, axis, strips, cell_ns))
    except OSError:
        return  # a full disk, or one that may not be written: spans and launches answer everything


def drop_pyramid(run: RunLike) -> None:
    """Forget a pyramid that turned out to be damaged, so that it is made anew. Raises OSError."""
    store = _store(run)
    if store is not None:
        store.remove()


def levels(lengths_ns: dict[tuple[int, int], int], blocks: int, spans: int) -> tuple[int, ...]:
    """The lengths of cells: of the least there are at most ``spans``, of the most a few in each step."""
    every = np.array(list(lengths_ns.values()) or [1], dtype=np.int64)
    cell_ns = _LEAST_CELL_NS
    while blocks * int((-(-every // cell_ns)).sum()) > spans and cell_ns < int(every.max()):
        cell_ns *= 2
    found = [cell_ns]
    while int(every.max()) // (found[-1] * _FACTOR) >= _LEAST_COLUMNS:
        found.append(found[-1] * _FACTOR)
    return tuple(found)


def _store(run: RunLike) -> PyramidStore | None:
    return getattr(run, "pyramid_store", None)


def _lengths_ns(run: RunLike, axis: RunAxis) -> dict[tuple[int, int], int]:
    """By (rank, step) how long it is by the rank's clock, with what is stamped at its very end."""
    found = {}
    for rank in run.ranks:
        table = run.steps(rank)
        ends = dict(zip(table["step"].to_pylist(), table["end_ns"].to_pylist(), strict=True))
        steps = axis.ranks[rank]
        for step, base_ns in zip(steps.step.tolist(), steps.base_ns.tolist(), strict=True):
            found[rank, step] = max(ends[step] - base_ns, 0) + 1
    return found


def _parts(
    run: RunLike, axis: RunAxis, strips: JobStrips, cell_ns: tuple[int, ...]
) -> Iterator[tuple[Key, Cells]]:
    """All cells, a few steps at a time."""
    lengths = _lengths_ns(run, axis)
    jobs = _as_places(strips)

    def of_step(one: tuple[int, int]) -> list[tuple[Key, Cells]]:
        lanes = own_lanes(run, *one)
        return [
            ((*one, level), cells_of(lanes, jobs, run.blocks, lengths[one], cell))
            for level, cell in enumerate(cell_ns)
        ]

    every = list(lengths)
    with ThreadPoolExecutor(_THREADS) as threads:
        for at in range(0, len(every), _THREADS):
            for found in threads.map(of_step, every[at : at + _THREADS]):
                yield from found


def cells_of(lanes: StepLanes, jobs: Drawn, blocks: int, length_ns: int, cell_ns: int) -> Cells:
    """The cells of a step whose lanes count from its base; jobs are drawn as their places."""
    native, columns = [lanes.native(0)], -(-length_ns // cell_ns)
    parts: list[tuple[Any, Any]] = []
    for first in range(0, columns, _MOST_COLUMNS):
        past = min(first + _MOST_COLUMNS, columns)
        window = (first * cell_ns, past * cell_ns, 0, blocks)
        place, share, _ = _core.analysis.lane_raster(native, window, past - first, blocks, jobs, False)
        parts.append((place[:, 0], share[:, 0]))
    place, share = (np.concatenate(one, axis=1) for one in zip(*parts, strict=True))
    return Cells(place, share)


def _as_places(strips: JobStrips) -> Drawn:
    """Jobs drawn in one strip, each as its place instead of its op."""
    place_of_job, classes, ops, strip, count = strips.by_class
    return place_of_job, classes, np.arange(len(ops), dtype=np.uint8), strip, count


def shows(view: View) -> bool:
    """Whether a pyramid can show a view at all: blocks, each a row of one strip."""
    return view.rows.kind == BLOCKS and view.strips == 1
