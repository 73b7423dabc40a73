"""How far apart blocks and ranks are through with what a stop waits for, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from musetrace.analysis.answer import answer, spread_fields, spread_of_counts, tick_ns
from musetrace.analysis.certainty.rank_clocks import alignment_error_ns, rank_times
from musetrace.analysis.gaps.sends import Sends, leads
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans

MOST_NAMED = 3
_NEVER = np.iinfo(np.int64).max

_FIELDS = [
    ("stop", pa.string()),
    ("rank", pa.uint32()),
    ("n", pa.uint64()),
    ("blocks", pa.uint64()),
    *spread_fields("spread"),
    *spread_fields("early"),
    ("lead_n", pa.uint64()),
    *spread_fields("lead"),
    ("last_blocks", pa.list_(pa.struct([("block", pa.uint32()), ("share", pa.float64())]))),
    ("cannot_tell_share", pa.float64()),
    ("observed", pa.float64()),
]


def arrivals(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per (stop, rank), stops in job-table order: how far apart blocks arrive, and ranks.

    A block arrives at a stop when the last span of the job that the stop's wait awaits (the send) ends on it;
    a rank when the last of its blocks does. Over the ``n`` launches in which blocks of the rank arrived:

    * ``spread_*``, for each launch: from the first block's arrival to the last one's;
    * ``early_*``, for each of the ``blocks`` arrivals: from it to the last block's of the rank. Its mean is
      what skew between blocks costs a block at the stop, if it has nothing else to do until then;
    * ``lead_*``, for each of ``lead_n`` launches that every rank was seen in: from this rank's arrival to the
      last rank's, on the aligned axis (``clocks``). Its mean is what skew between ranks costs this rank. The
      error of the alignment is part of its uncertainties.

    ``last_blocks`` names the blocks that were the last of the rank for certain in most launches, at most
    three, with their share of ``n``; in ``cannot_tell_share`` several were within a tick.

    Null are ``lead_*`` where nothing can be told of other ranks (there are none, one is missing or not
    aligned), and ``last_blocks`` and ``cannot_tell_share`` where the clock's step is not known.

    Meaning: a stop is passed when the last one arrives, so work that is dealt more evenly saves up to the
    mean of ``early`` or ``lead``. It lies where blocks have other work until the stop is passed: what they
    really idle there is what ``idle`` says. A send's stamp comes when it was issued, not when it arrived; a
    block that sends nothing does not arrive. Spans with a flag are left out (metadata ``ignored``, of all
    ranks).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, ARRIVALS, Selection(layer_kind, rank, step))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    states = [State() for _ in spans]
    tick = tick_ns(run)
    for stop, (_, send) in enumerate(stop_jobs(run.job_table).values()):
        if send is None:
            continue
        sends = [Sends.of(one, send, run.blocks) for one in spans]
        for one, state in zip(sends, states, strict=True):
            _add_blocks(stop, one, state, tick)
        _add_leads(run, stop, sends, states)
    return states


def _add_blocks(stop: int, sends: Sends, state: State, tick: int | None) -> None:
    """How far apart the blocks of one rank arrive, and which is last."""
    rank, launch_id = sends.spans.rank, sends.spans.launch_id
    here, seen, latest_ns = sends.here, sends.launches, sends.latest_ns
    first_ns = np.where(here, sends.last_ns, _NEVER).min(axis=1, initial=_NEVER)
    state.add("spread", stop, rank, (latest_ns - first_ns)[seen])
    state.add_launches("spread", stop, rank, launch_id[seen])
    launch, block = np.nonzero(here)
    before_ns = latest_ns[launch] - sends.last_ns[launch, block]
    state.add("early", stop, rank, before_ns)
    state.add_launches("early", stop, rank, launch_id[launch])
    state.add("block_early", stop, rank, block, sums=before_ns)
    state.add("block_arrived", stop, rank, block)
    if tick is None:
        return
    may_be_last = np.zeros_like(here)
    may_be_last[launch, block] = before_ns < max(tick, 1)
    alone = may_be_last.sum(axis=1) == 1
    state.add("last", stop, rank, may_be_last.argmax(axis=1)[alone])
    state.add("tied", stop, rank, sums=int((seen & ~alone).sum()))


def _add_leads(run: RunLike, stop: int, sends: Sequence[Sends], states: Sequence[State]) -> None:
    """How long each rank arrives before the last one, in the launches of a step that all were seen in."""
    found = leads(run, sends)
    if found is None:
        return
    shared, leads_ns = found
    for one, state, its_ns in zip(sends, states, leads_ns, strict=True):
        state.add("lead", stop, one.spans.rank, its_ns)
        state.add_launches("lead", stop, one.spans.rank, shared)


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    names, tick = list(stop_jobs(run.job_table)), tick_ns(run)
    early, lead = _by_rank(state, "early"), _by_rank(state, "lead")
    last, tied = _by_rank(state, "last"), state.sum_of("tied", 2).as_dict()
    errors_ns = _errors_ns(run)
    rows: list[dict[str, object]] = []
    for (stop, rank), spread in _by_rank(state, "spread").items():
        arrived = early[stop, rank]
        led = lead.get((stop, rank)) if rank in errors_ns else None
        rows.append(
            {
                "stop": names[stop],
                "rank": rank,
                "n": spread.n,
                "blocks": arrived.n,
                **spread_of_counts("spread", spread, state.square_of("spread", stop, rank), tick),
                **spread_of_counts("early", arrived, state.square_of("early", stop, rank), tick),
                **(_leads(led, state.square_of("lead", stop, rank), tick, errors_ns[rank]) if led else {}),
                "lead_n": led.n if led else 0,
                **_last_blocks(last.get((stop, rank)), tied.get((stop, rank), 0), spread.n, tick),
                "observed": counted.seen[rank].share,
            }
        )
    return answer(run, _FIELDS, rows, counted)


def _by_rank(state: State, name: str) -> dict[tuple[int, int], ValueCounts]:
    """Counts by value of a name, by stop and rank."""
    return {
        (stop, rank): ValueCounts.of(of_rank)
        for stop, of_stop in state.sum_of(name, 3).groups()
        for rank, of_rank in of_stop.groups()
    }


def _errors_ns(run: RunLike) -> dict[int, int]:
    """By rank what its time is off at most against those of all others; empty where that cannot be told."""
    if run.losses.get("missing_ranks") or alignment_error_ns(run) is None:
        return {}
    clocks = rank_times(run)
    return {rank: max(one.error_to(other) or 0 for other in clocks.values()) for rank, one in clocks.items()}


def _leads(counts: ValueCounts, squares: int, tick: int | None, error_ns: int) -> dict[str, int | None]:
    """The alignment is off by the same in every launch, so its error does not shrink with their number."""
    columns = spread_of_counts("lead", counts, squares, tick)
    for name in ("lead_uncertainty_ns", "lead_mean_uncertainty_ns"):
        of_clock = columns[name]
        columns[name] = None if of_clock is None else of_clock + error_ns
    return columns


def _last_blocks(last: ValueCounts | None, tied: int, launches: int, tick: int | None) -> dict[str, object]:
    """Who was last of the rank's blocks, most often first; in the order of blocks among equals."""
    if tick is None or not launches:
        return {}
    found = [] if last is None else sorted(zip(-last.counts, last.values, strict=True))[:MOST_NAMED]
    return {
        "last_blocks": [{"block": int(block), "share": -int(less) / launches} for less, block in found],
        "cannot_tell_share": tied / launches,
    }


ARRIVALS = Question("arrivals", 2, _accumulate, _finish, all_ranks=True)
