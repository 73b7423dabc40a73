"""The analysis once more in slow plain Python, sharing nothing with it: loops, dicts, sets of nanoseconds."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

from tests.unit.fake_run import FakeRun, Launch, Span

BUSY = ("compute", "send", "recv", "sync")


def percentile(values: list[int], percent: int) -> int | None:
    """The smallest value that at least ``percent`` % of the values do not exceed."""
    for value in sorted(values):
        if sum(other <= value for other in values) * 100 >= percent * len(values):
            return value
    return None


def tenths(name: str, values: list[int]) -> dict[str, int | None]:
    return {f"{name}_p{percent}_ns": percentile(values, percent) for percent in (10, 50, 90)}


def op_kind(run: FakeRun, job: int) -> tuple[str, str]:
    jobs = run.job_table.jobs
    return (jobs[job].op, jobs[job].kind) if job < len(jobs) else (f"job#{job}", "compute")


def in_scope(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[dict[tuple[int, int, int], Launch], list[Span], int]:
    """The launches by (rank, step, launch), their sound spans, and how many spans were left out."""
    launches = {
        (x.rank, x.step, x.launch): x
        for x in run.all_launches
        if x.stamped
        and x.rank in run.ranks
        and (kind is None or x.kind == kind)
        and (rank is None or x.rank == rank)
        and (step is None or x.step == step)
    }
    spans = [x for x in run.all_spans if (x.rank, x.step, x.launch) in launches]
    return launches, [x for x in spans if x.flag == 0], sum(x.flag != 0 for x in spans)


def op_timeline(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, rank, step)
    instances = defaultdict(list)
    for x in spans:
        instances[op_kind(run, x.job), x.rank, x.step, x.launch, x.block].append(x)
    unknown = sorted({x.job for x in spans if x.job >= len(run.job_table.jobs)})
    rows = []
    for name in dict.fromkeys(op_kind(run, job) for job in (*range(len(run.job_table.jobs)), *unknown)):
        mine = {key[1:]: found for key, found in instances.items() if key[0] == name}
        if not mine:
            continue
        start = {key: launches[key[:3]].begin for key in mine}
        begins = [min(x.begin for x in found) - start[key] for key, found in mine.items()]
        ends = [max(x.begin + x.dur for x in found) - start[key] for key, found in mine.items()]
        rows.append(
            {
                "op": name[0],
                "kind": name[1],
                **tenths("begin", begins),
                **tenths("end", ends),
                "dur_p50_ns": percentile([e - b for b, e in zip(begins, ends, strict=True)], 50),
                "blocks": len({(key[0], key[3]) for key in mine}),
                "blocks_total": run.blocks * len(run.ranks if rank is None else [rank]),
                "n": len(mine),
            }
        )
    return rows, ignored


def block_busy(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, int]], int]:
    launches, spans, ignored = in_scope(run, kind, rank, step)
    rows = []
    for one in run.ranks if rank is None else [rank]:
        for block in range(run.blocks):
            row = dict.fromkeys(("launches", "wall_ns", "busy_ns", "loading_ns", "waiting_ns", "idle_ns"), 0)
            for key, launch in launches.items():
                mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
                if key[0] != one or not (mine or launch.blocks >= run.blocks):
                    continue
                covered: dict[str, set[int]] = defaultdict(set)
                for x in mine:
                    covered[op_kind(run, x.job)[1]].update(range(x.begin, x.begin + x.dur))
                wall = set(range(launch.begin, launch.end))
                busy = wall & set().union(*(covered[name] for name in BUSY))
                loading = wall & (covered["load"] | covered["prefetch"])
                row["launches"] += 1
                row["wall_ns"] += len(wall)
                row["busy_ns"] += len(busy)
                row["loading_ns"] += len(loading - busy)
                row["waiting_ns"] += len((wall & covered["wait"]) - busy - loading)
                row["idle_ns"] += len(wall - busy)
            if row["launches"]:
                rows.append({"rank": one, "block": block, **row})
    return rows, ignored


def stops(run: FakeRun, kind: str | None, step: int | None) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, None, step)
    wait, send = 8, 7  # stop1_wait_ranks and the job it awaits, b_send
    sent: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for x in spans:
        if x.job == send:
            by_rank = sent[x.step, x.launch]
            by_rank[x.rank] = max(by_rank.get(x.rank, -1), run.base_ns(x.rank, x.step) + x.begin + x.dur)
    judged = [by_rank for by_rank in sent.values() if len(by_rank) == len(run.ranks)]
    if run.missing or len(run.ranks) < 2:
        judged = []
    share: dict[int, Fraction] = defaultdict(Fraction)
    for by_rank in judged:
        late = [one for one, end in by_rank.items() if end == max(by_rank.values())]
        for one in late:
            share[one] += Fraction(1, len(late) * len(judged))
    rows = []
    for one in run.ranks:
        waits = [x.dur for x in spans if x.rank == one and x.job == wait]
        if waits:
            rows.append(
                {
                    "stop": "stop1",
                    "rank": one,
                    "n": len(waits),
                    **tenths("wait", waits),
                    "last_n": len(judged),
                    "last_share": float(share[one]) if judged else None,
                }
            )
    return rows, ignored


def ring_ahead(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, rank, step)
    ops = ["a", "b", "stop1"]  # those that compute, in job-table order
    rows = []
    for job in (0, 4, 5):  # a_load, b_prefetch, b_load
        own = run.job_table.jobs[job].op
        ahead, between, during = [], [], []
        for key in launches:
            for block in range(run.blocks):
                mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
                loads = [x.begin for x in mine if x.job == job]
                computes = {op: [x for x in mine if op_kind(run, x.job) == (op, "compute")] for op in ops}
                if not loads or not computes[own]:
                    continue
                load, used = min(loads), min(x.begin for x in computes[own])
                ends = [
                    max(x.begin + x.dur for x in computes[op]) for op in ops if computes[op] and op != own
                ]
                begun = {op: min(x.begin for x in computes[op]) for op in ops if computes[op]}
                begun = {op: begin for op, begin in begun.items() if begin <= load}
                ahead.append(used - load)
                between.append(sum(load < end <= used for end in ends))
                during.append(max(begun, key=lambda op: begun[op]) if begun else None)
        if ahead:
            most = max([None, *ops], key=during.count)
            rows.append(
                {
                    "load": run.job_table.jobs[job].name,
                    "op": own,
                    "n": len(ahead),
                    **tenths("ahead", ahead),
                    "ops_between_p50": percentile(between, 50),
                    "during_op": most,
                    "during_share": during.count(most) / len(during),
                }
            )
    return rows, ignored
