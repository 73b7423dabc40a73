"""Idle time by cause once more, nanosecond by nanosecond: loops, dicts, nothing shared with the analysis."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from tests.unit.analysis_oracle import BUSY, clipped, in_scope, op_kind, percentile, pieces, root
from tests.unit.fake_run import FakeRun, Launch, Span

NEVER = 10**9
OTHERS = ("head", "tail", "load_only", "unlabelled", "short")
Key = tuple[int, int, int, int]  # rank, step, launch, block


def instances(run: FakeRun, scope: dict[str, Any]) -> Iterator[tuple[Key, Launch, list[Span]]]:
    """Each block of a launch that counts, with its spans cut off at the launch."""
    launches, spans, _ = in_scope(run, scope["layer_kind"], scope["rank"], scope["step"])
    for key, launch in launches.items():
        for block in range(run.blocks):
            mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
            if mine or launch.blocks >= run.blocks:
                yield (*key, block), launch, clipped(launch, mine)


def covers(span: Span, time: int) -> bool:
    return span.begin <= time < span.begin + span.dur


def causes(run: FakeRun, launch: Launch, spans: list[Span]) -> dict[int, tuple[int | str, bool]]:
    """The cause of each idle nanosecond, and whether waits of several jobs cover it."""
    of_kind: dict[str, list[Span]] = defaultdict(list)
    for x in spans:
        kind = op_kind(run, x.job)[1]
        of_kind["busy" if kind in BUSY else "load" if kind in ("load", "prefetch") else kind].append(x)
    found: dict[int, tuple[int | str, bool]] = {}
    for time in range(launch.begin, launch.end):
        if any(covers(x, time) for x in of_kind["busy"]):
            continue
        waits = [x for x in of_kind["wait"] if covers(x, time)]
        if waits:
            first = min(waits, key=lambda x: urgency(run, x, of_kind["busy"]))
            found[time] = first.job, len({x.job for x in waits}) > 1
        elif spans and time < min(x.begin for x in spans):
            found[time] = "head", False
        elif spans and time >= max(x.begin + x.dur for x in spans):
            found[time] = "tail", False
        else:
            found[time] = (
                "load_only" if any(covers(x, time) for x in of_kind["load"]) else "unlabelled",
                False,
            )
    return found


def urgency(run: FakeRun, wait: Span, busy: list[Span]) -> tuple[int, int, int]:
    end = wait.begin + wait.dur
    begins = [x.begin for x in busy if x.warp == wait.warp and x.begin >= end]
    awaits = run.job_table.jobs[wait.job].awaits
    second_hand = awaits is not None and run.job_table.jobs[awaits].kind == "wait"
    return NEVER if second_hand else min(begins, default=NEVER), end, wait.job


def told(cause: int | str, times: list[int], gap: int, shortest_ns: int, head_ns: int) -> int | str:
    """The cause of a piece of idle time under two thresholds; ``gap`` is that in which it lies."""
    if gap < shortest_ns:
        return "short"
    return "unlabelled" if cause == "head" and len(times) < head_ns else cause


def gap_of(time: int, idle: Collection[int]) -> int:
    """How many idle nanoseconds there are in a row around one of them."""
    first, last = time, time
    while first - 1 in idle:
        first -= 1
    while last + 1 in idle:
        last += 1
    return last - first + 1


def idle(run: FakeRun, scope: dict[str, Any], shortest_ns: int = 0, head_ns: int = 0) -> list[dict[str, Any]]:
    n = wall = 0
    per_instance: dict[int | str, list[int]] = defaultdict(list)
    in_launch: dict[int | str, Counter[tuple[int, int]]] = defaultdict(Counter)
    most: Counter[int | str] = Counter()
    contested: Counter[int | str] = Counter()
    for key, launch, spans in instances(run, scope):
        n, wall = n + 1, wall + launch.end - launch.begin
        found = causes(run, launch, spans)
        instants = {x.begin for x in spans if op_kind(run, x.job)[1] in BUSY}
        mine: dict[int | str, list[list[int]]] = defaultdict(list)
        for at in sorted(found):
            cause = found[at][0]
            if at - 1 in found and found[at - 1][0] == cause and at not in instants:
                mine[cause][-1].append(at)
            else:
                mine[cause].append([at])
        by_cause: dict[int | str, list[list[int]]] = defaultdict(list)
        for cause, of in mine.items():
            for times in of:
                by_cause[told(cause, times, gap_of(times[0], found), shortest_ns, head_ns)].append(times)
        for cause, of in by_cause.items():
            per_instance[cause].append(sum(map(len, of)))
            in_launch[cause][key[1:3]] += len(of)
            most[cause] = max(most[cause], len(of))
            contested[cause] += sum(found[time][1] for times in of for time in times if cause != "short")
    of_idle = sum((of for of in in_launch.values()), Counter[tuple[int, int]]())
    idle_ns = sum(map(sum, per_instance.values()))
    rows = []
    for cause in sorted(
        per_instance, key=lambda of: (isinstance(of, str), of if isinstance(of, int) else OTHERS.index(of))
    ):
        some = per_instance[cause]
        total, squares = sum(some), sum(k**2 for k in in_launch[cause].values())
        off = None if run.tick_ns is None else root(run.tick_ns, squares)
        whole_off = None if run.tick_ns is None else root(run.tick_ns, sum(k**2 for k in of_idle.values()))
        moved = None
        if off is not None and whole_off is not None and idle_ns > whole_off:
            moved = (off + total / idle_ns * whole_off) / (idle_ns - whole_off)
        rows.append(
            {
                **names(run, cause),
                "n": n,
                "with_n": len(some),
                "pieces": sum(in_launch[cause].values()),
                "total_ns": total,
                "total_uncertainty_ns": off,
                "contested_ns": contested[cause],
                "idle_p50_ns": percentile(some + [0] * (n - len(some)), 50),
                "idle_p50_uncertainty_ns": run.tick_ns and run.tick_ns * most[cause],
                "idle_mean_ns": (2 * total + n) // (2 * n),
                "idle_mean_uncertainty_ns": None if off is None else -(-off // n),
                "share": total / idle_ns,
                "share_uncertainty": moved,
                "share_of_time": total / wall,
            }
        )
    return rows


def names(run: FakeRun, cause: int | str) -> dict[str, str | None]:
    if isinstance(cause, str):
        return {"cause": cause, "op": None, "wait": None, "awaits": None}
    job = run.job_table.jobs[cause]
    awaits = None if job.awaits is None else run.job_table.jobs[job.awaits].name
    kind = "stop" if job.name == f"{job.op}_wait_ranks" else "wait"
    return {"cause": kind, "op": job.op, "wait": job.name, "awaits": awaits}


def idle_after(run: FakeRun, scope: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By op: what does not depend on how differences of stamps are counted, and that count at least."""
    everything = list(instances(run, scope))
    wall = sum(launch.end - launch.begin for _, launch, _ in everything)
    idle_ns = 0
    after: dict[str, list[int]] = defaultdict(list)
    idle_of: dict[str, list[int]] = defaultdict(list)
    counts: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for key, launch, spans in everything:
        busy = [x for x in spans if op_kind(run, x.job)[1] in BUSY]
        working = {time for x in busy for time in range(x.begin, x.begin + x.dur)}
        idle_ns += len(set(range(launch.begin, launch.end)) - working)
        for op in {op_kind(run, x.job)[0] for x in busy}:
            end = max(x.begin + x.dur for x in busy if op_kind(run, x.job)[0] == op)
            after[op].append(launch.end - end)
            idle_of[op].append(len(set(range(end, launch.end)) - working))
            counts[op][key[1:3]] += pieces([x for x in busy if x.begin >= end]) + 1
    return {
        op: {
            "n": len(after[op]),
            "without_n": len(everything) - len(after[op]),
            "after_p50_ns": percentile(after[op], 50),
            "idle_p50_ns": percentile(idle_of[op], 50),
            "total_ns": sum(idle_of[op]),
            "share": sum(idle_of[op]) / idle_ns if idle_ns else None,
            "share_of_time": sum(after[op]) / wall if wall else None,
        }
        for op in after
    }
