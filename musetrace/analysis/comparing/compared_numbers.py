"""What is compared of two runs: a number for each step by name, and the rows of differences of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from musetrace.analysis.certainty.observed import Seen
from musetrace.analysis.comparing.busy_series import busy_series
from musetrace.analysis.comparing.difference import (
    CERTAIN_FIELDS,
    DIFFERENCE_FIELDS,
    Rule,
    by_step,
    difference,
)
from musetrace.analysis.comparing.idle_series import BUSY, IDLE, IdleSeries, idle_series
from musetrace.analysis.comparing.launch_series import GAP, HOST_LAUNCH, LAUNCH, STEP, launch_series
from musetrace.analysis.comparing.op_series import op_series
from musetrace.analysis.comparing.rank_difference import RANK_DIFFERENCE_FIELDS, rank_difference
from musetrace.analysis.comparing.skew_series import SkewSeries, skew_series
from musetrace.analysis.comparing.step_series import Name, RankSeries, Series, median
from musetrace.analysis.spans.run_like import RunLike

_WHATS = (STEP, LAUNCH, HOST_LAUNCH, BUSY, IDLE, GAP)

TIME_FIELDS = [("what", pa.string()), ("of", pa.string()), *DIFFERENCE_FIELDS, *CERTAIN_FIELDS]
OP_FIELDS = [
    *(("launch", pa.string()), ("op", pa.string()), ("kind", pa.string())),
    *RANK_DIFFERENCE_FIELDS,
    *CERTAIN_FIELDS,
]
ONLY_FIELDS = [
    ("run", pa.string()),
    ("launch", pa.string()),
    ("op", pa.string()),
    ("kind", pa.string()),
    ("time_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("launches", pa.uint32()),
    ("n", pa.uint64()),
]


@dataclass(frozen=True)
class Numbers:
    """What is compared of one run; ``observed`` is the share of it that was recorded."""

    times: RankSeries
    ops: RankSeries
    busy: RankSeries
    idle: IdleSeries
    skew: SkewSeries
    observed: float | None

    @classmethod
    def of(cls, run: RunLike, ranks: tuple[int, ...], layer_kind: str | None) -> Numbers:
        """All of a run; without spans, where all time would look idle, its times of steps and launches."""
        seen = Seen()
        times, ops = launch_series(run, ranks, layer_kind), op_series(run, ranks, layer_kind, seen)
        if not ops.names:
            return cls(times, RankSeries(), RankSeries(), IdleSeries(), SkewSeries(), None)
        busy, idle = busy_series(run, ranks, layer_kind), idle_series(run, ranks, layer_kind)
        return cls(times, ops, busy, idle, skew_series(run, ranks, layer_kind), seen.share)


def family(a: Numbers, b: Numbers) -> int:
    """How many rows of times and ops there are."""
    times = a.times.names.keys() & b.times.names.keys()
    unseen = {name for name in times if name[0] == HOST_LAUNCH and (LAUNCH, name[1]) in times}
    pairs = ((a.idle.times, b.idle.times), (a.ops.names, b.ops.names))
    return len(times - unseen) + sum(len(first.keys() & second.keys()) for first, second in pairs)


def time_rows(a: Numbers, b: Numbers, rule: Rule) -> list[dict[str, Any]]:
    """The step, then kind by kind; launches as the host sees them stand for those that no stamp tells of."""
    of_a, of_b = ({**of.times.names, **of.idle.times} for of in (a, b))
    rows = [
        {"what": name[0], "of": name[1], **difference(series, of_b[name], rule)}
        for name, series in of_a.items()
        if name in of_b
    ]
    by_device = {row["of"] for row in rows if row["what"] == LAUNCH}
    kept = [row for row in rows if row["what"] != HOST_LAUNCH or row["of"] not in by_device]
    kinds = list(dict.fromkeys(row["of"] for row in kept if row["what"] != STEP))
    return sorted(
        kept,
        key=lambda row: (kinds.index(row["of"]) if row["what"] != STEP else -1, _WHATS.index(row["what"])),
    )


def op_rows(a: RankSeries, b: RankSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Ops of both runs, told differences first; ``ranks`` as for ``rank_difference``."""
    return by_step(
        [
            {
                **dict(zip(("launch", "op", "kind"), name, strict=True)),
                **rank_difference(partial(a.of, name), partial(b.of, name), ranks, rule),
            }
            for name in a.names
            if name in b.names
        ]
    )


def only_rows(run: str, mine: Mapping[Name, Series], other: Mapping[Name, Series]) -> list[dict[str, Any]]:
    """Ops of one run that the other one does not have."""
    return [
        {
            "run": run,
            "launch": name[0],
            "op": name[1],
            "kind": name[2],
            "time_ns": median(series.step_ns),
            "uncertainty_ns": series.uncertainty_ns,
            "launches": series.launches,
            "n": series.count,
        }
        for name, series in mine.items()
        if name not in other
    ]
