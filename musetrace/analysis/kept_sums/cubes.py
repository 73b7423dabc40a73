"""What the index keeps of each question: the sums of its states by rank and kind of launch, over all steps.

From them a whole run, one rank and one kind of launch are answered without the spans. One step is answered
from its spans. A run whose ranks disagree about the kind of a launch has no cubes: what waits there for what
is not the sum over kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

from musetrace.analysis.certainty.observed import Seen, total
from musetrace.analysis.engines.overlap import OVERLAP
from musetrace.analysis.engines.roofline import ROOFLINE
from musetrace.analysis.engines.utilisation import UTILISATION
from musetrace.analysis.gaps.arrivals import ARRIVALS
from musetrace.analysis.gaps.attribution import ATTRIBUTION
from musetrace.analysis.gaps.idle import IDLE
from musetrace.analysis.gaps.idle_after import IDLE_AFTER
from musetrace.analysis.gaps.idle_blocks import IDLE_BLOCKS
from musetrace.analysis.gaps.longest_pieces import LONGEST
from musetrace.analysis.gaps.rank_leads import RANK_LEADS
from musetrace.analysis.gaps.stops import STOPS
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.op_lengths import OP_LENGTHS
from musetrace.analysis.kept_sums.question import RunningState, Sums
from musetrace.analysis.kept_sums.state import State, merged, of_step, squares_of
from musetrace.analysis.kept_sums.step_sums import STEP_SUMS
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import (
    Counted,
    Selection,
    StepSpans,
    kinds_of,
    nothing_counted,
    spans_by_step,
)
from musetrace.analysis.timeline.busy import BLOCK_BUSY
from musetrace.analysis.timeline.launch_strip import LAUNCH_STRIP
from musetrace.analysis.timeline.launches import LAUNCHES
from musetrace.analysis.timeline.op_timeline import OP_TIMELINE
from musetrace.analysis.timeline.ring_ahead import RING_AHEAD
from musetrace.analysis.windows.launch_cover import LAUNCH_COVER
from musetrace.store.cube_store import Columns, CubeCell, CubeFile, CubeStore

QUESTIONS: tuple[Sums, ...] = (
    OP_TIMELINE,
    BLOCK_BUSY,
    STOPS,
    ARRIVALS,
    RANK_LEADS,
    RING_AHEAD,
    IDLE,
    IDLE_AFTER,
    IDLE_BLOCKS,
    LONGEST,
    ATTRIBUTION,
    LAUNCHES,
    LAUNCH_STRIP,
    STEP_SUMS,
    OP_LENGTHS,
    OVERLAP,
    UTILISATION,
    ROOFLINE,
    LAUNCH_COVER,
)

_THREADS = 2
_SUMS, _SQUARES = "sums ", "squares "


def keep_cubes(run: RunLike) -> None:
    """Make the cubes that a run lacks and keep them in its index, if that can be written.

    A run that is read from memory or from a temporary index has none.
    """
    store: CubeStore | None = getattr(run, "cubes", None)
    if store is None:
        return
    lacking = [question for question in QUESTIONS if store.read(question.name, question.version) is None]
    if not lacking:
        return
    try:
        for question, cells in make_cubes(run, lacking).items():
            store.write(question.name, question.version, cells)
    except OSError:
        return  # a full disk, or one that may not be written: spans answer everything


def make_cubes(run: RunLike, questions: Sequence[Sums]) -> dict[Sums, list[CubeCell]]:
    """The cubes of some questions, made of the spans in one pass, a step at a time."""
    cubes = [_Cube(question) for question in questions]
    with ThreadPoolExecutor(_THREADS) as threads:
        for spans in spans_by_step(run, Selection(), Counted()):
            if _disagree(spans):
                return {cube.question: [CubeCell({"refused": True})] for cube in cubes}
            # Every kind in turn: all that questions make of its spans goes with them.
            for kind, of_kind in chain([(None, spans)], _by_kind(spans)):
                mine = [cube for cube in cubes if cube.question.by_kind == (kind is not None)]
                for task in [threads.submit(cube.add, run, kind, of_kind) for cube in mine]:
                    task.result()
    return {cube.question: cube.cells() for cube in cubes}


def _disagree(spans: Sequence[StepSpans]) -> bool:
    """Whether a launch of a step is of one kind on one rank, and of another on another."""
    kinds: dict[int, str] = {}
    for one in spans:
        for launch, kind in zip(one.launch_id.tolist(), one.launch_kind.tolist(), strict=True):
            if kinds.setdefault(launch, kind) != kind:
                return True
    return False


def _by_kind(spans: Sequence[StepSpans]) -> Iterator[tuple[str, list[StepSpans]]]:
    for kind in dict.fromkeys(kind for one in spans for kind in one.launch_kind.tolist()):
        yield kind, [part for one in spans if (part := one.of_kind(kind)) is not None]


@dataclass
class _Cell:
    """The sums of one rank and kind of launch; of all ranks together only the squares."""

    running: RunningState = field(default_factory=RunningState)
    sound: int = 0
    flagged: int = 0
    below_tick: int = 0


class _Cube:
    """The cells of a question, as steps come."""

    def __init__(self, question: Sums) -> None:
        self.question = question
        self._cells: dict[tuple[int | None, str | None], _Cell] = defaultdict(_Cell)

    def add(self, run: RunLike, kind: str | None, spans: Sequence[StepSpans]) -> None:
        """One step, all ranks of it; of one kind of launch unless the question cannot be asked by kind."""
        states = self.question.accumulate(run, spans)
        for one, state in zip(spans, states, strict=True):
            cell = self._cells[one.rank, kind]
            cell.running.add(State(sums=state.sums, squares=squares_of([state]).squares))
            cell.sound += len(one.job)
            cell.flagged += int(one.launch_flagged.sum())
            cell.below_tick += int(one.launch_below_tick.sum())
        self._cells[None, kind].running.add(squares_of(states))

    def cells(self) -> list[CubeCell]:
        """What is to be kept."""
        return [
            CubeCell(
                {
                    "rank": rank,
                    "kind": kind,
                    "sound": cell.sound,
                    "flagged": cell.flagged,
                    "below_tick": cell.below_tick,
                },
                _tables(cell.running.state()),
            )
            for (rank, kind), cell in sorted(self._cells.items(), key=_order)
        ]


def _order(cell: tuple[tuple[int | None, str | None], _Cell]) -> tuple[int, str]:
    (rank, kind), _ = cell
    return -1 if rank is None else rank, kind or ""


def _tables(state: State) -> dict[str, Columns]:
    named = [(_SUMS, state.sums), (_SQUARES, state.squares)]
    return {prefix + name: (tally.keys, tally.sums) for prefix, of in named for name, tally in of.items()}


def kept(run: RunLike, question: Sums, selection: Selection) -> tuple[State, Counted] | None:
    """The state of a scope from the run's cube; None where there is none, or none of such a scope."""
    file = _open(run, question) if question.is_kept and selection.step is None else None
    if file is None:
        return None
    needed, states = question.needed(selection), []
    counted = nothing_counted(run, needed)
    for place, about in enumerate(file.abouts):
        if question.by_kind and needed.layer_kind not in (None, about["kind"]):
            continue
        if about["rank"] is not None and needed.rank in (None, about["rank"]):
            counted.add(about["rank"], about["sound"], about["flagged"], about["below_tick"])
        # Squares of all ranks are not the sum of those of each.
        sums = about["rank"] is not None and selection.rank in (None, about["rank"])
        squares = about["rank"] == selection.rank
        if sums or squares:
            cell = file.cell(place)
            if cell is None:
                return None
            states.append(_state(cell, sums=sums, squares=squares))
    return merged(states), counted


