"""How long steps and launches take: a number for each step of a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import host_tick_ns, tick_ns
from musetrace.analysis.comparing.step_series import Medians, RankSeries
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import LaunchColumns

Ints = npt.NDArray[np.int64]

STEP, LAUNCH, HOST_LAUNCH, GAP = "step", "launch", "host launch", "gap"
TIMES = (STEP, LAUNCH, HOST_LAUNCH, GAP)


def launch_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> RankSeries:
    """The length of the step and of launches, and gaps to the next launch, as the overview defines them.

    By ``("step", clock)``, ``("launch", kind)``, ``("gap", kind)`` and ``("host launch", kind)``; a step's
    number is the mean over ranks of the median over launches. As the host sees it, which needs no stamps, a
    launch begins when it was handed over or the one before it had ended, and ends when the recorder saw its
    end. Of steps whose launches were all handed over before one had ended (a graph's) the host knows no
    single one.
    """
    device, host = Medians(), Medians()
    for rank in ranks:
        steps = run.steps(rank)
        if layer_kind is None:
            _add_steps(device, rank, "device", steps, "base_ns", "end_ns")
            _add_steps(host, rank, "host", steps, "host_begin_ns", "host_end_ns")
        _add_launches(device, rank, LaunchColumns.of(run.launches(rank)), layer_kind)
        _add_host_launches(host, rank, run.launches(rank), layer_kind)
    of_device, of_host = device.series(tick_ns(run)), host.series(host_tick_ns(run))
    names = {**of_device.names, **of_host.names}
    return RankSeries(
        dict(sorted(names.items(), key=lambda item: TIMES.index(item[0][0]))),
        {**of_device.by_rank, **of_host.by_rank},
    )


def _add_steps(medians: Medians, rank: int, clock: str, steps: Any, first: str, last: str) -> None:
    step, begin, end = (steps[name].to_numpy().astype(np.int64) for name in ("step", first, last))
    for index in np.flatnonzero((begin > 0) & (end >= begin)).tolist():
        medians.add((STEP, clock), rank, int(step[index]), (end - begin)[index : index + 1], 1)


def _add_launches(medians: Medians, rank: int, columns: LaunchColumns, layer_kind: str | None) -> None:
    columns = columns.take(np.flatnonzero(columns.stamped))
    length = columns.end_ns - columns.begin_ns
    gap = columns.begin_ns[1:] - columns.end_ns[:-1]
    followed = (np.diff(columns.step) == 0) & (np.diff(columns.launch) == 1)
    for step in np.unique(columns.step).tolist():
        chosen = columns.chosen(step, layer_kind)
        for kind in dict.fromkeys(columns.kind[chosen].tolist()):
            mine = chosen[columns.kind[chosen] == kind]
            medians.add((LAUNCH, kind), rank, step, length[mine], len(mine))
            mine = mine[mine < len(gap)]
            mine = mine[followed[mine]]
            if len(mine):
                medians.add((GAP, kind), rank, step, gap[mine], len(mine))


def _add_host_launches(medians: Medians, rank: int, launches: pa.Table, layer_kind: str | None) -> None:
    if "submit_ns" not in launches.column_names:
        return
    step, launch, submit, done = (
        launches[name].to_numpy().astype(np.int64) for name in ("step", "launch", "submit_ns", "done_ns")
    )
    kinds = np.asarray(launches["kind"].to_pylist(), dtype=object)
    for number in np.unique(step).tolist():
        mine = np.flatnonzero(step == number)
        mine = mine[np.argsort(launch[mine])]
        begin = np.maximum(submit[mine], np.append(0, done[mine][:-1]))
        length = done[mine] - begin
        at_once = len(mine) > 1 and submit[mine].max() <= done[mine].min()
        if at_once or submit[mine].min() <= 0 or length.min() < 0:
            continue
        for kind in dict.fromkeys(kinds[mine].tolist()):
            if layer_kind in (None, kind):
                of_kind = length[kinds[mine] == kind]
                medians.add((HOST_LAUNCH, kind), rank, number, of_kind, len(of_kind))
