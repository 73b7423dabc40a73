"""How long steps and launches take, before any question about what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, host_tick_ns, spread, spread_fields, tick_ns
from musetrace.analysis.certainty.observed import seen_by_rank, total
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, check_step, chosen_ranks

Ints = npt.NDArray[np.int64]

# Columns of the steps table: when a step began and ended by each clock.
STEP_CLOCKS = {"device": ("base_ns", "end_ns"), "host": ("host_begin_ns", "host_end_ns")}

_LAUNCH_IDS = 1 << 16  # a launch's id within its step has 16 bits

_NONE = np.zeros(0, dtype=np.int64)

_STEP_FIELDS = [("clock", pa.string()), ("n", pa.uint64()), *spread_fields("step")]
_LAUNCH_FIELDS = [
    ("kind", pa.string()),
    ("layers", pa.uint32()),
    ("n", pa.uint64()),
    *spread_fields("launch"),
    ("gap_n", pa.uint64()),
    *spread_fields("gap"),
    ("observed", pa.float64()),
]


def step_times(run: RunLike, *, rank: int | None = None, step: int | None = None) -> pa.Table:
    """One row per clock (``device``, ``host``): exact percentiles of a step's length over steps x ranks.

    Device: from the step's first time to its last; a step without stamps is not counted.
    Host: the two times that the program's own clock gave, whose uncertainty is known where the recorder
    measured that clock's step. A clock that saw no step has no row.

    Meaning: what a user of the model feels (host) and what the kernel is answerable for (device). The
    difference is launch and host work before and after. It lies about steps whose last launches were lost
    (see the losses).

    Raises:
        AnalysisError: the run has no such rank or step.
    """
    rows: list[dict[str, object]] = []
    ranks = chosen_ranks(run, Selection(rank=rank))
    check_step(run, ranks, step)
    tables = [run.steps(one) for one in ranks]
    for clock, (first, last) in STEP_CLOCKS.items():
        found = [_step_lengths(table, step, first, last) for table in tables]
        number, times = (np.concatenate([one[i] for one in found] or [_NONE]) for i in range(2))
        if len(times):
            tick = tick_ns(run) if clock == "device" else host_tick_ns(run)
            rows.append({"clock": clock, "n": len(times), **spread("step", times, _sizes(number), tick)})
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    return answer(
        run, _STEP_FIELDS, rows, Counted(seen=seen_by_rank(run, Selection(None, rank, step), columns))
    )


def launch_times(run: RunLike, *, rank: int | None = None, step: int | None = None) -> pa.Table:
    """One row per layer kind, in the order of a step: a launch's length, and the gap to the next launch.

    A launch lasts from its first time to its last on one rank (block headers and stamps). ``gap_*`` is the
    begin of the step's next launch minus the end of this one, on the same rank: negative where they overlap
    (PDL). A launch whose successor was lost has no gap. ``layers`` counts the distinct layers of the kind,
    ``observed`` is the share of its launches and their blocks that was recorded, at least.

    Meaning: lengths plus gaps make up the step. The first header is written when a block is running, so the
    launch latency of the hardware is in the gap. Launches without stamps are not counted.

    Raises:
        AnalysisError: the run has no such rank or step.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    check_step(run, ranks, step)
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    launches = [_launch_lengths(of_rank, step) for of_rank in columns.values()]
    kind = np.concatenate([one.kind for one in launches]) if launches else np.zeros(0, dtype=object)
    kinds = dict.fromkeys(kind.tolist())
    shares = share_by_kind(run, Selection(None, rank, step), kinds)
    rows = [{**_launch_row(name, launches, tick_ns(run)), "observed": shares[name]} for name in kinds]
    seen = seen_by_rank(run, Selection(None, rank, step), columns)
    return answer(run, _LAUNCH_FIELDS, rows, Counted(seen=seen))


def share_by_kind(run: RunLike, selection: Selection, kinds: Iterable[str]) -> dict[str, float | None]:
    """The share of each kind's launches and their blocks that was recorded, in the scope but for its kind."""
    columns = {one: LaunchColumns.of(run.launches(one)) for one in chosen_ranks(run, selection)}
    of_kind = {kind: Selection(kind, selection.rank, selection.step) for kind in kinds}
    return {kind: total(seen_by_rank(run, of, columns).values()).share for kind, of in of_kind.items()}


@dataclass(frozen=True)
class _Launches:
    """The stamped launches of one rank, and the gaps after those whose successor is there too.

    ``key`` and ``gap_key`` number the launch, the same on every rank.
    """

    kind: npt.NDArray[Any]
    layer: Ints
    key: Ints
    length_ns: Ints
    gap_kind: npt.NDArray[Any]
    gap_key: Ints
    gap_ns: Ints


def _launch_lengths(columns: LaunchColumns, step: int | None) -> _Launches:
    wanted = columns.stamped if step is None else columns.stamped & (columns.step == step)
    columns = columns.take(np.flatnonzero(wanted))
    followed = (np.diff(columns.step) == 0) & (np.diff(columns.launch) == 1)
    gap_ns = columns.begin_ns[1:] - columns.end_ns[:-1]
    length_ns = columns.end_ns - columns.begin_ns
    key = columns.step * _LAUNCH_IDS + columns.launch
    gap_kind, gap_key = columns.kind[:-1][followed], key[:-1][followed]
    return _Launches(columns.kind, columns.layer, key, length_ns, gap_kind, gap_key, gap_ns[followed])


def _launch_row(kind: str, launches: list[_Launches], tick: int | None) -> dict[str, object]:
    mine = [(one, one.kind == kind) for one in launches]
    lengths, keys, layers = (
        np.concatenate([getattr(one, name)[chosen] for one, chosen in mine])
        for name in ("length_ns", "key", "layer")
    )
    gaps, gap_keys = (
        np.concatenate([getattr(one, name)[one.gap_kind == kind] for one in launches])
        for name in ("gap_ns", "gap_key")
    )
    return {
        "kind": kind,
        "layers": len(np.unique(layers)),
        "n": len(lengths),
        **spread("launch", lengths, _sizes(keys), tick),
        "gap_n": len(gaps),
        **spread("gap", gaps, _sizes(gap_keys), tick),
    }


def _step_lengths(table: pa.Table, step: int | None, first: str, last: str) -> tuple[Ints, Ints]:
    """The numbers and lengths of the steps in scope whose two times are there and in order."""
    number, begin, end = (table[name].to_numpy().astype(np.int64) for name in ("step", first, last))
    wanted = (begin > 0) & (end >= begin)
    if step is not None:
        wanted &= number == step
    return number[wanted], (end - begin)[wanted]


def _sizes(key: Ints) -> Ints:
    """How often each key occurs."""
    sizes: Ints = np.unique(key, return_counts=True)[1]
    return sizes
