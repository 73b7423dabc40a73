"""Which launches a question is about, and their spans, one step of one rank at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from musetrace import _core
from musetrace.analysis.certainty.clock_quality import tick_ns_of
from musetrace.analysis.certainty.observed import Seen, seen_by_rank
from musetrace.analysis.spans.rows import is_instant
from musetrace.analysis.spans.run_like import RunLike
from musetrace.errors import AnalysisError

Ints = npt.NDArray[np.int64]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Selection:
    """A question's scope; None means all."""

    layer_kind: str | None = None
    rank: int | None = None
    step: int | None = None


@dataclass
class Counted:
    """What an answer's metadata says of its spans.

    ``flagged`` ones were left out; ``below_tick`` are sound, but shorter than the clock's step (or 0 where
    that is not known). An instant has no length and is none of them. ``seen`` tells by rank how much of what
    the answer is about was recorded; empty where that is no question.
    """

    flagged: int = 0
    below_tick: int = 0
    seen: dict[int, Seen] = field(default_factory=dict)

    def add(self, rank: int, sound: int, flagged: int, below_tick: int) -> None:
        """Count spans of a rank that ``seen`` has."""
        self.flagged += flagged
        self.below_tick += below_tick
        self.seen[rank].spans += sound
        self.seen[rank].spans_expected += sound + flagged


@dataclass
class _Once:
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_made: bool = False
    made: Any = None


@dataclass(frozen=True)
class StepSpans:
    """The sound spans of the selected launches of one (rank, step).

    Times are ns from the step's base. ``launch`` indexes the ``launch_*`` arrays, which hold the selected
    launches that were stamped, in the order of their ids.
    """

    rank: int
    step: int
    base_ns: int
    launch_id: Ints
    launch_begin: Ints
    launch_end: Ints
    launch_blocks: Ints  # blocks that reported
    launch_grid: Ints  # blocks that there are
    begin: Ints
    end: Ints
    job: Ints
    launch: Ints
    block: Ints
    warp: Ints  # 255 where the block owns the job
    iteration: Ints  # 0 where jobs have one instance only
    launch_kind: npt.NDArray[Any]  # names
    launch_layer: Ints
    launch_flagged: Ints  # spans of each launch that were left out
    launch_below_tick: Ints  # sound ones that are shorter than the clock's step
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def columns(self) -> tuple[Ints, ...]:
        """The columns that the compiled loops take."""
        spans = (self.begin, self.end, self.job, self.launch, self.block, self.warp)
        return (*spans, self.launch_begin, self.launch_end)

    def by_instance(self, blocks: int) -> Any:
        """The spans by block and launch, as ``_core.analysis.Instances``; made once."""
        return self.made_once("instances", lambda: _core.analysis.Instances(self.columns, blocks))

    def made_once(self, name: str, make: Callable[[], Made]) -> Made:
        """What several questions make of these spans; ``name`` says what it is, of a run and these spans.

        Whoever asks for the same while it is made waits for it.
        """
        once: _Once = self._made.setdefault(name, _Once())
        with once.lock:
            if not once.is_made:
                once.made, once.is_made = make(), True
            return once.made  # type: ignore[no-any-return]

    @property
    def bytes(self) -> int:
        """About what it takes of memory: the columns, and as much again for what is made of them."""
        columns = (getattr(self, one.name) for one in fields(self))
        return 2 * sum(column.nbytes for column in columns if isinstance(column, np.ndarray))

    def of_kind(self, kind: str) -> StepSpans | None:
        """Only the launches of a kind; None where there is none."""
        chosen = self.launch_kind == kind
        if chosen.all():
            return self
        if not chosen.any():
            return None
        place = np.where(chosen, np.cumsum(chosen) - 1, -1)
        launch = place[self.launch]
        keep = launch >= 0
        names = (one.name for one in fields(self))
        taken = {name: getattr(self, name)[chosen] for name in names if name.startswith("launch_")}
        columns = ("begin", "end", "job", "block", "warp", "iteration")
        taken |= {name: getattr(self, name)[keep] for name in columns}
        return replace(self, **taken, launch=launch[keep], _made={})


