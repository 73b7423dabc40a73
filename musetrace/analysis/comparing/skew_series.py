"""How far apart ranks arrive at stops: a number for each step of a run, and who is last how often."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns
from musetrace.analysis.certainty.rank_clocks import alignment_error_ns
from musetrace.analysis.comparing.difference import Rule, by_step
from musetrace.analysis.comparing.rank_difference import RANK_DIFFERENCE_FIELDS, rank_difference
from musetrace.analysis.comparing.step_series import Name, RankSeries, Series, mean_over_ranks, median
from musetrace.analysis.gaps.rank_leads import RANK_LEADS
from musetrace.analysis.gaps.stops import STOPS, lasts, stop_jobs
from musetrace.analysis.kept_sums.cubes import states_by_kind
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike

SKEW_FIELDS = [
    ("launch", pa.string()),
    ("stop", pa.string()),
    *RANK_DIFFERENCE_FIELDS,
    *(
        (f"{name}_{run}", kind)
        for run in "ab"
        for name, kind in (
            ("last_rank", pa.uint32()),
            ("last_share", pa.float64()),
            ("tied_share", pa.float64()),
        )
    ),
]


@dataclass(frozen=True)
class Last:
    """Who was last at a stop for certain in most launches: its share of them, and the share of ties.

    ``rank`` None: nobody was. All None: it cannot be told.
    """

    rank: int | None = None
    share: float | None = None
    tied_share: float | None = None


@dataclass(frozen=True)
class SkewSeries:
    """By (kind of launch, stop); nothing where ranks cannot be set against each other."""

    leads: RankSeries = field(default_factory=RankSeries)
    lasts: dict[Name, Last] = field(default_factory=dict)


def skew_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> SkewSeries:
    """How long a rank is through with what a stop waits for before the last rank, as ``arrivals`` has it.

    A step's number is the mean over ranks of the median over launches: what skew between ranks costs a rank.
    Who was last is told of all ranks of the run.
    """
    error_ns = alignment_error_ns(run)
    if run.losses.get("missing_ranks") or error_ns is None or len(run.ranks) < 2:
        return SkewSeries()
    found, off = SkewSeries(), combined_ns(tick_ns(run), error_ns)
    names, of_kinds = list(stop_jobs(run.job_table)), states_by_kind(run, STOPS, run.ranks, layer_kind).states
    for kind, states in states_by_kind(run, RANK_LEADS, ranks, layer_kind).states.items():
        of_ranks = {rank: _medians(state) for rank, state in states.items() if rank is not None}
        last_of = lasts(of_kinds[kind][None])
        for stop in sorted({stop for of in of_ranks.values() for stop in of}):
            name = (kind, names[stop])
            here = {rank: of[stop] for rank, of in of_ranks.items() if stop in of}
            for rank, one in here.items():
                found.leads.by_rank[rank, name] = _series([one], off)
            found.leads.names[name] = _series(list(here.values()), off)
            found.lasts[name] = _last({rank: one for (at, rank), one in last_of.items() if at == stop})
    return found


def skew_rows(a: SkewSeries, b: SkewSeries, ranks: Sequence[int], rule: Rule) -> list[dict[str, Any]]:
    """Stops of both runs, told differences first; ``ranks`` as for ``rank_difference``."""
    rows = []
    for name in a.leads.names:
        if name in b.leads.names:
            row = rank_difference(partial(a.leads.of, name), partial(b.leads.of, name), ranks, rule)
            lasts = {
                f"{key}_{run}": value
                for run, of in (("a", a), ("b", b))
                for key, value in _told(of.lasts[name])
            }
            rows.append({"launch": name[0], "stop": name[1], **row, **lasts})
    return by_step(rows)


def _told(last: Last) -> list[tuple[str, Any]]:
    return [("last_rank", last.rank), ("last_share", last.share), ("tied_share", last.tied_share)]


def _medians(state: State) -> Mapping[int, dict[int, ValueCounts]]:
    """By stop and step of one rank."""
    return {
        stop: {step: ValueCounts.of(leads) for step, leads in of_stop.groups()}
        for stop, of_stop in state.sum_of("lead", 3).groups()
    }


def _series(of_ranks: Sequence[Mapping[int, ValueCounts]], off: int | None) -> Series:
    medians = [{step: counts.nearest_rank((50,))[0] or 0 for step, counts in of.items()} for of in of_ranks]
    launches = np.array([counts.n for of in of_ranks for counts in of.values()], dtype=np.int64)
    return Series(mean_over_ranks(medians), off, median(launches), int(launches.sum()))


def _last(of_ranks: Mapping[int, tuple[int, int, int]]) -> Last:
    """Of what ``lasts`` tells of every rank at one stop."""
    if not of_ranks:
        return Last()
    judged = max(judged for judged, *_ in of_ranks.values())
    alone = {rank: last for rank, (_, last, _) in of_ranks.items()}
    most = max(alone, key=lambda rank: alone[rank])
    return Last(most if alone[most] else None, alone[most] / judged, 1 - sum(alone.values()) / judged)
