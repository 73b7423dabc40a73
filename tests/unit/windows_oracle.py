"""Windows of a timeline once more: every ns of every span on its own, nothing shared with the analysis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from tests.unit.analysis_oracle import aligned
from tests.unit.analysis_traces import runs
from tests.unit.fake_run import FakeRun

STRIP = {"load": 0, "prefetch": 0, "compute": 1, "send": 2, "recv": 2, "sync": 2, "wait": 3}
FIRST_SHOWN = ((1, 2), (0,), (3,))  # strips, in a row of one


@dataclass
class TimelineRun(FakeRun):
    """Serves spans in the store's order, and steps that end with their last span."""

    def steps(self, rank: int) -> pa.Table:
        table = super().steps(rank)
        ends = [
            max(end, *(base + x.begin + x.dur for x in self.of_step(rank, step)), base)
            for step, base, end in zip(
                *(table[n].to_pylist() for n in ("step", "base_ns", "end_ns")), strict=True
            )
        ]
        at = table.schema.get_field_index("end_ns")
        return table.set_column(at, "end_ns", pa.array(ends, type=pa.uint64()))

    def of_step(self, rank: int, step: int) -> list[Any]:
        mine = [x for x in self.all_spans if (x.rank, x.step) == (rank, step)]
        return sorted(mine, key=lambda x: (x.block, x.begin))

    def spans(self, rank: int, step: int) -> pa.RecordBatch:
        kinds = {"begin": pa.uint32(), "dur": pa.uint32(), "job": pa.uint16(), "launch": pa.uint16()}
        kinds |= {"block": pa.uint16(), "flag": pa.uint8(), "warp": pa.uint8(), "iteration": pa.uint16()}
        kinds |= {"sm": pa.uint16()}
        rows = [{**x._asdict(), "sm": sm_of(x)} for x in self.of_step(rank, step)]
        return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def sm_of(span: Any) -> int:
    """Two blocks of a launch share an SM, and the launches differ."""
    return int((span.block + span.launch) // 2)


class Shown(NamedTuple):
    rank: int
    step: int
    id: int
    row: int
    begin: int
    dur: int
    job: int
    warp: int
    flag: int
    iteration: int
    block: int


@st.composite
def timelines(draw: st.DrawFn) -> TimelineRun:
    """Small runs as the analysis has them."""
    of = draw(runs())
    return TimelineRun(
        of.all_launches,
        of.all_spans,
        of.blocks,
        of.ranks,
        of.missing,
        tick_ns=of.tick_ns,
        alignment=of.alignment,
    )


def origin(run: TimelineRun) -> int:
    bases = [aligned(run, rank, run.base_ns(rank, step)) for rank in run.ranks for step in run.step_ids(rank)]
    return min(bases, default=0)


def shown(
    run: TimelineRun, kind: str, ranks: Sequence[int], numbers: Sequence[int], block: int = 0
) -> list[Shown]:
    """All spans that have a row."""
    found = []
    for rank, step in [(one, step) for one in ranks for step in run.step_ids(one)]:
        for place, x in enumerate(run.of_step(rank, step)):
            if kind == "warps" and x.block != block:
                continue
            number = {"blocks": x.block, "sms": sm_of(x), "warps": x.warp}[kind]
            if number not in numbers:
                continue
            row = list(ranks).index(rank) * len(numbers) + list(numbers).index(number)
            begin = aligned(run, rank, run.base_ns(rank, step) + x.begin) - origin(run)
            iteration = x.iteration if run.job_table.has_instances else 0
            found.append(
                Shown(rank, step, place, row, begin, x.dur, x.job, x.warp, x.flag, iteration, x.block)
            )
    return found


def inside(x: Shown, window: tuple[int, int, int, int]) -> bool:
    from_ns, to_ns, row_from, row_to = window
    if not row_from <= x.row < row_to:
        return False
    moments = range(x.begin, x.begin + x.dur) if x.dur else [x.begin]
    return any(from_ns <= moment < to_ns for moment in moments)


def strip_of(run: TimelineRun, job: int) -> int:
    return STRIP[run.job_table.kind_name(job)]


def op_of(run: TimelineRun, job: int) -> int:
    """Ops in the order of the job table, unknown jobs behind them."""
    ops = list(dict.fromkeys(one.op for one in run.job_table.jobs))
    return ops.index(run.job_table.jobs[job].op) if job < len(run.job_table.jobs) else len(ops)


def cells(window: tuple[int, int, int, int], groups: int, bins: int) -> Iterator[tuple[range, range]]:
    """The rows and moments of each cell, by group and bin."""
    from_ns, to_ns, row_from, row_to = window
    for g in range(groups):
        rows = range(*(row_from + at * (row_to - row_from) // groups for at in (g, g + 1)))
        for b in range(bins):
            yield rows, range(*(from_ns + at * (to_ns - from_ns) // bins for at in (b, b + 1)))


def raster(
    run: TimelineRun,
    spans: Sequence[Shown],
    window: tuple[int, int, int, int],
    groups: int,
    bins: int,
    strips: int,
) -> list[list[tuple[int, int, int]]]:
    """By cell (in the order of :func:`cells`) and strip: op, share and strip."""
    found = []
    sound = [x for x in spans if x.flag == 0]
    for rows, moments in cells(window, groups, bins):
        mine = [x for x in sound if inside(x, (moments.start, moments.stop, rows.start, rows.stop))]
        classes = FIRST_SHOWN if strips == 1 else tuple((strip,) for strip in range(4))
        told = [cell(run, [x for x in mine if strip_of(run, x.job) in of], rows, moments) for of in classes]
        found.append([next((one for one in told if one[0] != 255), told[-1])] if strips == 1 else told)
    return found


def cell(run: TimelineRun, mine: Sequence[Shown], rows: range, moments: range) -> tuple[int, int, int]:
    if not mine:
        return 255, 0, 255
    time: dict[tuple[int, int], int] = defaultdict(int)  # of an op and strip
    covered = set()
    for x in mine:
        within = range(max(x.begin, moments.start), min(x.begin + x.dur, moments.stop))
        time[strip_of(run, x.job), op_of(run, x.job)] += len(within)
        covered |= {(x.row, moment) for moment in within}
    strip, op = min(time, key=lambda one: (-time[one], one))
    share = -(-255 * len(covered) // (len(rows) * len(moments)))
    return op, max(share, 1), strip


def edges(longest: int) -> list[int]:
    """0 and whole parts of powers of the root of 2, so that the longest lies in the last bin."""
    found = [0, 1]
    power = 2
    while found[-1] <= longest:
        if isqrt(2**power) > found[-1]:
            found.append(isqrt(2**power))
        power += 1
    return found
