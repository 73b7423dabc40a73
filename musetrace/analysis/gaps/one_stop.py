"""One stop in detail: how early blocks and ranks arrive, which block is late, and the latest arrivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.rank_clocks import alignment_error_ns
from musetrace.analysis.gaps.arrivals import ARRIVALS
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]

EARLY, LEAD = "early", "lead"
MOST_BINS = 60
# Bins reach to here and what is beyond is one: else a late launch would leave nothing to be seen of the rest.
_REACH_PERCENT = 99

_BLOCK_FIELDS = [
    ("rank", pa.uint32()),
    ("block", pa.uint32()),
    ("n", pa.uint64()),
    ("early_mean_ns", pa.int64()),
    ("early_mean_uncertainty_ns", pa.int64()),
    ("last_n", pa.uint64()),
    ("last_share", pa.float64()),
]
_BIN_FIELDS = [
    ("measure", pa.string()),
    ("rank", pa.uint32()),
    ("from_ns", pa.int64()),
    ("to_ns", pa.int64()),
    ("n", pa.uint64()),
]


@dataclass(frozen=True)
class StopDetails:
    """One stop: the answers of :func:`block_arrivals` and :func:`arrival_histogram`."""

    blocks: pa.Table
    bins: pa.Table


def details_of_stop(
    run: RunLike,
    *,
    stop: str,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> StopDetails:
    """Both answers, for which a step's spans are read once.

    Raises:
        AnalysisError: the run has no such stop, rank, step or layer kind.
    """
    number, bins = stop_number(run, stop), []

    def finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
        bins.append(_finish_bins(run, state, counted, number))
        return _finish_blocks(run, state, counted, number)

    question = replace(ARRIVALS, finish=finish)
    blocks = ask(run, question, Selection(layer_kind, rank, step))
    return StopDetails(blocks, bins[0])


def block_arrivals(
    run: RunLike,
    *,
    stop: str,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> pa.Table:
    """One row per (rank, block) that arrived at a stop: how early it does, and how often it is the last.

    Over the ``n`` launches in which the block arrived (``arrivals``): ``early_mean_ns`` is the mean time from
    its arrival to that of the rank's last block; its uncertainty is a tick, which no mean of such times
    exceeds. ``last_n`` of the launches it was the last for certain, ``last_share`` is that by the launches in
    which any block of the rank arrived; both null where the clock's step is not known.

    Meaning: whether it is always the same blocks that the others wait for, which better dealing of the work
    would help. It lies as ``arrivals`` does.

    Raises:
        AnalysisError: the run has no such stop, rank, step or layer kind.
    """
    return details_of_stop(run, stop=stop, layer_kind=layer_kind, rank=rank, step=step).blocks


def arrival_histogram(
    run: RunLike,
    *,
    stop: str,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> pa.Table:
    """How many blocks arrive how long before the last of their rank, and ranks before the last rank.

    One row per measure, rank and bin that has any: ``early`` counts arrivals of blocks, ``lead`` launches
    that every rank was seen in (``arrivals``). Bins of a measure are the same on all ranks: from 0 on,
    as wide as the smallest of 1, 2, 5, 10, 20... ticks of which at most 60 reach the 99th percentile
    (nearest rank); values beyond are in one last bin, whose ``to_ns`` is null.

    Meaning: whether a stop costs a little always or much at times. It lies as ``arrivals`` does. There is no
    ``lead`` where nothing can be told of other ranks.

    Raises:
        AnalysisError: the run has no such stop, rank, step or layer kind.
    """
    return details_of_stop(run, stop=stop, layer_kind=layer_kind, rank=rank, step=step).bins


def stop_number(run: RunLike, stop: str) -> int:
    """The place of a stop among those of the job table.

    Raises:
        AnalysisError: the table has no such stop.
    """
    names = list(stop_jobs(run.job_table))
    if stop not in names:
        raise AnalysisError(f"no stop {stop!r} in this run: it has {', '.join(names) or 'none'}")
    return names.index(stop)


def _finish_blocks(run: RunLike, state: State, counted: Counted, stop: int) -> pa.Table:
    tick = tick_ns(run)
    launches = {rank: int(of.sums.sum()) for rank, of in _of_stop(state, "spread", stop)}
    last = {rank: _by_key(of) for rank, of in _of_stop(state, "last", stop)}
    early = {rank: _by_key(of) for rank, of in _of_stop(state, "block_early", stop)}
    rows: list[dict[str, object]] = []
    for rank, arrived in _of_stop(state, "block_arrived", stop):
        for block, n in sorted(_by_key(arrived).items()):
            total, lasts = early.get(rank, {}).get(block, 0), last.get(rank, {}).get(block, 0)
            rows.append(
                {
                    "rank": rank,
                    "block": block,
                    "n": n,
                    "early_mean_ns": (2 * total + n) // (2 * n),
                    "early_mean_uncertainty_ns": tick,
                    "last_n": None if tick is None else lasts,
                    "last_share": None if tick is None else lasts / launches[rank],
                }
            )
    return answer(run, _BLOCK_FIELDS, rows, counted)


def _finish_bins(run: RunLike, state: State, counted: Counted, stop: int) -> pa.Table:
    rows: list[dict[str, object]] = []
    can_lead = not run.losses.get("missing_ranks") and alignment_error_ns(run) is not None
    for measure in (EARLY, LEAD) if can_lead else (EARLY,):
        of_ranks = {rank: ValueCounts.of(of) for rank, of in _of_stop(state, measure, stop)}
        if not of_ranks:
            continue
        every = ValueCounts.of(KeySums.merged([KeySums((of.values,), of.counts) for of in of_ranks.values()]))
        width, bins = _bins(every, tick_ns(run) or 1)
        for rank, of in of_ranks.items():
            rows += _counted(measure, rank, of, width, bins)
    return answer(run, _BIN_FIELDS, rows, counted)


def _bins(every: ValueCounts, tick: int) -> tuple[int, int]:
    """The width of a bin in ns, and how many there are below the last one."""
    (reach,) = every.nearest_rank((_REACH_PERCENT,))
    assert reach is not None
    width = next(one for one in _widths(tick) if reach // one < MOST_BINS)
    return width, reach // width + 1


def _widths(tick: int) -> Iterator[int]:
    decade = tick
    while True:
        yield from (decade, 2 * decade, 5 * decade)
        decade *= 10


def _counted(measure: str, rank: int, of: ValueCounts, width: int, bins: int) -> list[dict[str, object]]:
    place = np.minimum(of.values // width, bins)
    counts = np.zeros(bins + 1, dtype=np.int64)
    np.add.at(counts, place, of.counts)
    return [
        {
            "measure": measure,
            "rank": rank,
            "from_ns": at * width,
            "to_ns": None if at == bins else (at + 1) * width,
            "n": int(counts[at]),
        }
        for at in np.flatnonzero(counts).tolist()
    ]


def _of_stop(state: State, name: str, stop: int) -> Sequence[tuple[int, KeySums]]:
    """The sums of a name at a stop, by rank: tallies by what is left of the key."""
    of_stop = dict(state.sum_of(name, 3).groups()).get(stop)
    return [] if of_stop is None else list(of_stop.groups())


def _by_key(of: KeySums) -> dict[int, int]:
    return dict(zip(of.keys[0].tolist(), of.sums.tolist(), strict=True))


def no_lead_sentence(run: RunLike) -> str:
    """Why nothing can be told of other ranks; empty where something can."""
    missing: list[Any] = list(run.losses.get("missing_ranks") or [])
    if missing:
        are = "is" if len(missing) == 1 else "are"
        ranks = ", ".join(str(rank) for rank in missing[:8]) + (", ..." if len(missing) > 8 else "")  # noqa: PLR2004
        return f"Rank {ranks} {are} missing: whoever is not seen may have been last."
    if len(run.ranks) < 2:  # noqa: PLR2004
        return "This run has one rank: it waits for no other."
    if alignment_error_ns(run) is None:
        return "The ranks' clocks are not aligned: nothing that compares ranks is told."
    return ""