def _open(run: RunLike, question: Sums) -> CubeFile | None:
    store: CubeStore | None = getattr(run, "cubes", None)
    file = None if store is None else store.read(question.name, question.version)
    return None if file is None or any("refused" in about for about in file.abouts) else file


def _state(cell: CubeCell, *, sums: bool, squares: bool) -> State:
    state = State()
    for prefix, of, wanted in ((_SUMS, state.sums, sums), (_SQUARES, state.squares, squares)):
        for name, (keys, values) in cell.tables.items():
            if wanted and name.startswith(prefix):
                of[name.removeprefix(prefix)] = KeySums(keys, values)
    return state


@dataclass
class ByKind:
    """States of a run by kind of launch, each of every rank and, under None, of all of them together.

    ``seen`` is what was recorded of them.
    """

    states: dict[str, dict[int | None, State]]
    seen: Seen


def states_by_kind(run: RunLike, question: Sums, ranks: Collection[int], layer_kind: str | None) -> ByKind:
    """The states of some ranks, over all steps; kinds are in the order of a step."""
    found = _kept_by_kind(run, question, ranks, layer_kind)
    if found is None:
        found = _spans_by_kind(run, question, ranks, layer_kind)
    places = {kind: place for place, kind in enumerate(kinds_of(run))}
    found.states = dict(sorted(found.states.items(), key=lambda one: places[one[0]]))
    return found


