"""Two runs beside each other in slow plain Python, sharing nothing with the analysis but names."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from tests.unit.analysis_oracle import in_scope, op_kind, percentile, pieces
from tests.unit.fake_run import FakeRun

BUSY = ("compute", "send", "recv", "sync")
Steps = dict[int, int]  # a time by step


def middle(values: list[int]) -> int:
    found = percentile(values, 50)
    assert found is not None
    return found


def ops(run: FakeRun, ranks: list[int]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Times by step, launches of a step and number of instances, by (kind of launch, op, kind of job)."""
    launches, spans, _ = in_scope(run, None, None, None)
    edges: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for x in spans:
        if x.rank in ranks:
            place = (x.rank, x.step, x.launch)
            edges[(launches[place].kind, *op_kind(run, x.job)), place, x.block].append(
                (x.begin, x.begin + x.dur)
            )
    found = {}
    for name in {key[0] for key in edges}:
        mine = {key: ends for key, ends in edges.items() if key[0] == name}
        by_step = defaultdict(list)
        per_step: dict[Any, set[int]] = defaultdict(set)
        for (_, (rank, step, launch), _), ends in mine.items():
            by_step[step].append(max(e for _, e in ends) - min(b for b, _ in ends))
            per_step[rank, step].add(launch)
        found[name] = {
            "times": {step: middle(lengths) for step, lengths in by_step.items()},
            "launches": middle([len(of) for of in per_step.values()]),
            "n": len(mine),
        }
    return found


def times(run: FakeRun, ranks: list[int]) -> dict[tuple[str, str], Steps]:
    """Lengths of steps, launches and gaps by step."""
    stamped = [x for x in run.all_launches if x.stamped and x.rank in ranks]
    after = {(x.rank, x.step, x.launch): x for x in stamped}
    pools: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for x in stamped:
        pools["launch", x.kind][x.step].append(x.end - x.begin)
        successor = after.get((x.rank, x.step, x.launch + 1))
        if successor is not None:
            pools["gap", x.kind][x.step].append(successor.begin - x.end)
    for rank in ranks:
        for step in run.step_ids(rank):
            ends = [x.end for x in stamped if (x.rank, x.step) == (rank, step)]
            pools["step", "device"][step].append(max(ends, default=0))
            pools["step", "host"][step].append(40 + 7 * step)
    return {name: {step: middle(of) for step, of in steps.items()} for name, steps in pools.items()}


def busy_and_wait(run: FakeRun, ranks: list[int]) -> dict[tuple[str, str, str], tuple[Steps, int | None]]:
    """Means over blocks and launches by step, and their uncertainty, by (kind of launch, op, class)."""
    launches, spans, _ = in_scope(run, None, None, None)
    launches = {key: x for key, x in launches.items() if key[0] in ranks}
    unions: dict[Any, list[Any]] = defaultdict(list)
    for x in spans:
        op, kind = op_kind(run, x.job)
        of = "wait" if kind == "wait" else "busy" if kind in BUSY else None
        place = (x.rank, x.step, x.launch)
        if of and place in launches:
            unions[(launches[place].kind, op, of), place, x.block].append(x)
    found = {}
    for name in {key[0] for key in unions}:
        of_kind = [x for x in launches.values() if x.kind == name[0]]
        means, offs = {}, []
        for step in {x.step for x in of_kind}:
            mine = [of for (one, place, _), of in unions.items() if one == name and place[1] == step]
            blocks = sum(max(x.blocks, 1) for x in of_kind if x.step == step)
            covered = sum(len({t for x in of for t in range(x.begin, x.begin + x.dur)}) for of in mine)
            means[step] = math.floor(covered / blocks + 0.5)
            offs.append(math.ceil(sum(map(pieces, mine)) * (run.tick_ns or 0) / blocks))
        found[name] = means, None if run.tick_ns is None else max(offs)
    return found
