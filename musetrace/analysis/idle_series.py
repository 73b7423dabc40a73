"""Idle time of a block by cause, and its busy time: a number of each for every step of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.clock_quality import sum_uncertainty_ns
from musetrace.analysis.idle import cause_names
from musetrace.analysis.idle_pieces import KindClasses, idle_pieces
from musetrace.analysis.idle_sums import IdleSums, Part, parts_of
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.step_series import Name, Series, spans_with_kinds

Ints = npt.NDArray[np.int64]

BUSY, IDLE = "busy", "idle"


@dataclass(frozen=True)
class IdleSeries:
    """For every step that has launches of a kind, ns per block and launch.

    ``causes`` by (kind of launch, cause, op, wait, awaited job), as ``idle`` names them and "" where it does
    not; ``by_rank`` the same of each rank. ``times`` by ("busy" or "idle", kind of launch). ``nothing``, by
    kind of launch: zeros, for a cause that the run does not have.
    """

    causes: dict[Name, Series] = field(default_factory=dict)
    by_rank: dict[tuple[int, Name], Series] = field(default_factory=dict)
    times: dict[Name, Series] = field(default_factory=dict)
    nothing: dict[str, Series] = field(default_factory=dict)

    def cause(self, name: Name, rank: int | None = None) -> Series:
        """The series of a cause, on all ranks or on one."""
        found = self.causes.get(name) if rank is None else self.by_rank.get((rank, name))
        return found or self.nothing[name[0]]


def idle_series(run: RunLike, ranks: Collection[int], layer_kind: str | None) -> IdleSeries:
    """The idle and busy time of a block in a launch.

    A step's number is the mean over ranks x launches of the kind x blocks that count (``idle`` says which,
    and what a cause is). Idle and busy time of a kind add up to the mean length of its launches. What the
    clock leaves open is that of a sum of differences (``clock_quality``), one for each piece, by the number
    of blocks, in the step where that is most.
    """
    classes = KindClasses.of(run)
    steps: dict[str, dict[int, IdleSums]] = {}
    launches: dict[str, int] = {}
    for spans, kinds in spans_with_kinds(run, ranks, layer_kind):
        if not len(kinds):
            continue
        pieces = idle_pieces(spans, run.blocks, classes)
        for kind in dict.fromkeys(kinds.tolist()):
            of_kind = np.flatnonzero(kinds == kind)
            launches[kind] = max(launches.get(kind, 0), len(of_kind))
            steps.setdefault(kind, {}).setdefault(spans.step, IdleSums()).add(spans, pieces, of_kind)
    found = IdleSeries()
    for kind, of_steps in steps.items():
        in_order = [of_steps[step] for step in sorted(of_steps)]
        if any(one.blocks(None) for one in in_order):
            _enter(found, run, kind, _Kind(in_order, launches[kind], tick_ns(run)))
    return found


def _enter(found: IdleSeries, run: RunLike, kind: str, of_kind: _Kind) -> None:
    idle = of_kind.idle()
    found.times[BUSY, kind], found.times[IDLE, kind] = of_kind.busy(), idle
    # What is shorter than a tick may have been read as nothing.
    found.nothing[kind] = Series(np.zeros_like(idle.step_ns), of_kind.tick, of_kind.launches, 0)
    ranks = sorted({rank for one in of_kind.steps for rank in one.wall if one.blocks(rank)})
    for cause in sorted({cause for one in of_kind.steps for cause in one.idle}):
        named = cause_names(run.job_table, cause)
        name = (kind, *(named[of] or "" for of in ("cause", "op", "wait", "awaits")))
        found.causes[name] = of_kind.cause(cause, None)
        for rank in ranks:
            found.by_rank[rank, name] = of_kind.cause(cause, rank)


@dataclass(frozen=True)
class _Kind:
    """The steps of one kind of launch, in their order."""

    steps: list[IdleSums]
    launches: int
    tick: int | None

    def cause(self, cause: int, rank: int | None) -> Series:
        """Idle time of a cause."""
        return self._series([parts_of(one.idle.get(cause, {}), rank) for one in self.steps], rank)

    def idle(self) -> Series:
        """Idle time of all causes."""
        return self._series([_idle_parts(one) for one in self.steps], None)

    def busy(self) -> Series:
        """Time that is not idle: no more is left open in it than in both that it is the difference of."""
        idle = [sum(part.total_ns for part in _idle_parts(one)) for one in self.steps]
        walls = [parts_of(one.wall, None) for one in self.steps]
        parts = [[*wall, *_idle_parts(one)] for wall, one in zip(walls, self.steps, strict=True)]
        whole = self._series(parts, None)
        means = [
            _mean(sum(part.total_ns for part in wall) - idle_ns, one.blocks(None))
            for wall, idle_ns, one in zip(walls, idle, self.steps, strict=True)
            if one.blocks(None)
        ]
        return Series(np.array(means, np.int64), whole.uncertainty_ns, self.launches, whole.count)

    def _series(self, parts: list[list[Part]], rank: int | None) -> Series:
        """The mean over blocks, in each step that has some."""
        some = [
            (of, blocks) for of, one in zip(parts, self.steps, strict=True) if (blocks := one.blocks(rank))
        ]
        means = [_mean(sum(part.total_ns for part in of), blocks) for of, blocks in some]
        offs = [-(-self._off_ns(of) // blocks) for of, blocks in some]
        count = sum(sum(part.pieces.values()) for of, _ in some for part in of)
        return Series(
            np.array(means, np.int64), None if self.tick is None else max(offs), self.launches, count
        )

    def _off_ns(self, parts: list[Part]) -> int:
        """What the clock leaves open in a sum; launches are of all ranks, who may share one clock."""
        by_launch: dict[int, int] = defaultdict(int)
        for part in parts:
            for launch, pieces in part.pieces.items():
                by_launch[launch] += pieces
        return sum_uncertainty_ns(self.tick, sum(pieces**2 for pieces in by_launch.values())) or 0


def _idle_parts(sums: IdleSums) -> list[Part]:
    return [part for by_rank in sums.idle.values() for part in by_rank.values()]


def _mean(total_ns: int, blocks: int) -> int:
    """To the nearest ns; a half is rounded up."""
    return (2 * total_ns + blocks) // (2 * blocks)
