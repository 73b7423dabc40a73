"""Makes the cells of the pixel pyramid (``pyramid``) of all spans of a run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from musetrace import _core
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.job_strips import Drawn, JobStrips
from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.lanes import StepLanes, own_lanes
from musetrace.analysis.windows.pyramid import VERSION, store_of
from musetrace.store.pyramid_store import Cells, Key

_FACTOR = 4
_LEAST_CELL_NS = 2
_LEAST_COLUMNS = 64  # of the longest step at the last level
_MOST_COLUMNS = 8_192  # that are made at once
_MOST_PLACES = 254
_MOST_BLOCKS = 1 << 14
_THREADS = 2


def keep_pyramid(timeline: Timeline) -> None:
    """Make the pyramid of a run that lacks it and keep it in its index, if that can be written.

    It has at most as many cells of the least length as there are spans. A job table of more than 254 ops in
    strips, and a run of more than 16,384 blocks, have none.
    """
    run, axis, strips = timeline.run, timeline.axis, timeline.strips
    store = store_of(run)
    if store is None or len(strips.by_strip[1]) > _MOST_PLACES or run.blocks > _MOST_BLOCKS:
        return
    if store.read(VERSION) is not None:
        return
    lengths_ns = _lengths_ns(run, axis)
    cell_ns = levels(lengths_ns, run.blocks, sum(timeline.spans_of.values()))
    try:
        store.write(VERSION, {"cell_ns": list(cell_ns)}, _parts(run, lengths_ns, strips, cell_ns))
    except OSError:
        return  # a full disk, or one that may not be written: spans and launches answer everything


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
    run: RunLike, lengths_ns: dict[tuple[int, int], int], strips: JobStrips, cell_ns: tuple[int, ...]
) -> Iterator[tuple[Key, Cells]]:
    """All cells, a few steps at a time."""
    jobs = as_places(strips)

    def of_step(one: tuple[int, int]) -> list[tuple[Key, Cells]]:
        lanes = own_lanes(run, *one)
        return [
            ((*one, level), cells_of(lanes, jobs, run.blocks, lengths_ns[one], cell))
            for level, cell in enumerate(cell_ns)
        ]

    every = list(lengths_ns)
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


def as_places(strips: JobStrips) -> Drawn:
    """Jobs drawn in one strip, each as its place instead of its op."""
    place_of_job, classes, ops, strip, count = strips.by_class
    return place_of_job, classes, np.arange(len(ops), dtype=np.uint8), strip, count
