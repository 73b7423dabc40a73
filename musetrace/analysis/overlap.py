"""How much of its time each engine of a block is at work, and how much of that beside another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.clock_quality import share_uncertainty, sum_uncertainty_ns
from musetrace.analysis.engine_unions import (
    ANY_JOB,
    COMMUNICATION,
    COMPUTE,
    ENGINES,
    LOADS,
    EngineUnions,
    Pieces,
    engines_of_jobs,
)
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import Counted, Selection, StepSpans, spans_by_step

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
    counted, state, engines = Counted(), Overlap(), engines_of_jobs(run)
    for spans in spans_by_step(run, Selection(layer_kind, rank, step), counted):
        state = state + Overlap.of(spans, run.blocks, engines)
    return answer(run, _FIELDS, state.rows(tick_ns(run)), counted)


@dataclass(frozen=True)
class Overlap:
    """Sums over launches: of two sets of them they are the sum of both.

    ``unions_ns`` by set of engines; ``squares`` by state, the sum over launches of the squared number of
    differences of stamps; ``wall_squares`` the same for the whole time.
    """

    instances: int = 0
    wall_ns: int = 0
    wall_squares: int = 0
    unions_ns: Mapping[int, int] = field(default_factory=lambda: dict.fromkeys(_SETS, 0))
    squares: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))

    @classmethod
    def of(cls, spans: list[StepSpans], blocks: int, engines: npt.NDArray[np.uint8]) -> Overlap:
        """Those of one step, all ranks together; ``engines`` is ``engines_of_jobs``."""
        found = [EngineUnions.of(one, blocks, engines) for one in spans]
        unions = [one.unions(_SETS) for one in found]
        stamps = _by_launch(spans, found, unions)
        wall = stamps.pop("")
        return cls(
            instances=sum(int(one.instances.sum()) for one in found),
            wall_ns=sum(int(one.walls @ one.instances) for one in found),
            wall_squares=int((wall * wall).sum()),
            unions_ns={key: sum(one[key].length_ns for one in unions) for key in _SETS},
            squares={state: int((number * number).sum()) for state, number in stamps.items()},
        )

    def __add__(self, other: Overlap) -> Overlap:
        """Of both sets of launches, which have none in common."""
        return Overlap(
            self.instances + other.instances,
            self.wall_ns + other.wall_ns,
            self.wall_squares + other.wall_squares,
            {key: self.unions_ns[key] + other.unions_ns[key] for key in _SETS},
            {state: self.squares[state] + other.squares[state] for state in STATES},
        )

    def rows(self, tick: int | None) -> list[dict[str, object]]:
        """The answer's rows."""
        if not self.instances:
            return []
        totals, only = self._totals(), self._only()
        of_wall = sum_uncertainty_ns(tick, self.wall_squares)
        rows: list[dict[str, object]] = []
        for state in STATES:
            off = sum_uncertainty_ns(tick, self.squares[state])
            rows.append(
                {
                    "state": state,
                    "n": self.instances,
                    "total_ns": totals[state],
                    "total_uncertainty_ns": off,
                    "only_ns": only[state],
                    "mean_ns": (2 * totals[state] + self.instances) // (2 * self.instances),
                    "share": totals[state] / self.wall_ns if self.wall_ns else None,
                    "share_uncertainty": share_uncertainty(totals[state], off, self.wall_ns, of_wall),
                    "only_share": only[state] / self.wall_ns if self.wall_ns else None,
                }
            )
        return rows

    def _totals(self) -> dict[str, int]:
        """The time in which at least a state's engines are at work: from unions, by inclusion-exclusion."""
        of = self.unions_ns
        pairs = {pair: sum(of[bit] for bit in _bits(pair)) - of[pair] for pair in (_L | _C, _L | _M, _C | _M)}
        three = of[ENGINES] - of[_L] - of[_C] - of[_M] + sum(pairs.values())
        both = {**{bit: of[bit] for bit in (_L, _C, _M)}, **pairs, ENGINES: three}
        totals = {state: both[bits] for state, bits in STATES.items() if bits is not None}
        return totals | {WAITING_ONLY: of[ANY_JOB] - of[ENGINES], NOTHING: self.wall_ns - of[ANY_JOB]}

    def _only(self) -> dict[str, int]:
        """The time in which the engines of a state are at work and no other."""
        totals = self._totals()
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


def _by_launch(
    spans: list[StepSpans], found: list[EngineUnions], unions: list[dict[int, Pieces]]
) -> dict[str, Ints]:
    """How many differences of stamps each state's time has in each launch, ranks together; "" is all time."""
    ids, places = np.unique(np.concatenate([one.launch_id for one in spans]), return_inverse=True)

    def sums(parts: list[Ints]) -> Ints:
        total = np.zeros(len(ids), dtype=np.int64)
        np.add.at(total, places, np.concatenate(parts))
        return total

    stamps = {key: sums([one[key].stamps for one in unions]) for key in _SETS}
    instances = sums([one.instances for one in found])
    of_states = {
        state: np.sum([stamps[bit] for bit in _bits(bits)], axis=0)
        for state, bits in STATES.items()
        if bits is not None
    }
    return {
        **of_states,
        WAITING_ONLY: stamps[ANY_JOB] + stamps[ENGINES],
        NOTHING: stamps[ANY_JOB] + instances,
        "": instances,
    }
