"""The analysis once more in slow plain Python, sharing nothing with it: loops, dicts, sets of nanoseconds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
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


Valued = tuple[int, tuple[int, int]]  # a value, and the step and launch that it is of


def spread(name: str, found: list[Valued], tick: int | None) -> dict[str, int | None]:
    """Percentiles and mean, and what the tick leaves open in them."""
    values = [value for value, _ in found]
    row = {f"{name}_p{percent}_ns": percentile(values, percent) for percent in (10, 50, 90)}
    if not values:
        return {
            **row,
            **dict.fromkeys(f"{name}_{x}_ns" for x in ("uncertainty", "mean", "mean_uncertainty")),
        }
    squares = sum(count**2 for count in Counter(launch for _, launch in found).values())
    of_mean = None if tick is None else root(tick, squares, len(values))
    return {
        **row,
        f"{name}_uncertainty_ns": tick,
        f"{name}_mean_ns": math.floor(Fraction(sum(values), len(values)) + Fraction(1, 2)),
        f"{name}_mean_uncertainty_ns": tick if len(set(values)) == 1 else of_mean,
    }


def root(tick: int, squares: int, n: int = 1) -> int:
    """The smallest whole number that is not below ``tick * sqrt(squares) / n``."""
    found = 0
    while (found * n) ** 2 < tick**2 * squares:
        found += 1
    return found


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
        begins = [(min(x.begin for x in found) - start[key], key[1:3]) for key, found in mine.items()]
        ends = [(max(x.begin + x.dur for x in found) - start[key], key[1:3]) for key, found in mine.items()]
        durations = [(end - begin, key) for (begin, key), (end, _) in zip(begins, ends, strict=True)]
        rows.append(
            {
                "op": name[0],
                "kind": name[1],
                **spread("begin", begins, run.tick_ns),
                **spread("end", ends, run.tick_ns),
                **spread("dur", durations, run.tick_ns),
                "blocks": len({(key[0], key[3]) for key in mine}),
                "blocks_total": run.blocks * len(run.ranks if rank is None else [rank]),
                "n": len(mine),
            }
        )
    return rows, ignored


def observed(run: FakeRun, kind: str | None, rank: int, step: int | None) -> float | None:
    """The share of one rank's blocks of launches that reported, times that of its spans that are sound."""
    mine = [
        x
        for x in run.all_launches
        if x.rank == rank and (kind is None or x.kind == kind) and (step is None or x.step == step)
    ]
    _, sound, odd = in_scope(run, kind, rank, step)
    if not mine or not run.blocks:
        return None
    reported = sum(min(x.blocks, run.blocks) for x in mine if x.stamped)
    share = Fraction(reported, len(mine) * run.blocks)
    return float(share * (Fraction(len(sound), len(sound) + odd) if sound or odd else 1))


def pieces(spans: list[Span]) -> int:
    """In how many pieces the true union of some spans may be: what touches may lie apart."""
    found, covered = 0, -1
    for begin, end in sorted((x.begin, x.begin + x.dur) for x in spans):
        found += begin >= covered
        covered = max(covered, end)
    return found


def union(spans: list[Span], wall: set[int]) -> set[int]:
    return wall & {time for x in spans for time in range(x.begin, x.begin + x.dur)}


def clipped(launch: Launch, spans: list[Span]) -> list[Span]:
    """The spans with what is outside of the launch cut off."""
    edges = [[min(max(t, launch.begin), launch.end) for t in (x.begin, x.begin + x.dur)] for x in spans]
    return [x._replace(begin=b, dur=e - b) for x, (b, e) in zip(spans, edges, strict=True)]


def block_busy(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, rank, step)
    rows = []
    for one in run.ranks if rank is None else [rank]:
        for block in range(run.blocks):
            row: dict[str, Any] = {"rank": one, "block": block, "launches": 0}
            sums: dict[str, int] = dict.fromkeys(("wall", "busy", "loading", "waiting", "rest", "idle"), 0)
            squares = dict(sums)
            for key, launch in launches.items():
                mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
                if key[0] != one or not (mine or launch.blocks >= run.blocks):
                    continue
                row["launches"] += 1
                for name, (length, differences) in times_of(run, launch, clipped(launch, mine)).items():
                    sums[name] += length
                    squares[name] += differences**2
            for name in sums:
                row[f"{name}_ns"] = sums[name]
                row[f"{name}_uncertainty_ns"] = run.tick_ns and root(run.tick_ns, squares[name])
            if row["launches"]:
                rows.append({**row, "observed": observed(run, kind, one, step)})
    return rows, ignored


