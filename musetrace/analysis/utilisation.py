"""How many blocks each engine is at work in, over the time of a launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer
from musetrace.analysis.engine_unions import (
    ANY_JOB,
    COMMUNICATION,
    COMPUTE,
    ENGINES,
    LOADS,
    EngineUnions,
    engines_of_jobs,
)
from musetrace.analysis.percentiles import nearest_rank
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import (
    Counted,
    LaunchColumns,
    Selection,
    StepSpans,
    chosen_ranks,
    spans_by_step,
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
    selection, counted, engines = Selection(layer_kind, rank, step), Counted(), engines_of_jobs(run)
    state = Utilisation.empty(_bin_ns(run, selection, bins), bins)
    for spans in spans_by_step(run, selection, counted):
        for one in spans:
            state = state + Utilisation.of(one, run.blocks, engines, state.bin_ns, bins)
    return answer(run, _FIELDS, state.rows(), counted)


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


@dataclass(frozen=True)
class Utilisation:
    """Sums over launches, which add up: int64[bins] of all time, and by set of engines int64[sets, bins]."""

    bin_ns: int
    instances: int
    block_ns: Ints
    at_work_ns: Ints

    @classmethod
    def empty(cls, bin_ns: int, bins: int) -> Utilisation:
        """Of no launch."""
        return cls(bin_ns, 0, np.zeros(bins, dtype=np.int64), np.zeros((len(_SETS), bins), dtype=np.int64))

    @classmethod
    def of(
        cls, spans: StepSpans, blocks: int, engines: npt.NDArray[np.uint8], bin_ns: int, bins: int
    ) -> Utilisation:
        """Of one (rank, step)."""
        unions = EngineUnions.of(spans, blocks, engines)
        at_work = [unions.union(engines_of_set) for engines_of_set in _SETS]
        walls = np.repeat(unions.walls, unions.instances)
        return cls(
            bin_ns,
            int(unions.instances.sum()),
            _within(np.zeros_like(walls), walls, bin_ns, bins),
            np.stack([_within(one.begin, one.end, bin_ns, bins) for one in at_work]),
        )

    def __add__(self, other: Utilisation) -> Utilisation:
        """Of both sets of launches."""
        return Utilisation(
            self.bin_ns,
            self.instances + other.instances,
            self.block_ns + other.block_ns,
            self.at_work_ns + other.at_work_ns,
        )

    def rows(self) -> list[dict[str, object]]:
        """The answer's rows; none where there is no instance."""
        if not self.instances:
            return []
        loads, compute, communication, any_engine, any_job = self.at_work_ns
        columns = {
            "loads": loads,
            "compute": compute,
            "communication": communication,
            "waiting_only": any_job - any_engine,
            "nothing": self.block_ns - any_job,
        }
        bins = range(len(self.block_ns))
        return [self._row(at, {name: int(of[at]) for name, of in columns.items()}) for at in bins]

    def _row(self, at: int, times: dict[str, int]) -> dict[str, object]:
        whole = int(self.block_ns[at])
        return {
            "begin_ns": at * self.bin_ns,
            "end_ns": (at + 1) * self.bin_ns,
            "block_ns": whole,
            **{f"{name}_ns": time for name, time in times.items()},
            **{f"{name}_share": time / whole if whole else None for name, time in times.items()},
        }


def _within(begin: Ints, end: Ints, bin_ns: int, bins: int) -> Ints:
    """How much of the intervals lies within each bin, int64[bins].

    Up to an edge x an interval has ``max(x - begin, 0) - max(x - end, 0)``; the sums of both over all
    intervals come from how many begin before x, and from the sum of these begins.
    """
    return np.diff(_past(begin, bin_ns, bins) - _past(end, bin_ns, bins))


def _past(times: Ints, bin_ns: int, bins: int) -> Ints:
    """The sum of ``max(x - time, 0)`` over some times >= 0, for each edge x of the bins: int64[bins + 1]."""
    place = np.minimum(times // bin_ns, bins)
    counts = np.bincount(place, minlength=bins + 1)[:bins]
    # The sum of times by bin, in whole bins and what is left: floats would round long sums.
    rests = np.zeros(bins + 1, dtype=np.int64)
    np.add.at(rests, place, times - place * bin_ns)
    sums = np.cumsum(counts * np.arange(bins) * bin_ns + rests[:bins])
    edges = np.arange(1, bins + 1) * bin_ns
    found: Ints = np.concatenate([[0], edges * np.cumsum(counts) - sums])
    return found