class StepMemory(Protocol):
    """What keeps the spans of some steps of a run, as ``byte_memory.ByteMemory`` does."""

    def all_of(self, wanted: list[tuple[Hashable, Callable[[], StepSpans]]]) -> list[StepSpans]:
        """The spans by key and how they are read, in order."""


def counted_blocks(spans: StepSpans, blocks: int) -> npt.NDArray[np.bool_]:
    """bool[launches, blocks]: the blocks of each launch that an answer is about.

    Those that left a sound span; all of its grid where every block of the launch reported.
    """
    whole = spans.launch_blocks >= spans.launch_grid
    counted: npt.NDArray[np.bool_] = whole[:, None] & (np.arange(blocks) < spans.launch_grid[:, None])
    counted[spans.launch, spans.block] = True
    return counted


def chosen_ranks(run: RunLike, selection: Selection) -> tuple[int, ...]:
    """The ranks in scope. Raises AnalysisError when the run has no data of the one asked for."""
    if selection.rank is None:
        return run.ranks
    if selection.rank not in run.ranks:
        raise AnalysisError(f"no rank {selection.rank} in this run: it has {_listed(run.ranks)}")
    return (selection.rank,)


def spans_by_step(
    run: RunLike, selection: Selection, counted: Counted, only: Mapping[int, Sequence[int]] | None = None
) -> Iterator[list[StepSpans]]:
    """The same spans, all ranks of a step together; a rank without a launch in it is left out.

    ``only``: of the launches in scope only these, ids by step. Where one step is chosen and the run has a
    ``step_memory``, its spans are read once for all questions about it.
    """
    launches = _launches(run, selection)
    counted.seen = seen_by_rank(run, selection, launches)
    bases = {rank: step_bases(run.steps(rank)) for rank in launches}
    for step in sorted({step for rank in launches for step in _steps(run, selection, rank)}):
        if only is not None and step not in only:
            continue
        wanted: list[tuple[Hashable, Callable[[], StepSpans]]] = []
        for rank in launches:
            chosen = launches[rank].chosen(step, selection.layer_kind)
            if only is not None:
                chosen = chosen[np.isin(launches[rank].launch[chosen], only[step])]
            if len(chosen):
                of_step = launches[rank].take(chosen)
                key = (rank, step, of_step.launch.tobytes())
                wanted.append((key, partial(_load, run, rank, step, bases[rank][step], of_step)))
        memory: StepMemory | None = None if selection.step is None else getattr(run, "step_memory", None)
        found = [load() for _, load in wanted] if memory is None else memory.all_of(wanted)
        for one in found:
            flagged, below_tick = int(one.launch_flagged.sum()), int(one.launch_below_tick.sum())
            counted.add(one.rank, len(one.begin), flagged, below_tick)
        if found:
            yield found


def kinds_of(run: RunLike) -> tuple[str, ...]:
    """The kinds of the launches of all ranks, in the order of a step of the first rank that has them."""
    kinds = (kind for rank in run.ranks for kind in pc.unique(run.launches(rank)["kind"]).to_pylist())
    return tuple(dict.fromkeys(kinds))


def nothing_counted(run: RunLike, selection: Selection) -> Counted:
    """For answers about a scope: what was recorded of it, before its spans are counted."""
    return Counted(seen=seen_by_rank(run, selection, _launches(run, selection)))


def check_scope(run: RunLike, selection: Selection) -> None:
    """Raises AnalysisError for a rank, step or layer kind that the run does not have."""
    _launches(run, selection)


def _launches(run: RunLike, selection: Selection) -> dict[int, LaunchColumns]:
    """The launches of each rank in scope, checked against what was asked for."""
    ranks = chosen_ranks(run, selection)
    launches = {rank: LaunchColumns.of(run.launches(rank)) for rank in ranks}
    check_step(run, ranks, selection.step)
    _check_kind(launches, selection)
    return launches


def _steps(run: RunLike, selection: Selection, rank: int) -> list[int]:
    return [step for step in run.step_ids(rank) if selection.step in (None, step)]


def step_bases(steps: pa.Table) -> dict[int, int]:
    """The base of each step in ns, by step id."""
    return dict(zip(steps["step"].to_pylist(), steps["base_ns"].to_pylist(), strict=True))


