"""Which span of the lanes is under the pointer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from musetrace.figures.block_lanes import extent_of
from musetrace.figures.lane_spans import LaneSpans
from musetrace.figures.wording import US


def pointer_of(hover: object) -> tuple[float, float] | None:
    """x in us and y in rows of a graph's hover event; None when it has none."""
    if not isinstance(hover, Mapping):
        return None
    try:
        x, y = float(hover["xvals"][0]), float(hover["yvals"][0])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None


def span_at(spans: LaneSpans, x_us: float, y_row: float) -> int | None:
    """The index of the span at a point, or of the nearest one in the nearest strip; None in an empty row.

    Of several that hold the point the shortest is meant: it lies in the longer ones.
    """
    row = math.floor(y_row)
    first, last = np.searchsorted(spans.row, (row, row + 1))
    candidates = _in_nearest_strip(spans, range(int(first), int(last)), y_row - row)
    if not candidates:
        return None
    at_ns = x_us * US
    return min(candidates, key=lambda index: _distance(spans, index, at_ns))


def _distance(spans: LaneSpans, index: int, at_ns: float) -> tuple[float, int]:
    begin, end = int(spans.begin_ns[index]), int(spans.end_ns[index])
    return max(begin - at_ns, at_ns - end, 0.0), end - begin


def _strip_distance(spans: LaneSpans, index: int, fraction: float) -> float:
    top, bottom = extent_of(spans.kind_of(index), spans)
    return max(top - fraction, fraction - bottom, 0.0)


def _in_nearest_strip(spans: LaneSpans, indices: range, fraction: float) -> list[int]:
    distances = {index: _strip_distance(spans, index, fraction) for index in indices}
    nearest = min(distances.values(), default=0.0)
    return [index for index, distance in distances.items() if distance == nearest]


def describe(spans: LaneSpans, index: int, x_us: float) -> dict[str, Any]:
    """A span in full: names, place, exact integers in ns, and whether ``x_us`` lies in it (``hit``).

    ``uncertainty_ns`` is that of each of its times, ``apart_ns`` what comes on top against times of another
    rank; None where it is not known.
    """
    name, lane = spans.names[int(spans.job[index])], spans.lanes[int(spans.row[index])]
    begin_ns, end_ns = int(spans.begin_ns[index]), int(spans.end_ns[index])
    return {
        "job": name.job,
        "op": name.op,
        "kind": name.kind,
        "rank": lane.rank,
        "block": lane.block,
        "warp": int(spans.warp[index]),
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "dur_ns": end_ns - begin_ns,
        "uncertainty_ns": spans.uncertainty_ns,
        "apart_ns": spans.apart_ns,
        "hit": begin_ns <= x_us * US <= end_ns,
    }
