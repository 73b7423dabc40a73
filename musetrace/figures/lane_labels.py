"""Which spans of the lanes carry the name of their op."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.figures.lane_spans import LaneSpans

MOST_LABELS = 300
LOADS = ("load", "prefetch")

# A plot is about this wide; a label that fits there fits better when zoomed in.
_PLOT_PX = 900
_CHARACTER_PX = 6.2
_PADDING_PX = 8


def label_positions(spans: LaneSpans, kinds: npt.NDArray[Any], labelled: Collection[str]) -> list[int]:
    """Indices of the spans that are long enough for the name of their op and do not lie on a labelled one.

    ``kinds`` is the kind of each span, ``labelled`` those that get labels. At most :data:`MOST_LABELS`, the
    longest.
    """
    ns_per_px = max(int(spans.end_ns.max(initial=1)), 1) / _PLOT_PX
    taken: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    found: list[int] = []
    for index in np.argsort(spans.begin_ns - spans.end_ns, kind="stable").tolist():
        begin, end = int(spans.begin_ns[index]), int(spans.end_ns[index])
        if (end - begin) / ns_per_px < _PADDING_PX:
            break
        op = spans.names[int(spans.job[index])].op
        if kinds[index] not in labelled or (end - begin) / ns_per_px < _CHARACTER_PX * len(op) + _PADDING_PX:
            continue
        in_row = taken.setdefault((int(spans.row[index]), kinds[index] in LOADS), [])
        if any(begin < other_end and other_begin < end for other_begin, other_end in in_row):
            continue
        in_row.append((begin, end))
        found.append(index)
        if len(found) == MOST_LABELS:
            break
    return found