@dataclass(frozen=True)
class LaunchColumns:
    """One rank's launches as arrays, sorted by (step, launch)."""

    step: Ints
    launch: Ints
    layer: Ints
    kind: npt.NDArray[Any]
    begin_ns: Ints
    end_ns: Ints
    blocks: Ints
    stamped: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, table: pa.Table) -> LaunchColumns:
        """The columns of a ``launches`` table."""
        step, launch = _ints(table["step"]), _ints(table["launch"])
        begin, end = _ints(table["begin_ns"]), _ints(table["end_ns"])
        kind = np.asarray(table["kind"].to_pylist(), dtype=object)
        stamped = (begin > 0) & (end >= begin)
        columns = (step, launch, _ints(table["layer"]), kind, begin, end, _ints(table["blocks"]), stamped)
        return cls(*columns).take(np.lexsort((launch, step)))

    def chosen(self, step: int, layer_kind: str | None) -> Ints:
        """Indices of the stamped launches of a step, of one kind or of all."""
        first, last = np.searchsorted(self.step, (step, step + 1))
        wanted = self.stamped[first:last]
        if layer_kind is not None:
            wanted = wanted & (self.kind[first:last] == layer_kind)
        indices: Ints = np.flatnonzero(wanted) + first
        return indices

    def take(self, indices: Ints) -> LaunchColumns:
        """The launches at ``indices``."""
        return LaunchColumns(*(getattr(self, column.name)[indices] for column in fields(self)))


def _load(run: RunLike, rank: int, step: int, base_ns: int, launches: LaunchColumns) -> StepSpans:
    batch = run.spans(rank, step)
    place = np.full(1 << 16, -1, dtype=np.int64)
    place[launches.launch] = np.arange(len(launches.launch))
    wide = batch.schema.field("begin").type == pa.uint64()
    read = _core.analysis.sound_spans_wide if wide else _core.analysis.sound_spans
    names = ("begin", "dur", "job", "launch", "block", "warp", "flag")
    begin, end, job, launch, block, warp, iteration, flagged, below_tick = read(
        *(_column(batch, name) for name in names),
        _column(batch, "iteration") if "iteration" in batch.schema.names else None,
        place,
        len(launches.launch),
        is_instant(run.job_table, np.arange(1 << 16)).view(np.uint8),
        run.blocks,
        tick_ns_of(run.manifest.get("clock")) or 0,
    )
    return StepSpans(
        rank=rank,
        step=step,
        base_ns=base_ns,
        launch_id=launches.launch,
        launch_begin=launches.begin_ns - base_ns,
        launch_end=launches.end_ns - base_ns,
        launch_blocks=launches.blocks,
        launch_grid=np.array([run.job_table.blocks_of(kind, run.blocks) for kind in launches.kind], np.int64),
        begin=begin,
        end=end,
        job=job,
        launch=launch,
        block=block,
        warp=warp,
        iteration=iteration,
        launch_kind=launches.kind,
        launch_layer=launches.layer,
        launch_flagged=flagged,
        launch_below_tick=below_tick,
    )


def _column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return values


def _ints(column: pa.ChunkedArray) -> Ints:
    values: Ints = column.to_numpy().astype(np.int64)
    return values


def check_step(run: RunLike, ranks: tuple[int, ...], step: int | None) -> None:
    """Raises AnalysisError when a step was asked for that none of the ranks has."""
    if step is None:
        return
    known = sorted({known for rank in ranks for known in run.step_ids(rank)})
    if step not in known:
        raise AnalysisError(f"no step {step} in this run: it has {_listed(known)}")


def _check_kind(launches: dict[int, LaunchColumns], selection: Selection) -> None:
    if selection.layer_kind is None:
        return
    kinds: set[str] = set()
    for columns in launches.values():
        in_step = columns.kind if selection.step is None else columns.kind[columns.step == selection.step]
        kinds.update(in_step.tolist())
    if selection.layer_kind not in kinds:
        has = ", ".join(sorted(kinds)) or "none"
        raise AnalysisError(f"no launch of kind {selection.layer_kind!r} in what was chosen: it has {has}")


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    """``0-3, 7`` for (0, 1, 2, 3, 7); ``none`` for nothing."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"
