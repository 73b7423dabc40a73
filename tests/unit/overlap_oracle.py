"""Overlap and utilisation once more, nanosecond by nanosecond; nothing shared with the analysis."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.unit.analysis_oracle import op_kind, pieces, root
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.idle_oracle import covers, instances

ENGINE = {
    "load": "loads",
    "prefetch": "loads",
    "compute": "compute",
    "send": "communication",
    "recv": "communication",
    "sync": "communication",
}
STATES: dict[str, set[str]] = {
    "loads": {"loads"},
    "compute": {"compute"},
    "communication": {"communication"},
    "loads_and_compute": {"loads", "compute"},
    "loads_and_communication": {"loads", "communication"},
    "compute_and_communication": {"compute", "communication"},
    "all_three": {"loads", "compute", "communication"},
}


def at_work(run: FakeRun, spans: list[Span], time: int) -> tuple[set[str], bool]:
    """The engines at work at a time, and whether any job is under way."""
    kinds = [op_kind(run, x.job)[1] for x in spans if covers(x, time)]
    return {ENGINE[kind] for kind in kinds if kind != "wait"}, bool(kinds)


def overlap(run: FakeRun, scope: dict[str, Any]) -> list[dict[str, Any]]:
    found = list(instances(run, scope))
    if not found:
        return []
    total, only, wall = Counter[str](), Counter[str](), 0
    stamps: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for (_, step, number, _), launch, spans in found:
        wall += launch.end - launch.begin
        for time in range(launch.begin, launch.end):
            engines, any_job = at_work(run, spans, time)
            for state, of in STATES.items():
                total[state] += of <= engines
                only[state] += of == engines
            for state, is_so in (("waiting_only", any_job and not engines), ("nothing", not any_job)):
                total[state] += is_so
                only[state] += is_so
        for state, number_of in differences(run, spans).items():
            stamps[state][step, number] += number_of
    of_wall = off(run, stamps["wall"])
    rows = []
    for state in (*STATES, "waiting_only", "nothing"):
        uncertainty = off(run, stamps[state])
        share_off = None
        if uncertainty is not None and of_wall is not None and wall > of_wall:
            share_off = (uncertainty + total[state] / wall * of_wall) / (wall - of_wall)
        rows.append(
            {
                "state": state,
                "n": len(found),
                "total_ns": total[state],
                "total_uncertainty_ns": uncertainty,
                "only_ns": only[state],
                "mean_ns": int(total[state] / len(found) + 0.5),
                "share": total[state] / wall if wall else None,
                "share_uncertainty": share_off,
                "only_share": only[state] / wall if wall else None,
            }
        )
    return rows


def differences(run: FakeRun, spans: list[Span]) -> dict[str, int]:
    """Differences of stamps that each state's time of one instance is made of."""

    def of(*engines: str) -> int:
        return pieces([x for x in spans if ENGINE.get(op_kind(run, x.job)[1], "wait") in engines])

    three = ("loads", "compute", "communication")
    found = {state: sum(of(engine) for engine in engines) for state, engines in STATES.items()}
    found["waiting_only"] = of(*three, "wait") + of(*three)
    return {**found, "nothing": of(*three, "wait") + 1, "wall": 1}


def off(run: FakeRun, stamps: Counter[tuple[int, int]]) -> int | None:
    return None if run.tick_ns is None else root(run.tick_ns, sum(n * n for n in stamps.values()))


def utilisation(run: FakeRun, scope: dict[str, Any], bins: int) -> list[dict[str, Any]]:
    found = list(instances(run, scope))
    if not found:
        return []
    width = bin_ns(run, scope, bins)
    sums = [Counter[str]() for _ in range(bins)]
    for _, launch, spans in found:
        for time in range(launch.begin, launch.end):
            place = (time - launch.begin) // width
            if place >= bins:
                continue
            engines, any_job = at_work(run, spans, time)
            sums[place].update(engines)
            sums[place]["block"] += 1
            sums[place]["waiting_only"] += any_job and not engines
            sums[place]["nothing"] += not any_job
    states = ("loads", "compute", "communication", "waiting_only", "nothing")
    return [
        {
            "begin_ns": place * width,
            "end_ns": (place + 1) * width,
            "block_ns": of["block"],
            **{f"{state}_ns": of[state] for state in states},
            **{f"{state}_share": of[state] / of["block"] if of["block"] else None for state in states},
        }
        for place, of in enumerate(sums)
    ]


def bin_ns(run: FakeRun, scope: dict[str, Any], bins: int) -> int:
    launches: list[Launch] = [
        x
        for x in run.all_launches
        if x.stamped
        and x.rank in run.ranks
        and scope["rank"] in (None, x.rank)
        and scope["step"] in (None, x.step)
        and scope["layer_kind"] in (None, x.kind)
    ]
    lengths = sorted(x.end - x.begin for x in launches)
    longest = next(
        length for length in lengths if 10 * sum(other <= length for other in lengths) >= 9 * len(lengths)
    )
    return max(1, -(-longest // bins))
