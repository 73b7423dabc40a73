"""How much of its time each engine of a block is at work, and how much of that beside another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.engines.engine_unions import (
    ANY_JOB,
    COMMUNICATION,
    COMPUTE,
    ENGINES,
    LOADS,
    EngineUnions,
    engines_of_jobs,
)
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans

Ints = npt.NDArray[np.int64]

_L, _C, _M = LOADS, COMPUTE, COMMUNICATION
_SETS = (_L, _C, _M, _L | _C, _L | _M, _C | _M, ENGINES, ANY_JOB)
WAITING_ONLY, NOTHING = "waiting_only", "nothing"
STATES: dict[str, int | None] = {
    "loads": _L,
    "compute": _C,
    "communication": _M,
    "loads_and_compute": _L | _C,
    "loads_and_communication": _L | _M,
    "compute_and_communication": _C | _M,
    "all_three": ENGINES,
    WAITING_ONLY: None,
    NOTHING: None,
}

_FIELDS = [
    ("state", pa.string()),
    ("n", pa.uint64()),
    ("total_ns", pa.int64()),
    ("total_uncertainty_ns", pa.int64()),
    ("only_ns", pa.int64()),
    ("mean_ns", pa.int64()),
    ("share", pa.float64()),
    ("share_uncertainty", pa.float64()),
    ("only_share", pa.float64()),
]


def overlap(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per state of a block, in the order of :data:`STATES`; none when no launch is in scope.

    The time is that of ``n`` instances, blocks of launches as ``block_busy`` counts them, each from its
    launch's begin to its end on the rank. A state is which engines are at work in it: ``loads`` (a load or
    prefetch is under way), ``compute``, ``communication`` (send, receive, sync). Jobs that the table does not
    know count as compute. In ``total_ns`` of the time at least these engines are at work, in ``only_ns``
    these and no other. ``waiting_only``: no engine, but a wait is under way; ``nothing``: no job at all.
    The ``only_ns`` of all rows add up to the time of all instances, to the nanosecond. ``mean_ns`` is
    ``total_ns`` by ``n``, and the shares are of all that time.

    ``total_uncertainty_ns`` takes each piece of a union as one difference of stamps, and the overlap of
    several engines as all of theirs (``clock_quality``).

    Meaning: what is hidden behind what. It lies where stamps do not enclose the work: a load's span reaches
    from issue to the last of its bytes, and while the ring is full it is longer than the bytes need
    (``roofline``); a compute job that waits for its later stages inside counts as compute; and a span says
    that one warp of the block is in the job, not that the engine is busy. What a span covers outside its
    launch is cut off. Spans with a flag are left out (metadata ``ignored``).

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, OVERLAP, Selection(layer_kind, rank, step))


# What is added up over all instances.
_INSTANCES, _WALL = range(2)
# Differences of stamps are counted for each state by its place, and for the whole time.
_PLACE = {state: place for place, state in enumerate(STATES)}
_WHOLE = len(STATES)


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    engines = engines_of_jobs(run)
    return [_state(one, EngineUnions.of(one, run.blocks, engines, _SETS)) for one in spans]


def _state(spans: StepSpans, found: EngineUnions) -> State:
    state = State()
    state.add("whole", _INSTANCES, sums=int(found.instances.sum()))
    state.add("whole", _WALL, sums=int(found.walls @ found.instances))
    for engines, union in found.unions.items():
        state.add("union_ns", engines, sums=union.length_ns)
    for place, stamps in _stamps(found).items():
        state.add_launches("stamps", place, spans.launch_id, sums=stamps)
    return state


def _stamps(found: EngineUnions) -> dict[int, Ints]:
    """Of how many differences of stamps each state's time is made in each launch, int64[launches]."""
    of = {engines: union.stamps for engines, union in found.unions.items()}
    sets = {state: bits for state, bits in STATES.items() if bits is not None}
    return {
        **{_PLACE[state]: sum((of[bit] for bit in _bits(bits)), 0 * of[_L]) for state, bits in sets.items()},
        _PLACE[WAITING_ONLY]: of[ANY_JOB] + of[ENGINES],
        _PLACE[NOTHING]: of[ANY_JOB] + found.instances,
        _WHOLE: found.instances,
    }


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    tick = tick_ns(run)
    n, wall_ns = state.number("whole", _INSTANCES), state.number("whole", _WALL)
    of_wall = sum_uncertainty_ns(tick, state.square_of("stamps", _WHOLE))
    totals = _totals(state, wall_ns)
    only = _only(totals)
    rows: list[dict[str, object]] = []
    for name, place in _PLACE.items() if n else ():
        off = sum_uncertainty_ns(tick, state.square_of("stamps", place))
        rows.append(
            {
                "state": name,
                "n": n,
                "total_ns": totals[name],
                "total_uncertainty_ns": off,
                "only_ns": only[name],
                "mean_ns": (2 * totals[name] + n) // (2 * n),
                "share": totals[name] / wall_ns if wall_ns else None,
                "share_uncertainty": share_uncertainty(totals[name], off, wall_ns, of_wall),
                "only_share": only[name] / wall_ns if wall_ns else None,
            }
        )
    return answer(run, _FIELDS, rows, counted)


def _totals(state: State, wall_ns: int) -> dict[str, int]:
    """The time in which at least a state's engines are at work: from unions, by inclusion-exclusion."""
    of = {engines: state.number("union_ns", engines) for engines in _SETS}
    pairs = {pair: sum(of[bit] for bit in _bits(pair)) - of[pair] for pair in (_L | _C, _L | _M, _C | _M)}
    three = of[ENGINES] - of[_L] - of[_C] - of[_M] + sum(pairs.values())
    both = {**{bit: of[bit] for bit in (_L, _C, _M)}, **pairs, ENGINES: three}
    totals = {name: both[bits] for name, bits in STATES.items() if bits is not None}
    return totals | {WAITING_ONLY: of[ANY_JOB] - of[ENGINES], NOTHING: wall_ns - of[ANY_JOB]}


def _only(totals: dict[str, int]) -> dict[str, int]:
    """The time in which the engines of a state are at work and no other."""
    only = dict(totals)
    for state in _from_many_to_one():
        for other in STATES:
            if _is_beyond(STATES[other], STATES[state]):
                only[state] -= only[other]
    return only


def _from_many_to_one() -> list[str]:
    """The states that are sets of engines, those of many engines first."""
    sets = [state for state, bits in STATES.items() if bits is not None]
    return sorted(sets, key=lambda state: -len(_bits(STATES[state] or 0)))


def _is_beyond(other: int | None, bits: int | None) -> bool:
    """Whether a set of engines has all of another and more."""
    return other is not None and bits is not None and other != bits and other & bits == bits


def _bits(engines: int) -> list[int]:
    return [bit for bit in (_L, _C, _M) if engines & bit]


OVERLAP = Question("overlap", 1, _accumulate, _finish)
