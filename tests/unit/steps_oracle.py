"""Launches and steps once more in slow plain Python: loops, dicts, sets of nanoseconds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

from tests.unit.analysis_oracle import BUSY, clipped, in_scope, op_kind, percentile, pieces, root, spread
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.idle_oracle import causes

Name = tuple[str, str]


def launches(run: FakeRun, kind: str | None, rank: int | None, step: int | None) -> list[dict[str, Any]]:
    stamped, spans, _ = in_scope(run, None, rank, step)
    of_launch: dict[tuple[int, int, int], list[Span]] = defaultdict(list)
    for x in spans:
        of_launch[x.rank, x.step, x.launch].append(x)
    rows: dict[tuple[str, str | None], dict[str, list[Any]]] = {}
    for key in sorted(of_launch):
        launch = stamped[key]
        if kind not in (None, launch.kind):
            continue
        following = (key[0], key[1], key[2] + 1)
        then = stamped.get(following) if following in of_launch else None
        row = rows.setdefault((launch.kind, then.kind if then else None), defaultdict(list))
        row["all_in"].append((last_in(of_launch[key]) - launch.begin, key[1:]))
        row["first_out"].append((first_out(of_launch[key]) - launch.begin, key[1:]))
        if then:
            row["next_in"].append((then.begin - launch.begin, key[1:]))
            row["next_all_in"].append((last_in(of_launch[following]) - launch.begin, key[1:]))
            row["lead"].append((first_out(of_launch[key]) - then.begin, key[1:]))
            row["overlaps"].append(launch.end - then.begin >= (run.tick_ns or 0) > 0)
            work = [x.begin for x in of_launch[following] if op_kind(run, x.job)[1] == "compute"]
            if work:
                row["next_work"].append((min(work) - launch.begin, key[1:]))
    return [
        {
            "kind": name[0],
            "next_kind": name[1],
            "n": len(row["all_in"]),
            **spread("all_in", row["all_in"], run.tick_ns),
            **spread("first_out", row["first_out"], run.tick_ns),
            "next_n": len(row["next_in"]),
            **spread("next_in", row["next_in"], run.tick_ns),
            **spread("next_all_in", row["next_all_in"], run.tick_ns),
            **spread("lead", row["lead"], run.tick_ns),
            "work_n": len(row["next_work"]),
            **spread("next_work", row["next_work"], run.tick_ns),
            "overlap_n": None if run.tick_ns is None else sum(row["overlaps"]),
            "observed": share_of_kind(run, name[0], rank, step),
        }
        for name, row in rows.items()
    ]


def share_of_kind(run: FakeRun, kind: str, rank: int | None, step: int | None) -> float:
    """The share of blocks of a kind's launches that reported; a missing rank has those of another."""
    by_rank = [
        [x for x in run.all_launches if (x.rank, x.kind) == (one, kind) and step in (None, x.step)]
        for one in (run.ranks if rank is None else [rank])
    ]
    there = sum(min(x.blocks, run.blocks) for of in by_rank for x in of if x.stamped)
    expected = sum(map(len, by_rank))
    if rank is None:
        expected += len(run.missing) * max(map(len, by_rank))
    return there / (expected * run.blocks)


def by_block(spans: list[Span]) -> list[list[Span]]:
    return [[x for x in spans if x.block == block] for block in {x.block for x in spans}]


def last_in(spans: list[Span]) -> int:
    return max(min(x.begin for x in of) for of in by_block(spans))


def first_out(spans: list[Span]) -> int:
    return min(max(x.begin + x.dur for x in of) for of in by_block(spans))


def part(kind: str) -> str:
    if kind in ("embed", "entry", "sliding", "global", "head"):
        return "verify"
    if kind == "keep_kv":
        return "accept"
    named = [name for name in ("draft", "verify", "accept") if (kind + "_").startswith(name + "_")]
    return named[0] if named else kind


def step_parts(run: FakeRun, rank: int | None, step: int | None) -> list[dict[str, Any]]:
    found: dict[str, list[tuple[int, int, int]]] = {"step": []}
    for one in run.ranks if rank is None else [rank]:
        for number in run.step_ids(one):
            if step not in (None, number):
                continue
            mine = sorted(
                (x for x in run.all_launches if (x.rank, x.step) == (one, number)), key=lambda x: x.launch
            )
            for name in ("step", *dict.fromkeys(part(x.kind) for x in mine)):
                of = [x for x in mine if name in ("step", part(x.kind))]
                stamped = [x for x in of if x.stamped]
                if stamped:
                    length = max(x.end for x in stamped) - min(x.begin for x in stamped)
                    found.setdefault(name, []).append((number, len(of), length))
    whole = sum(length for _, _, length in found["step"])
    return [
        {
            "part": name,
            "n": len(of),
            **{f"launches_p{p}": percentile([count for _, count, _ in of], p) for p in (10, 50, 90)},
            **spread("part", [(length, (number, 0)) for number, _, length in of], run.tick_ns),
            "share": sum(length for _, _, length in of) / whole if whole else None,
        }
        for name, of in found.items()
        if of
    ]


