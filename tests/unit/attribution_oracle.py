"""Waits and their producers once more: every wait against every span, nothing shared with the analysis."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.unit.analysis_oracle import aligned, clocks_apart, in_scope, percentile, root
from tests.unit.fake_run import FakeRun, Span

Found = dict[str, Any]


def attribution(run: FakeRun, scope: dict[str, Any]) -> list[Found]:
    _, spans, _ = in_scope(run, scope["layer_kind"], None, scope["step"])
    jobs = run.job_table.jobs
    rows = []
    for wait, job in enumerate(jobs):
        waits = [x for x in spans if x.job == wait and scope["rank"] in (None, x.rank)]
        if job.kind == "wait" and waits:
            assert job.awaits is not None
            rows.append(row_of(run, job.awaits, waits, [x for x in spans if x.job == job.awaits]))
    all_ns = sum(row["total_ns"] for row in rows)
    return [{**row, "share": row["total_ns"] / all_ns if all_ns else None} for row in rows]


def times(run: FakeRun, span: Span) -> tuple[int, int]:
    base = run.base_ns(span.rank, span.step)
    begin, end = (aligned(run, span.rank, base + t) for t in (span.begin, span.begin + span.dur))
    return begin, end


def clock(run: FakeRun, rank: int) -> dict[str, Any]:
    return run.alignment.get(rank, {"clock": 0, "error_ns": 0})


def error(run: FakeRun, one: int, other: int) -> int | None:
    """What two ranks' times are off against each other; None: not aligned."""
    if clock(run, one)["clock"] == clock(run, other)["clock"]:
        return 0
    if None in (clock(run, one)["error_ns"], clock(run, other)["error_ns"]):
        return None
    return clocks_apart(run, one, other)


def row_of(run: FakeRun, producer: int, waits: list[Span], made: list[Span]) -> Found:
    jobs = run.job_table.jobs
    job, awaited = jobs[waits[0].job], jobs[producer]
    scopes = ["block", "rank", "ranks"]
    if job.scope is not None:
        scopes = [job.scope]
    elif awaited.kind in ("load", "prefetch"):
        scopes = ["block"]
    elif job.name == f"{job.op}_wait_ranks":
        scopes = ["ranks"]
    elif awaited.kind == "send":
        scopes = ["rank", "ranks"]
    iterates = job.iterations > 1 and awaited.iterations > 1
    found = {scope: [match(run, x, made, scope, iterates) for x in waits] for scope in scopes}
    lacking = {scope: sum(x["before"] + x["under_way"] for x in of) for scope, of in found.items()}
    scope = next(one for one in scopes if lacking[one] >= 0.75 * lacking[scopes[-1]])
    of = found[scope]
    matched = [x for x in of if x["end"] is not None]
    per_launch = Counter((x.step, x.launch) for x in waits)
    off = None if run.tick_ns is None else root(run.tick_ns, sum(k**2 for k in per_launch.values()))
    row = {
        "op": job.op,
        "wait": job.name,
        "producer_op": awaited.op,
        "awaits": awaited.name,
        "scope": scope,
        "n": len(waits),
        "total_ns": sum(x.dur for x in waits_aligned(run, waits)),
        "total_uncertainty_ns": off,
        "wait_p50_ns": percentile([x.dur for x in waits_aligned(run, waits)], 50),
        "wait_uncertainty_ns": run.tick_ns,
        "before_ns": sum(x["before"] for x in of),
        "after_ns": sum(x["after"] for x in of),
        "before_uncertainty_ns": None if off is None else off + sum(x["error"] for x in matched),
        "under_way_n": sum(x["is_under_way"] for x in of),
        "under_way_ns": sum(x["under_way"] for x in of),
        "unmatched_n": sum(x["end"] is None and not x["is_under_way"] for x in of),
        "unmatched_ns": sum(x["nothing"] for x in of),
        "last_n": len(matched),
        "cannot_tell_share": None,
        "last_blocks": None,
        "last_ranks": None,
    }
    if matched and run.tick_ns is not None and scope != "block" and not (scope == "ranks" and run.missing):
        certain = [x["who"] for x in matched if not x["tied"]]
        row["cannot_tell_share"] = (len(matched) - len(certain)) / len(matched)
        row["last_blocks"] = [
            {"rank": who[0], "block": who[1], "share": count / len(matched)}
            for who, count in sorted(Counter(certain).items(), key=lambda x: (-x[1], x[0]))[:3]
        ]
        if scope == "ranks":
            ranks = Counter(who[0] for who in certain)
            row["last_ranks"] = [
                {"rank": rank, "share": count / len(matched)}
                for rank, count in sorted(ranks.items(), key=lambda x: (-x[1], x[0]))[:3]
            ]
    return row


def waits_aligned(run: FakeRun, waits: list[Span]) -> list[Span]:
    """On the axis a wait may be longer by what the offset changes within it."""
    return [x._replace(dur=times(run, x)[1] - times(run, x)[0]) for x in waits]


def is_lost(run: FakeRun, wait: Span) -> bool:
    """Whether some rank has no stamps of the wait's launch."""
    seen = {x.rank for x in run.all_launches if (x.step, x.launch) == (wait.step, wait.launch) and x.stamped}
    return seen != set(run.ranks)


def match(run: FakeRun, wait: Span, made: list[Span], scope: str, iterates: bool) -> Found:
    """What one wait waited for."""
    begin, end = times(run, wait)
    dur = end - begin
    nothing = {"before": 0, "after": 0, "under_way": 0, "nothing": 0, "end": None, "is_under_way": False}
    candidates = [
        x
        for x in made
        if (x.step, x.launch) == (wait.step, wait.launch)
        and (not iterates or x.iteration == wait.iteration)
        and (scope == "ranks" or x.rank == wait.rank)
        and (scope != "block" or x.block == wait.block)
    ]
    known = [x for x in candidates if error(run, wait.rank, x.rank) is not None]
    off = {x.rank: error(run, wait.rank, x.rank) or 0 for x in known}
    ended = [x for x in known if times(run, x)[1] <= end + off[x.rank]]
    if not ended:
        if any(times(run, x)[0] <= end + off[x.rank] for x in known):
            return {**nothing, "under_way": dur, "is_under_way": True}
        return {**nothing, "nothing": dur}
    # Of equals the one whose clock's name is smallest: only its error matters, who it was is then not told.
    last = min(ended, key=lambda x: (-times(run, x)[1], clock(run, x.rank)["clock"]))
    until = times(run, last)[1]
    before = min(max(until - begin, 0), dur)

    def near(x: Span) -> bool:
        same = clock(run, x.rank)["clock"] == clock(run, last.rank)["clock"]
        apart = 0 if same else off[x.rank] + off[last.rank]
        return run.tick_ns is None or until - times(run, x)[1] < run.tick_ns + apart

    rivals = [x for x in ended if (x.rank, x.block) != (last.rank, last.block) and near(x)]
    # Of another clock only its latest end can be the last.
    latest: dict[int, int] = defaultdict(lambda: -1)
    for x in ended:
        name = clock(run, x.rank)["clock"]
        latest[name] = max(latest[name], times(run, x)[1])
    rivals = [
        x
        for x in rivals
        if clock(run, x.rank)["clock"] == clock(run, last.rank)["clock"]
        or times(run, x)[1] == latest[clock(run, x.rank)["clock"]]
    ]
    return {
        **nothing,
        "before": before,
        "after": dur - before,
        "end": until,
        "who": (last.rank, last.block),
        "tied": bool(rivals) or len(known) < len(candidates) or (scope == "ranks" and is_lost(run, wait)),
        "error": off[last.rank],
    }