def times_of(run: FakeRun, launch: Launch, spans: list[Span]) -> dict[str, tuple[int, int]]:
    """Each share of a block's time in a launch, and how many differences of stamps it is made of."""
    kinds = [op_kind(run, x.job)[1] for x in spans]
    busy = [x for x, kind in zip(spans, kinds, strict=True) if kind in BUSY]
    loads = [x for x, kind in zip(spans, kinds, strict=True) if kind in ("load", "prefetch")]
    waits = [x for x, kind in zip(spans, kinds, strict=True) if kind == "wait"]
    wall = set(range(launch.begin, launch.end))
    working, loading, waiting = (union(of, wall) for of in (busy, loads, waits))
    n_busy, n_loading, n_all = (pieces(of) for of in (busy, busy + loads, busy + loads + waits))
    return {
        "wall": (len(wall), 1),
        "busy": (len(working), n_busy),
        "loading": (len(loading - working), n_busy + n_loading if loads else 0),
        "waiting": (len(waiting - working - loading), n_loading + n_all if waits else 0),
        "rest": (len(wall - working - loading - waiting), n_all + 1),
        "idle": (len(wall - working), n_busy + 1),
    }


def aligned(run: FakeRun, rank: int, time_ns: int) -> int:
    """A time of a rank on the axis of the first rank: between two measurements the offset changes evenly."""
    told = run.alignment.get(rank)
    if told is None:
        return time_ns
    measured = list(zip(told["measured_at_ns"], told["offsets_ns"], strict=True))
    if time_ns <= measured[0][0]:
        return time_ns + int(measured[0][1])
    for (begin, first), (end, last) in zip(measured, measured[1:], strict=False):
        if time_ns < end:
            share = Fraction(time_ns - begin, end - begin)
            return time_ns + int(first) + (share * (last - first)).__floor__()
    return time_ns + int(measured[-1][1])


def clocks_apart(run: FakeRun, one: int, other: int) -> int:
    mine, theirs = (run.alignment.get(rank, {"clock": 0, "error_ns": 0}) for rank in (one, other))
    return 0 if mine["clock"] == theirs["clock"] else int(mine["error_ns"] + theirs["error_ns"])


def not_aligned(run: FakeRun) -> bool:
    told = [run.alignment.get(rank, {"clock": 0, "error_ns": 0}) for rank in run.ranks]
    return len({one["clock"] for one in told}) > 1 and any(one["error_ns"] is None for one in told)


def stops(run: FakeRun, kind: str | None, step: int | None) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, None, step)
    wait, send = 8, 7  # stop1_wait_ranks and the job it awaits, b_send
    sent: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for x in spans:
        if x.job == send:
            by_rank = sent[x.step, x.launch]
            by_rank[x.rank] = max(by_rank.get(x.rank, -1), run.base_ns(x.rank, x.step) + x.begin + x.dur)
    judged = [by_rank for by_rank in sent.values() if len(by_rank) == len(run.ranks)]
    if run.missing or len(run.ranks) < 2 or run.tick_ns is None or not_aligned(run):
        judged = []
    last, tied = Counter[int](), Counter[int]()
    for by_rank in judged:
        # Certainly earlier than another is who is a tick, and what their clocks may be apart, before it.
        late = [
            one
            for one, end in by_rank.items()
            if not any(
                aligned(run, other, later) - aligned(run, one, end)
                >= (run.tick_ns or 0) + clocks_apart(run, one, other)
                for other, later in by_rank.items()
            )
        ]
        (last if len(late) == 1 else tied).update(late)
    rows = []
    for one in run.ranks:
        waits = [(x.dur, (x.step, x.launch)) for x in spans if x.rank == one and x.job == wait]
        if waits:
            rows.append(
                {
                    "stop": "stop1",
                    "rank": one,
                    "n": len(waits),
                    **spread("wait", waits, run.tick_ns),
                    "last_n": len(judged),
                    "last_share": last[one] / len(judged) if judged else None,
                    "tied_share": tied[one] / len(judged) if judged else None,
                    "observed": observed(run, kind, one, step),
                }
            )
    return rows, ignored