def step_lengths(run: FakeRun, rank: int | None) -> dict[int, dict[int, int]]:
    """By step and rank, of stamped steps."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for one in run.ranks if rank is None else [rank]:
        for number in run.step_ids(one):
            ends = [x.end for x in run.all_launches if (x.rank, x.step) == (one, number) and x.stamped]
            found[number][one] = max(ends, default=0)
    return found


def outliers(run: FakeRun, rank: int | None, threshold: float) -> list[dict[str, Any]]:
    lengths = step_lengths(run, rank)
    longest = {step: max(of.values()) for step, of in lengths.items()}
    if len(longest) < 6 or run.tick_ns is None:
        return []
    median = percentile(list(longest.values()), 50) or 0
    scale = 1.4826 * (percentile([abs(length - median) for length in longest.values()], 50) or 0)
    rows = []
    for step, length in sorted(longest.items()):
        if length - median > threshold * scale and length - median >= 2 * run.tick_ns:
            seen = set(run.ranks if rank is None else [rank]) == set(lengths[step])
            near = [one for one, of in lengths[step].items() if length - of < 2 * run.tick_ns]
            rows.append(
                {
                    "step": step,
                    "rank": near[0] if seen and len(near) == 1 else None,
                    "step_ns": length,
                    "step_uncertainty_ns": run.tick_ns,
                    "median_ns": median,
                    "growth_ns": length - median,
                    "growth_uncertainty_ns": 2 * run.tick_ns,
                    "deviation_ns": scale,
                }
            )
    return in_places(rows, [run.tick_ns] * len(rows))


def in_places(rows: list[dict[str, Any]], off: list[int]) -> list[dict[str, Any]]:
    """The largest growth first; what its own and the largest's error hold together stands as it stood."""
    left, found = list(zip(rows, off, strict=True)), []
    while left:
        largest, error = max(left, key=lambda one: one[0]["growth_ns"])
        near = [largest["growth_ns"] - row["growth_ns"] < error + its for row, its in left]
        found += [row for (row, _), is_near in zip(left, near, strict=True) if is_near]
        left = [one for one, is_near in zip(left, near, strict=True) if not is_near]
    return found


def parts_of_step(run: FakeRun, step: int) -> dict[Name, tuple[Fraction, int]]:
    """Mean over ranks x blocks of each part of a step, and what the clock leaves open in it."""
    launches, spans, _ = in_scope(run, None, None, step)
    sums: Counter[Name] = Counter()
    differences: dict[Name, Counter[int]] = defaultdict(Counter)
    ranks = {key[0] for key in launches}
    for key, launch in launches.items():
        after = launches.get((key[0], key[1], key[2] + 1))
        if after:
            sums["gap", launch.kind] += run.blocks * (after.begin - launch.end)
            differences["gap", launch.kind][key[2]] += run.blocks
        for block in range(run.blocks):
            mine = [x for x in spans if (x.rank, x.step, x.launch, x.block) == (*key, block)]
            within = clipped(launch, mine)
            for op in {op_kind(run, x.job)[0] for x in mine if op_kind(run, x.job)[1] in BUSY}:
                of = [x for x in within if op_kind(run, x.job)[0] == op and op_kind(run, x.job)[1] in BUSY]
                sums["busy", op] += len({t for x in of for t in range(x.begin, x.begin + x.dur)})
                differences["busy", op][key[2]] += pieces(of)
            if mine or launch.blocks >= run.blocks:
                _add_idle(run, launch, mine, sums, differences)
    size = len(ranks) * run.blocks
    return {
        name: (
            Fraction(sums[name], size),
            -(-root(run.tick_ns or 0, sum(k**2 for k in differences[name].values())) // size),
        )
        for name in differences
    }


def _add_idle(
    run: FakeRun,
    launch: Launch,
    mine: list[Span],
    sums: Counter[Name],
    differences: dict[Name, Counter[int]],
) -> None:
    mine = clipped(launch, mine)
    found = causes(run, launch, mine)
    instants = {x.begin for x in mine if op_kind(run, x.job)[1] in BUSY}
    for cause in {cause for cause, _ in found.values()}:
        times = {time for time, (of, _) in found.items() if of == cause}
        name = ("idle", cause if isinstance(cause, str) else run.job_table.jobs[cause].name)
        sums[name] += len(times)
        differences[name][launch.launch] += sum(t - 1 not in times or t in instants for t in times)


def growth(run: FakeRun, threshold: float, most: int) -> list[dict[str, Any]]:
    found = outliers(run, None, threshold)
    lengths = {step: max(of.values()) for step, of in step_lengths(run, None).items()}
    median = percentile(list(lengths.values()), 50) or 0
    others = [step for step in sorted(lengths) if step not in [row["step"] for row in found]]
    nearest = sorted(others, key=lambda step: abs(lengths[step] - median))[:5]
    typical = [parts_of_step(run, step) for step in nearest]
    rows: list[dict[str, Any]] = []
    for outlier in found[:most]:
        mine = parts_of_step(run, outlier["step"])
        of_step = []
        for name in sorted({name for one in (mine, *typical) for name in one}):
            value, off = mine.get(name, (Fraction(0), 0))
            usual = [rounded(one.get(name, (Fraction(0), 0))[0]) for one in typical]
            off += max(one.get(name, (Fraction(0), 0))[1] for one in typical)
            grown = rounded(value) - (percentile(usual, 50) or 0)
            if grown >= max(off, 1) and rounded(value) > max(usual):
                of_step.append(
                    {
                        "step": outlier["step"],
                        "what": name[0],
                        "of": name[1],
                        "in_step_ns": rounded(value),
                        "typical_ns": percentile(usual, 50),
                        "typical_most_ns": max(usual),
                        "growth_ns": grown,
                        "growth_uncertainty_ns": off,
                        "share": grown / outlier["growth_ns"],
                    }
                )
        rows += in_places(of_step, [row["growth_uncertainty_ns"] for row in of_step])
    return rows


def rounded(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))
