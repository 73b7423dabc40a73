"""The answer to a window of the timeline: a JSON header and arrays behind it, as bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.analysis.windows import lane_store, pyramid, window
from musetrace.analysis.windows.pyramid import DamagedPyramidError
from musetrace.analysis.windows.window import MOST_EXACT, Raster, Spans, View
from musetrace.dashboard.api.timelines import RunTimeline
from musetrace.figures.wording import many

_ALIGNED = 8
MOST_READ = 1_000_000  # spans that are drawn one by one where kept cells do as well
_SPAN_COLUMNS = (
    ("row", np.uint32),
    ("begin", np.float64),
    ("dur", np.float64),
    ("job", np.uint16),
    ("warp", np.uint8),
    ("iteration", np.uint32),
    ("flag", np.uint8),
    ("rank", np.uint16),
    ("step", np.uint32),
    ("id", np.uint32),
)
BY_LAUNCH = "by launch: each is filled evenly with what its blocks do most"
BEING_MADE = (
    "The picture of so many spans is being made, once for this run: look again in a minute, or look at less."
)


@dataclass(frozen=True)
class WindowAnswer:
    """Header fields and arrays, in order."""

    header: dict[str, Any]
    arrays: tuple[tuple[str, npt.NDArray[Any]], ...]

    def size(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for _, array in self.arrays)

    def encoded(self, seq: int) -> bytes:
        """u32 length of the header, the header, then the arrays; each begins at a multiple of 8 bytes."""
        told = [
            {"name": name, "dtype": str(array.dtype), "length": array.size} for name, array in self.arrays
        ]
        header = json.dumps({"seq": seq, **self.header, "arrays": told}).encode()
        header += b" " * (-(len(header) + 4) % _ALIGNED)
        parts: list[Any] = [struct.pack("<I", len(header)), header]
        for _, array in self.arrays:
            # Joined without a copy of its own: these are megabytes.
            little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            parts += [little.reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNED)]
        return b"".join(parts)


def window_answer(of: RunTimeline, view: View) -> WindowAnswer:
    """Spans one by one where they are few and a raster of them where they are more.

    Of more than ``MOST_READ`` it is made of the cells that the index keeps, if these are shorter than pixels;
    far out, of cells of any length, or where there are none, of launches.
    """
    expected = of.timeline.expected_spans(view.ranks, view.from_ns, view.to_ns)
    is_near = expected <= lane_store.MOST_NEAR
    if pyramid.shows(view) and (expected > MOST_READ or not is_near):
        kept = _of_cells(of, view, expected, is_near)
        if kept is not None:
            return kept
    if not is_near:
        return _far(of, view, expected)
    near = window.near(of.timeline, view)
    note = _note(near)
    if near.count <= MOST_EXACT:
        return _exact(view, window.spans(view, near), near.count, note)
    return _raster(view, window.raster(of.timeline, view, near), near.count, False, note)


def is_final(answer: WindowAnswer) -> bool:
    """Whether the same question has the same answer later."""
    return not answer.header["pending"]


def _header(view: View, mode: str, count: int, sampled: bool | str, note: str) -> dict[str, Any]:
    return {
        "mode": mode,
        "from": view.from_ns,
        "to": view.to_ns,
        "rows": [view.row_from, view.row_to],
        "strips": view.strips,
        "bins": list(view.bins),
        "count": count,
        "sampled": sampled,
        "pending": False,
        "note": note,
    }


def _of_cells(of: RunTimeline, view: View, expected: int, is_near: bool) -> WindowAnswer | None:
    """A raster of kept cells; None where there are none, or the spans of a near view tell more."""
    made = of.pictures.pyramid()
    level = None if made is None else made.level_of(view)
    if made is None or (level is None and is_near):
        return None
    try:
        found = made.raster(view, level or 0)
    except DamagedPyramidError:
        of.pictures.forget_pyramid()
        return None
    than = "" if level is not None else ", which are longer than half a pixel"
    about = f"of kept cells of {made.cell_ns[level or 0]:,} ns{than}"
    return _raster(view, found, expected, about, "")


def _far(of: RunTimeline, view: View, expected: int) -> WindowAnswer:
    overview = of.pictures.overview()
    if overview is not None:
        answer = _raster(view, overview.raster(view), expected, BY_LAUNCH, "")
        # A better one comes in seconds.
        answer.header["pending"] = pyramid.shows(view) and of.pictures.is_making_pyramid
        return answer
    groups, width = view.bins
    nothing = np.full((groups, view.strips, width), 255, dtype=np.uint8)
    note = of.pictures.trouble or BEING_MADE
    answer = _raster(view, Raster(nothing, np.zeros_like(nothing), nothing), expected, BY_LAUNCH, note)
    answer.header["pending"] = True
    return answer


def _raster(view: View, found: Raster, count: int, sampled: bool | str, note: str) -> WindowAnswer:
    arrays = [("op", found.op), ("share", found.share)]
    if view.strips == 1:
        arrays.append(("strip", found.strip))
    return WindowAnswer(_header(view, "raster", count, sampled, note), tuple(arrays))


def _exact(view: View, found: Spans, count: int, note: str) -> WindowAnswer:
    arrays = tuple((name, getattr(found, name).astype(dtype)) for name, dtype in _SPAN_COLUMNS)
    return WindowAnswer(_header(view, "spans", count, False, note), arrays)


def _note(near: window.Near) -> str:
    notes = []
    if near.flagged and near.count > MOST_EXACT:
        notes.append(f"{many(near.flagged, 'span')} with a flag, so of no certain time: drawn only near.")
    if near.without_row:
        notes.append(f"{many(near.without_row, 'span')} of these steps have no row here: show blocks.")
    return " ".join(notes)
