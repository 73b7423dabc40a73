"""The roofline once more, every nanosecond of every part; nothing shared with the analysis."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from musetrace.job_bytes import LaunchBytes, RunBytes
from tests.unit.analysis_oracle import clipped, in_scope, percentile, pieces, union
from tests.unit.fake_run import FakeRun, Launch, Span

READING = ("load", "prefetch", "compute")
Row = dict[str, Any]


def roofline(
    run: FakeRun, scope: dict[str, Any], moved: RunBytes, ceiling: tuple[float, ...] | None
) -> list[Row]:
    launches, spans, _ = in_scope(run, scope["layer_kind"], scope["rank"], scope["step"])
    found: dict[str, list[Row]] = defaultdict(list)
    names: dict[str, Row] = {}
    for key, launch in launches.items():
        told = moved.of(launch.kind, launch.layer)
        if told is None or launch.blocks < run.blocks:
            continue
        mine = clipped(launch, [x for x in spans if (x.rank, x.step, x.launch) == key])
        for name, times in parts(run, launch, mine, told):
            found[repr(name)].append(times)
            names[repr(name)] = name
    return [row(names[key], times, run.tick_ns, ceiling) for key, times in found.items()]


def parts(run: FakeRun, launch: Launch, spans: list[Span], told: LaunchBytes) -> list[tuple[Row, Row]]:
    jobs = run.job_table.jobs
    named = [job.name for job in jobs if job.name in {*told.jobs, *told.unknown}]
    kind_of = {job.name: job.kind for job in jobs}
    op_of = {job.name: job.op for job in jobs}
    reads = [name for name in named if kind_of[name] in READING]
    wall = launch.end - launch.begin
    rows = []

    def of_jobs(part: str, name: str, op: str, way: str, those: list[str]) -> None:
        of = [x for x in spans if x.job < len(jobs) and jobs[x.job].name in those]
        if of:
            rows.append((label(part, name, op, way, those, told, True), measured(launch, of)))

    for name in named:
        of_jobs("job", name, op_of[name], "reads" if name in reads else "sends", [name])
    for op in {op_of[name] for name in reads}:
        of_jobs("op", op, op, "reads", [name for name in reads if op_of[name] == op])
    if reads:
        rows.append((label("launch", launch.kind, None, "reads", reads, told, False), whole(launch, wall)))
    begin, ops = 0, list(dict.fromkeys(job.op for job in jobs))
    stops = [job.op for job in jobs if job.name == f"{job.op}_wait_ranks"]
    seen = [stop for stop in stops if any(x.job < len(jobs) and jobs[x.job].op == stop for x in spans)]
    if not seen:
        return rows
    for stop in (*seen, "end"):
        past = len(ops) if stop == "end" else ops.index(stop) + 1
        ends = [x.begin + x.dur for x in spans if x.job < len(jobs) and jobs[x.job].op == stop]
        end = wall if stop == "end" else max([*ends, begin + launch.begin]) - launch.begin
        those = [name for name in reads if op_of[name] in ops[:past]]
        if those:
            named_phase = label("phase", stop, None, "reads", those, told, False)
            rows.append((named_phase, whole(launch, end - begin)))
        begin, ops = end, [op for op in ops if op not in ops[:past]]
    return rows


def label(
    part: str, name: str, op: str | None, way: str, jobs: list[str], told: LaunchBytes, late: bool
) -> Row:
    known = [told.jobs[one] for one in jobs if one in told.jobs]
    lost = [one for one in jobs if one not in told.jobs]
    reasons = [told.unknown[one] for one in lost] or [one.basis for one in known if one.basis]
    return {
        "part": part,
        "kind": told.kind,
        "name": name,
        "op": op,
        "way": way,
        "bytes": None if lost else sum(one.expected for one in known),
        "bytes_low": sum(one.low for one in known),
        "bytes_high": None if lost else sum(one.high for one in known),
        "bytes_late": sum(one.late for one in known) if late else 0,
        "bytes_basis": "; ".join(dict.fromkeys(reasons)),
        "unknown_jobs": lost,
    }


def measured(launch: Launch, spans: list[Span]) -> Row:
    wall = set(range(launch.begin, launch.end))
    of_blocks = [[x for x in spans if x.block == block] for block in {x.block for x in spans}]
    return {
        "layer": launch.layer,
        "elapsed": max(x.begin + x.dur for x in spans) - min(x.begin for x in spans),
        "covered": len(union(spans, wall)),
        "pieces": pieces(spans),
        "block_sum": sum(len(union(of, wall)) for of in of_blocks),
        "blocks": len(of_blocks),
    }


def whole(launch: Launch, length: int) -> Row:
    found: Row = {"layer": launch.layer, "elapsed": length, "covered": length, "pieces": 1}
    return {**found, "block_sum": None, "blocks": launch.blocks}


def row(name: Row, times: list[Row], tick: int | None, ceiling: tuple[float, ...] | None) -> Row:
    covered = [one["covered"] for one in times]
    middle = percentile(covered, 50)
    assert middle is not None
    off = None if tick is None else tick * max(one["pieces"] for one in times)
    sums = [one["block_sum"] for one in times if one["block_sum"] is not None]
    rate = ratio(name["bytes"], middle)
    low = (
        None
        if off is None or not name["bytes_low"]
        else ratio(max(name["bytes_low"] - name["bytes_late"], 0), middle + off)
    )
    high = None if off is None or middle <= off else ratio(name["bytes_high"], middle - off)
    told = ceiling if ceiling is not None and name["way"] == "reads" else (None, None, None)
    return {
        **name,
        "layers": sorted({one["layer"] for one in times}),
        "n": len(times),
        "blocks": max(one["blocks"] for one in times),
        "elapsed_p50_ns": percentile([one["elapsed"] for one in times], 50),
        **{f"covered_p{percent}_ns": percentile(covered, percent) for percent in (10, 50, 90)},
        "covered_uncertainty_ns": off,
        "block_sum_p50_ns": percentile(sums, 50),
        "bandwidth_gb_s": rate,
        "bandwidth_low_gb_s": low,
        "bandwidth_high_gb_s": high,
        "ceiling_gb_s": told[0],
        "ceiling_share": ratio(rate, told[0]),
        "ceiling_share_low": ratio(low, told[2]),
        "ceiling_share_high": ratio(high, told[1]),
    }


def ratio(part: float | None, of: float | None) -> float | None:
    return part / of if part is not None and of else None
