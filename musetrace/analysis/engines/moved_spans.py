"""How long the parts of a launch that move bytes take, launch by launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.analysis.spans.intervals import newly_covered, opens_piece, sorted_axis
from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MovedSpans:
    """One entry for each part of each launch that was seen, int64 each; times in ns.

    ``elapsed`` is from the first begin of its spans, in any block, to the last end; ``covered`` the part of
    it in which at least one block is in one of them, in ``pieces``; ``block_sum`` the same of each of the
    ``blocks``, added up.
    """

    part: Ints
    launch: Ints
    elapsed: Ints
    covered: Ints
    pieces: Ints
    block_sum: Ints
    blocks: Ints


def moved_spans(spans: StepSpans, part_of_span: Ints, blocks: int) -> MovedSpans:
    """Measure one (rank, step); ``part_of_span`` is int64[spans], -1 for spans of no part."""
    mine = part_of_span >= 0
    launch, block = spans.launch[mine], spans.block[mine]
    window = spans.launch_end - spans.launch_begin
    begin, end = (
        np.clip(times[mine] - spans.launch_begin[launch], 0, window[launch])
        for times in (spans.begin, spans.end)
    )
    launches, reach = len(window), int(window.max(initial=0)) + 1
    key = part_of_span[mine] * launches + launch
    order, axis_begin, axis_end = sorted_axis(key, begin, end, reach)
    starts = _starts(key[order])
    keys = key[order][starts]
    of_blocks, block_begin, block_end = sorted_axis(key * blocks + block, begin, end, reach)
    one_block = (key * blocks + block)[of_blocks]
    block_starts = _starts(key[of_blocks])
    last = np.maximum.reduceat(axis_end, starts) if len(starts) else starts
    return MovedSpans(
        part=keys // launches if launches else keys,
        launch=keys % launches if launches else keys,
        elapsed=last - axis_begin[starts],
        covered=_sums(newly_covered(axis_begin, axis_end), starts),
        pieces=_sums(opens_piece(axis_begin, axis_end).astype(np.int64), starts),
        block_sum=_sums(newly_covered(block_begin, block_end), block_starts),
        blocks=_sums((np.diff(one_block, prepend=-1) != 0).astype(np.int64), block_starts),
    )


def _starts(keys: Ints) -> Ints:
    """Where each run of equal keys begins."""
    return np.flatnonzero(np.diff(keys, prepend=-1))


def _sums(values: Ints, starts: Ints) -> Ints:
    sums: Ints = np.add.reduceat(values, starts) if len(starts) else starts
    return sums
