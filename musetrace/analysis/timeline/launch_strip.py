"""The launches of a step in order: how long each takes, and how idle its blocks are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread, spread_fields, tick_ns
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.gaps.idle_pieces import KindClasses, idle_pieces
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import (
    Counted,
    LaunchColumns,
    Selection,
    StepSpans,
    chosen_ranks,
)

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("launch", pa.uint32()),
    ("layer", pa.int32()),
    ("kind", pa.string()),
    ("n", pa.uint64()),
    *spread_fields("launch"),
    ("idle_n", pa.uint64()),
    ("idle_share_p50", pa.float64()),
    ("idle_share_uncertainty", pa.float64()),
]
Place = tuple[int, int, str]  # id, layer and kind of a launch


def launch_strip(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per launch of a step, in order; where its layer or kind differs between steps, one for each.

    ``launch_*`` is the length of the launch over the ``n`` steps and ranks of the scope, as ``launch_times``
    has it. ``idle_share_p50`` is the median, over the ``idle_n`` of them that left sound spans, of the share
    of its blocks' time that is idle (``idle``): a nearest rank. Its uncertainty is the largest of any of
    them, a tick for each piece of idle time.

    Meaning: which layers are unlike the others. It lies as ``idle`` does; launches without stamps are left
    out.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, LAUNCH_STRIP, Selection(layer_kind, rank, step))


# Sums of each launch of each (rank, step).
_WALL, _IDLE, _PIECES = range(3)


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    classes = KindClasses.of(run)
    return [_state(one, run.blocks, classes) for one in spans]


def _state(spans: StepSpans, blocks: int, classes: KindClasses) -> State:
    state, launches = State(), len(spans.launch_id)
    pieces = idle_pieces(spans, blocks, classes)
    of_piece = pieces.instance % launches
    numbers = (
        np.bincount(pieces.instances % launches, pieces.wall_ns, launches),
        np.bincount(of_piece, pieces.length_ns, launches),
        np.bincount(of_piece, minlength=launches),
    )
    for what, sums in enumerate(numbers):
        state.add("idle", spans.launch_id, spans.rank, spans.step, what, sums=sums.astype(np.int64))
    return state


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    tick = tick_ns(run)
    lengths = _lengths(run, selection)
    sums = state.sum_of("idle", 4).as_dict()
    rows: list[Mapping[str, Any]] = []
    for (launch, layer, kind), found in sorted(lengths.items(), key=lambda one: one[0][0]):
        steps = np.array([step for _, step, _ in found], dtype=np.int64)
        values = np.array([length for _, _, length in found], dtype=np.int64)
        idle = [[sums.get((launch, *of, what), 0) for what in range(3)] for *of, _ in found]
        rows.append(
            {
                "launch": launch,
                "layer": layer,
                "kind": kind,
                "n": len(found),
                **spread("launch", values, np.unique(steps, return_counts=True)[1], tick),
                **_idle_columns(np.array(idle, dtype=np.int64), tick),
            }
        )
    return answer(run, _FIELDS, rows, counted)


def _lengths(run: RunLike, selection: Selection) -> dict[Place, list[tuple[int, int, int]]]:
    """Rank, step and length in ns of the stamped launches in scope, by place."""
    found: dict[Place, list[tuple[int, int, int]]] = {}
    for rank in chosen_ranks(run, selection):
        columns = LaunchColumns.of(run.launches(rank))
        for at in np.flatnonzero(columns.stamped).tolist():
            step, kind = int(columns.step[at]), str(columns.kind[at])
            if selection.step in (None, step) and selection.layer_kind in (None, kind):
                place = int(columns.launch[at]), int(columns.layer[at]), kind
                length = int(columns.end_ns[at] - columns.begin_ns[at])
                found.setdefault(place, []).append((rank, step, length))
    return found


def _idle_columns(sums: Ints, tick: int | None) -> dict[str, Any]:
    """From int64[steps x ranks, 3]; a launch in which no block counts has no share."""
    wall, idle, pieces = sums[sums[:, _WALL] > 0].T
    if not len(wall):
        return {"idle_n": 0, "idle_share_p50": None, "idle_share_uncertainty": None}
    # The median share is one of the shares: that of the entry with the middle place.
    share = idle / wall
    middle = np.argsort(share, kind="stable")[nearest_rank(np.arange(len(share)), (50,))[0] or 0]
    off = None if tick is None else float((pieces * tick / wall).max())
    return {
        "idle_n": len(share),
        "idle_share_p50": float(share[middle]),
        "idle_share_uncertainty": off,
    }


LAUNCH_STRIP = Question("launch_strip", 1, _accumulate, _finish)
