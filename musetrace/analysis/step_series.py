"""One number for each step of a run: of every op, launch and step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import host_tick_ns, tick_ns
from musetrace.analysis.cubes import states_by_kind
from musetrace.analysis.observed import Seen
from musetrace.analysis.op_lengths import OP_LENGTHS, op_rows
from musetrace.analysis.percentiles import nearest_rank
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import LaunchColumns
from musetrace.analysis.value_counts import ValueCounts

Ints = npt.NDArray[np.int64]
Name = tuple[str, ...]

STEP, LAUNCH, HOST_LAUNCH, GAP = "step", "launch", "host launch", "gap"
TIMES = (STEP, LAUNCH, HOST_LAUNCH, GAP)


@dataclass(frozen=True)
class Series:
    """A time of each step that has it.

    ``step_ns`` int64[steps] in the order of the steps; ``uncertainty_ns`` is what the clock leaves open in
    each, None where its tick is not known; ``launches`` is in how many launches of a step of one rank the
    thing happens (the median), and ``count`` how many times it was seen in all.
    """

    step_ns: Ints
    uncertainty_ns: int | None
    launches: int
    count: int


@dataclass
class Pools:
    """Values by name and step, as they come; a step's number is the median of its values."""

    _values: dict[Name, dict[int, list[Ints]]] = field(default_factory=dict)
    _launches: dict[Name, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: Name, step: int, values: Ints, launches: int) -> None:
        """Add values of one (rank, step), which come from so many of its launches."""
        self._values.setdefault(name, {}).setdefault(step, []).append(values)
        self._launches[name].append(launches)

    def series(self, tick: int | None) -> dict[Name, Series]:
        """The series of each name, in the order in which names came."""
        found: dict[Name, Series] = {}
        for name, steps in self._values.items():
            pooled = [np.concatenate(steps[step]) for step in sorted(steps)]
            medians = np.array([median(values) for values in pooled], dtype=np.int64)
            launches = median(np.array(self._launches[name], dtype=np.int64))
            found[name] = Series(medians, tick, launches, sum(map(len, pooled)))
        return found


def median(values: Ints) -> int:
    """The nearest-rank median of at least one integer."""
    (found,) = nearest_rank(values, (50,))
    return found or 0


def op_series(
    run: RunLike, ranks: Collection[int], layer_kind: str | None, seen: Seen | None = None
) -> dict[Name, Series]:
    """The length of every op, by (kind of launch, op, kind of job); what was seen is added to ``seen``.

    A step's number is the median over ranks x launches x blocks of the time from the first begin to the last
    end of what a block did of it in a launch. Names are in the order of the job table, then of the launches.
    """
    rows, tick = op_rows(run), tick_ns(run)
    by_kind = states_by_kind(run, OP_LENGTHS, ranks, layer_kind)
    if seen is not None:
        seen.add(by_kind.seen)
    found: dict[Name, Series] = {}
    for kind, states in by_kind.states.items():
        launches = dict(states[None].sum_of("launches", 2).groups())
        for row, of_row in states[None].sum_of("length", 3).groups():
            steps = [ValueCounts.of(of_step) for _, of_step in of_row.groups()]
            medians = np.array([counts.nearest_rank((50,))[0] for counts in steps], dtype=np.int64)
            number = ValueCounts.of(launches[row]).nearest_rank((50,))[0] or 0
            count = sum(counts.n for counts in steps)
            found[(kind, *rows.name_of(row))] = Series(medians, tick, number, count)
    return found


def launch_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> dict[Name, Series]:
    """The length of the step and of launches, and gaps to the next launch, as the overview defines them.

    By ``("step", clock)``, ``("launch", kind)``, ``("gap", kind)`` and ``("host launch", kind)``; a step's
    number is the median over ranks x launches. As the host sees it, which needs no stamps, a launch begins
    when it was handed over or the one before it had ended, and ends when the recorder saw its end. Of steps
    whose launches were all handed over before one had ended (a graph's) the host knows no single one.
    """
    device, host = Pools(), Pools()
    for rank in ranks:
        steps = run.steps(rank)
        if layer_kind is None:
            _add_steps(device, "device", steps, "base_ns", "end_ns")
            _add_steps(host, "host", steps, "host_begin_ns", "host_end_ns")
        _add_launches(device, LaunchColumns.of(run.launches(rank)), layer_kind)
        _add_host_launches(host, run.launches(rank), layer_kind)
    found = {**device.series(tick_ns(run)), **host.series(host_tick_ns(run))}
    return dict(sorted(found.items(), key=lambda item: TIMES.index(item[0][0])))


def _add_steps(pools: Pools, clock: str, steps: Any, first: str, last: str) -> None:
    step, begin, end = (steps[name].to_numpy().astype(np.int64) for name in ("step", first, last))
    for index in np.flatnonzero((begin > 0) & (end >= begin)).tolist():
        pools.add((STEP, clock), int(step[index]), (end - begin)[index : index + 1], 1)


def _add_launches(pools: Pools, columns: LaunchColumns, layer_kind: str | None) -> None:
    columns = columns.take(np.flatnonzero(columns.stamped))
    length = columns.end_ns - columns.begin_ns
    gap = columns.begin_ns[1:] - columns.end_ns[:-1]
    followed = (np.diff(columns.step) == 0) & (np.diff(columns.launch) == 1)
    for step in np.unique(columns.step).tolist():
        chosen = columns.chosen(step, layer_kind)
        for kind in dict.fromkeys(columns.kind[chosen].tolist()):
            mine = chosen[columns.kind[chosen] == kind]
            pools.add((LAUNCH, kind), step, length[mine], len(mine))
            mine = mine[mine < len(gap)]
            mine = mine[followed[mine]]
            if len(mine):
                pools.add((GAP, kind), step, gap[mine], len(mine))


def _add_host_launches(pools: Pools, launches: pa.Table, layer_kind: str | None) -> None:
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
                pools.add((HOST_LAUNCH, kind), number, of_kind, len(of_kind))
