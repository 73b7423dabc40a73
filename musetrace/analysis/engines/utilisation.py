"""How many blocks each engine is at work in, over the time of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.engines.engine_unions import (
    ANY_JOB,
    COMMUNICATION,
    COMPUTE,
    ENGINES,
    LOADS,
    EngineUnions,
    engines_of_jobs,
)
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import (
    Counted,
    LaunchColumns,
    Selection,
    StepSpans,
    chosen_ranks,
)
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]

DEFAULT_BINS = 100
MAX_BINS = 100_000
_LENGTH_PERCENT = 90
_SETS = (LOADS, COMPUTE, COMMUNICATION, ENGINES, ANY_JOB)

_FIELDS = [
    ("begin_ns", pa.int64()),
    ("end_ns", pa.int64()),
    ("block_ns", pa.int64()),
    ("loads_ns", pa.int64()),
    ("compute_ns", pa.int64()),
    ("communication_ns", pa.int64()),
    ("waiting_only_ns", pa.int64()),
    ("nothing_ns", pa.int64()),
    ("loads_share", pa.float64()),
    ("compute_share", pa.float64()),
    ("communication_share", pa.float64()),
    ("waiting_only_share", pa.float64()),
    ("nothing_share", pa.float64()),
]


def utilisation(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    bins: int = DEFAULT_BINS,
) -> pa.Table:
    """One row per bin of time from the launch's begin, all launches laid over each other at their begins.

    The bins are equally long, together at least as long as nine tenths of the launches are (nearest rank);
    what a longer launch does behind them has no row. ``block_ns`` is the time of all instances (``overlap``)
    within the bin; a launch that has ended has none. In ``loads_ns`` of it a load or prefetch of the block is
    under way, and so on as in ``overlap``: engines may be at work together, so that their shares may exceed
    one. A share is of ``block_ns``, null where that is 0: the mean share of blocks that do this.

    Meaning: when an engine runs dry. It lies as ``overlap`` does, and blurs what begins at other times in
    other launches: choose one kind of launch. A bin that is not much longer than the clock's tick shows the
    tick, not the blocks. Spans with a flag are left out (metadata ``ignored``).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind, or ``bins`` is not 1 to 100,000.
    """
    if not 1 <= bins <= MAX_BINS:
        raise AnalysisError(f"a launch cannot be cut into {bins} bins; choose 1 to {MAX_BINS:,}")
    question = UTILISATION
    if bins != DEFAULT_BINS:
        question = replace(UTILISATION, finish=partial(_finish, bins=bins))
    return ask(run, question, Selection(layer_kind, rank, step))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    engines = engines_of_jobs(run)
    return [_state(EngineUnions.of(one, run.blocks, engines, _SETS)) for one in spans]


def _state(found: EngineUnions) -> State:
    """Begins and ends by their time: what any bins are made of."""
    state = State()
    for engines, union in found.unions.items():
        state.add("begins", engines, union.begin)
        state.add("ends", engines, union.end)
    state.add("walls", found.walls, sums=found.instances)
    return state


def _finish(
    run: RunLike, selection: Selection, state: State, counted: Counted, bins: int = DEFAULT_BINS
) -> pa.Table:
    (walls,), instances = state.sum_of("walls", 1).keys, state.sum_of("walls", 1).sums
    if not len(instances):
        return answer(run, _FIELDS, [], counted)
    bin_ns = _bin_ns(run, selection, bins)
    block_ns = _within(KeySums.of(0, sums=int(instances.sum())), KeySums((walls,), instances), bin_ns, bins)
    begins, ends = (dict(state.sum_of(name, 2).groups()) for name in ("begins", "ends"))
    at_work = {
        engines: _within(begins[engines], ends[engines], bin_ns, bins)
        if engines in begins
        else np.zeros(bins, dtype=np.int64)
        for engines in _SETS
    }
    times = {
        "loads": at_work[LOADS],
        "compute": at_work[COMPUTE],
        "communication": at_work[COMMUNICATION],
        "waiting_only": at_work[ANY_JOB] - at_work[ENGINES],
        "nothing": block_ns - at_work[ANY_JOB],
    }
    rows = [
        _row(at, bin_ns, int(block_ns[at]), {name: int(of[at]) for name, of in times.items()})
        for at in range(bins)
    ]
    return answer(run, _FIELDS, rows, counted)


def _row(at: int, bin_ns: int, block_ns: int, times: dict[str, int]) -> dict[str, object]:
    return {
        "begin_ns": at * bin_ns,
        "end_ns": (at + 1) * bin_ns,
        "block_ns": block_ns,
        **{f"{name}_ns": time for name, time in times.items()},
        **{f"{name}_share": time / block_ns if block_ns else None for name, time in times.items()},
    }


def _bin_ns(run: RunLike, selection: Selection, bins: int) -> int:
    """The length of a bin."""
    lengths = []
    for rank in chosen_ranks(run, selection):
        launches = LaunchColumns.of(run.launches(rank))
        steps = launches.step if selection.step is None else np.array([selection.step])
        of_step = [launches.chosen(one, selection.layer_kind) for one in np.unique(steps).tolist()]
        chosen = launches.take(np.concatenate([np.zeros(0, dtype=np.int64), *of_step]))
        lengths.append(chosen.end_ns - chosen.begin_ns)
    longest = nearest_rank(np.concatenate(lengths), (_LENGTH_PERCENT,))[0] if lengths else None
    return max(1, -(-(longest or 0) // bins))


def _within(begins: KeySums, ends: KeySums, bin_ns: int, bins: int) -> Ints:
    """How much of some intervals lies within each bin, int64[bins]; their begins and ends by time, counted.

    Up to an edge x an interval has ``max(x - begin, 0) - max(x - end, 0)``; the sums of both over all
    intervals come from how many begin before x, and from the sum of these begins.
    """
    return np.diff(_past(begins, bin_ns, bins) - _past(ends, bin_ns, bins))


def _past(times: KeySums, bin_ns: int, bins: int) -> Ints:
    """The sum of ``max(x - time, 0)`` over some times >= 0, for each edge x of the bins: int64[bins + 1]."""
    (time,), place = times.keys, np.minimum(times.keys[0] // bin_ns, bins)
    counts, sums = np.zeros(bins + 1, dtype=np.int64), np.zeros(bins + 1, dtype=np.int64)
    np.add.at(counts, place, times.sums)
    np.add.at(sums, place, time * times.sums)
    edges = np.arange(1, bins + 1) * bin_ns
    found: Ints = np.concatenate([[0], edges * np.cumsum(counts[:bins]) - np.cumsum(sums[:bins])])
    return found


UTILISATION = Question("utilisation", 1, _accumulate, _finish)