def _kept_by_kind(
    run: RunLike, question: Sums, ranks: Collection[int], layer_kind: str | None
) -> ByKind | None:
    file = _open(run, question)
    # Squares are kept of each rank, and of all.
    if file is None or (len(ranks) > 1 and set(ranks) != set(run.ranks)):
        return None
    found, counted = ByKind({}, Seen()), _counted(run, ranks, layer_kind)
    for place, about in enumerate(file.abouts):
        if layer_kind not in (None, about["kind"]) or about["rank"] not in (None, *ranks):
            continue
        cell = file.cell(place)
        if cell is None:
            return None
        if about["rank"] is not None:
            counted.add(about["rank"], about["sound"], about["flagged"], about["below_tick"])
        found.states.setdefault(about["kind"], {})[about["rank"]] = _state(cell, sums=True, squares=True)
    for kind, of_kind in list(found.states.items()):
        squares = of_kind.pop(None)
        if not of_kind:
            del found.states[kind]
            continue
        every = merged(of_kind.values())
        of_kind[None] = State(every.sums, squares=every.squares if len(ranks) == 1 else squares.squares)
    found.seen = total(counted.seen.values())
    return found


def _spans_by_kind(run: RunLike, question: Sums, ranks: Collection[int], layer_kind: str | None) -> ByKind:
    running: dict[str, dict[int | None, RunningState]] = {}
    counted = _counted(run, ranks, layer_kind)
    if not counted.seen:
        return ByKind({}, Seen())
    for spans in spans_by_step(run, Selection(layer_kind), Counted()):
        mine = [one for one in spans if one.rank in ranks]
        for one in mine:
            flagged, below = int(one.launch_flagged.sum()), int(one.launch_below_tick.sum())
            counted.add(one.rank, len(one.job), flagged, below)
        for kind, of_kind in _by_kind(spans if question.all_ranks else mine):
            pairs = zip(of_kind, question.accumulate(run, of_kind), strict=True)
            states = {one.rank: state for one, state in pairs if one.rank in ranks}
            if not states:
                continue
            cells = running.setdefault(str(kind), {None: RunningState()})
            cells[None].add(of_step(list(states.values())))
            for rank, state in states.items():
                cells.setdefault(rank, RunningState()).add(of_step([state]))
    states_of = {kind: {rank: one.state() for rank, one in cells.items()} for kind, cells in running.items()}
    return ByKind(states_of, total(counted.seen.values()))


def _counted(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> Counted:
    """What was recorded of some ranks, of those that have launches of the kind."""
    counted = Counted()
    for rank in ranks:
        if layer_kind is None or layer_kind in run.launches(rank)["kind"].to_pylist():
            counted.seen |= nothing_counted(run, Selection(layer_kind, rank)).seen
    return counted
