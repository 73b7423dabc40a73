"""The pixel pyramid: pictures of each step, made of all spans and kept in the index.

They are cells of several lengths, at each level four times as long as at the one before, from the step's
base and by the rank's own clock. Each tells what a block does in it as a row of one strip is drawn: of the
first class that has something there (work and comm, then loads, then waits) the job that takes most of the
time, and how much of the cell the class covers, in 1/255, rounded up. A raster of coarser cells is the sum of
these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.analysis.spans.byte_memory import ByteMemory
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.rows import BLOCKS
from musetrace.analysis.windows.window import Raster, View
from musetrace.store.pyramid_store import Cells, PyramidFile, PyramidStore

VERSION = 1  # raised whenever pyramid_cells makes other cells of the same spans
CELLS_OF_A_PIXEL = 2  # at least: so the edge of a span is less than half a pixel off

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
    store = store_of(timeline.run)
    file = None if store is None else store.read(VERSION)
    if file is None:
        return None
    return Pyramid(timeline, file, tuple(file.about["cell_ns"]), memory)


def drop_pyramid(run: RunLike) -> None:
    """Forget a pyramid that turned out to be damaged, so that it is made anew. Raises OSError."""
    store = store_of(run)
    if store is not None:
        store.remove()


def store_of(run: RunLike) -> PyramidStore | None:
    """Where a run keeps its pyramid; None where it cannot."""
    return getattr(run, "pyramid_store", None)


def shows(view: View) -> bool:
    """Whether a pyramid can show a view at all: blocks, each a row of one strip."""
    return view.rows.kind == BLOCKS and view.strips == 1
