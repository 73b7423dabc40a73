"""Two runs beside each other in slow plain Python, sharing nothing with the analysis but names."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from tests.unit import idle_oracle
from tests.unit.analysis_oracle import in_scope, op_kind, percentile, pieces
from tests.unit.fake_run import FakeRun

BUSY = ("compute", "send", "recv", "sync")
EVERYTHING = {"layer_kind": None, "rank": None, "step": None}
Steps = dict[int, int]  # a time by step


def middle(values: list[int]) -> int:
    found = percentile(values, 50)
    assert found is not None
    return found


def over_ranks(of_ranks: dict[int, list[int]]) -> int:
    """The mean over ranks of their medians; a half is rounded up."""
    medians = [middle(values) for values in of_ranks.values()]
    return math.floor(sum(medians) / len(medians) + 0.5)


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
        by_step: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        per_step: dict[Any, set[int]] = defaultdict(set)
        for (_, (rank, step, launch), _), ends in mine.items():
            by_step[step][rank].append(max(e for _, e in ends) - min(b for b, _ in ends))
            per_step[rank, step].add(launch)
        found[name] = {
            "times": {step: over_ranks(of_ranks) for step, of_ranks in by_step.items()},
            "launches": middle([len(of) for of in per_step.values()]),
            "n": len(mine),
        }
    return found


def times(run: FakeRun, ranks: list[int]) -> dict[tuple[str, str], Steps]:
    """Lengths of steps, launches and gaps by step."""
    stamped = [x for x in run.all_launches if x.stamped and x.rank in ranks]
    after = {(x.rank, x.step, x.launch): x for x in stamped}
    pools: dict[Any, dict[int, dict[int, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for x in stamped:
        pools["launch", x.kind][x.step][x.rank].append(x.end - x.begin)
        successor = after.get((x.rank, x.step, x.launch + 1))
        if successor is not None:
            pools["gap", x.kind][x.step][x.rank].append(successor.begin - x.end)
    for rank in ranks:
        for step in run.step_ids(rank):
            ends = [x.end for x in stamped if (x.rank, x.step) == (rank, step)]
            pools["step", "device"][step][rank].append(max(ends, default=0))
            pools["step", "host"][step][rank].append(40 + 7 * step)
    return {name: {step: over_ranks(of) for step, of in steps.items()} for name, steps in pools.items()}


def busy(run: FakeRun, ranks: tuple[int, ...]) -> dict[tuple[str, str], tuple[Steps, int | None]]:
    """Means over blocks and launches by step, and their uncertainty, by (kind of launch, op)."""
    unions: dict[Any, list[Any]] = defaultdict(list)
    blocks: dict[tuple[str, int], int] = defaultdict(int)
    for key, launch, spans in idle_oracle.instances(run, EVERYTHING):
        if launch.rank not in ranks:
            continue
        blocks[launch.kind, launch.step] += 1
        for x in spans:
            op, kind = op_kind(run, x.job)
            if kind in BUSY:
                unions[launch.kind, op, launch.step, key].append(x)
    found = {}
    for kind, op in {name[:2] for name in unions}:
        means, offs = {}, []
        for step, number in ((step, n) for (of, step), n in blocks.items() if of == kind):
            mine = [of for name, of in unions.items() if name[:3] == (kind, op, step)]
            covered = sum(len({t for x in of for t in range(x.begin, x.begin + x.dur)}) for of in mine)
            means[step] = math.floor(covered / number + 0.5)
            offs.append(math.ceil(sum(map(pieces, mine)) * (run.tick_ns or 0) / number))
        found[kind, op] = means, None if run.tick_ns is None else max(offs)
    return found


def idle(run: FakeRun, kind: str, rank: int | None) -> dict[tuple[str, ...], tuple[Steps, int | None]]:
    """Means by step, and their uncertainty, by cause of the idle time of a kind of launch."""
    steps = {}
    for step in {x.step for x in run.all_launches}:
        scope = {"layer_kind": kind, "rank": rank, "step": step}
        if any(idle_oracle.instances(run, scope)):
            steps[step] = {
                tuple(row[of] or "" for of in ("cause", "op", "wait", "awaits")): row
                for row in idle_oracle.idle(run, scope)
            }
    found = {}
    for name in {name for rows in steps.values() for name in rows}:
        rows = {step: of.get(name) for step, of in steps.items()}
        offs = [row["idle_mean_uncertainty_ns"] for row in rows.values() if row]
        means = {step: row["idle_mean_ns"] if row else 0 for step, row in rows.items()}
        found[name] = means, None if run.tick_ns is None else max(offs)
    return found


def walls(run: FakeRun) -> dict[str, dict[int, float]]:
    """The mean length of the launches that blocks which count are in, by kind and step."""
    lengths: dict[Any, list[int]] = defaultdict(list)
    for _, launch, _ in idle_oracle.instances(run, EVERYTHING):
        lengths[launch.kind, launch.step].append(launch.end - launch.begin)
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for (kind, step), of in lengths.items():
        found[kind][step] = sum(of) / len(of)
    return found