def arrivals(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, Any]], int]:
    _, spans, ignored = in_scope(run, kind, None, step)
    ends: dict[tuple[int, int], dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for x in spans:
        if x.job == 7:  # b_send, which stop1_wait_ranks awaits
            blocks = ends[x.step, x.launch][x.rank]
            blocks[x.block] = max(blocks.get(x.block, -1), run.base_ns(x.rank, x.step) + x.begin + x.dur)
    others = len(run.ranks) > 1 and not run.missing and not not_aligned(run)
    rows = []
    for one in run.ranks if rank is None else [rank]:
        spreads, early, leads, last, tied = [], [], [], Counter[int](), 0
        for key, by_rank in sorted(ends.items()):
            if one not in by_rank:
                continue
            arrived = by_rank[one]
            latest = max(arrived.values())
            spreads.append((latest - min(arrived.values()), key))
            early += [(latest - end, key) for end in arrived.values()]
            late = [block for block, end in arrived.items() if latest - end < max(run.tick_ns or 0, 1)]
            last.update(late if len(late) == 1 else [])
            tied += len(late) > 1
            if others and len(by_rank) == len(run.ranks):
                of_ranks = {other: aligned(run, other, max(of.values())) for other, of in by_rank.items()}
                leads.append((max(of_ranks.values()) - of_ranks[one], key))
        if not spreads:
            continue
        lead = spread("lead", leads, run.tick_ns)
        apart = max(clocks_apart(run, one, other) for other in run.ranks) if others else 0
        for name in ("lead_uncertainty_ns", "lead_mean_uncertainty_ns"):
            lead[name] = None if lead[name] is None else lead[name] + apart
        often = sorted(last.items(), key=lambda entry: (-entry[1], entry[0]))[:3]
        told = run.tick_ns is not None
        rows.append(
            {
                "stop": "stop1",
                "rank": one,
                "n": len(spreads),
                "blocks": len(early),
                **spread("spread", spreads, run.tick_ns),
                **spread("early", early, run.tick_ns),
                "lead_n": len(leads),
                **lead,
                "last_blocks": [{"block": b, "share": n / len(spreads)} for b, n in often] if told else None,
                "cannot_tell_share": tied / len(spreads) if told else None,
                "observed": observed(run, kind, one, step),
            }
        )
    return rows, ignored


def ring_ahead(
    run: FakeRun, kind: str | None, rank: int | None, step: int | None
) -> tuple[list[dict[str, Any]], int]:
    launches, spans, ignored = in_scope(run, kind, rank, step)
    rows = []
    for job in (0, 4, 5):  # a_load, b_prefetch, b_load
        own = run.job_table.jobs[job].op
        found = []
        for key in launches:
            for block in range(run.blocks):
                mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
                loads = [x.begin for x in mine if x.job == job]
                computes = {
                    op: [x for x in mine if op_kind(run, x.job) == (op, "compute")] for op in RING_OPS
                }
                extents = {
                    op: (min(x.begin for x in of), max(x.begin + x.dur for x in of))
                    for op, of in computes.items()
                    if of
                }
                if loads and own in extents:
                    found.append((key[1:], min(loads), extents))
        if found:
            rows.append(load_row(run, job, own, found))
    return rows, ignored


RING_OPS = ("a", "b", "stop1")  # those that compute, in job-table order
Extents = dict[str, tuple[int, int]]


def load_row(
    run: FakeRun, job: int, own: str, found: list[tuple[tuple[int, int], int, Extents]]
) -> dict[str, Any]:
    tick = run.tick_ns
    ahead = [(extents[own][0] - load, key) for key, load, extents in found]
    ends = [
        (load, extents[own][0], [end for op, (_, end) in extents.items() if op != own])
        for _, load, extents in found
    ]
    between = [sum(load < end <= used for end in of) for load, used, of in ends]
    row = {
        "load": run.job_table.jobs[job].name,
        "op": own,
        "n": len(found),
        **spread("ahead", ahead, tick),
        "ops_between_p50": percentile(between, 50),
    }
    if tick is None:
        names = ("ops_between_low_p50", "ops_between_high_p50", "during_op", "during_share")
        return {**row, **dict.fromkeys((*names, "during_unclear_share"))}
    least = [sum(end - load >= tick and used - end >= tick for end in of) for load, used, of in ends]
    most = [sum(end - load > -tick and used - end > -tick for end in of) for load, used, of in ends]
    during = Counter(
        during_of({op: begin for op, (begin, _) in extents.items()}, load, tick) for _, load, extents in found
    )
    unclear = during.pop("unclear", 0)
    (op, first), (_, second) = [*during.most_common(2), ("", 0), ("", 0)][:2]
    told = first - second > unclear
    return {
        **row,
        "ops_between_low_p50": percentile(least, 50),
        "ops_between_high_p50": percentile(most, 50),
        "during_op": op if told and op != "none" else None,
        "during_share": first / len(found) if told else None,
        "during_unclear_share": unclear / len(found),
    }


def during_of(begins: dict[str, int], load: int, tick: int) -> str:
    """The op that began last before a load: ``none``, or ``unclear`` where moving times by less than a tick
    each way could make it another one.
    """
    possible = {op for op, begin in begins.items() if begin - load < tick}
    certain = {op for op, begin in begins.items() if load - begin >= tick}
    if not possible:
        return "none"
    for op in certain:
        if all(begins[op] - begins[other] >= tick for other in possible - {op}):
            return op
    return "unclear"
