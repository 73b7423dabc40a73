"""Idle time of the launches of one kind in one step, as sums that add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from musetrace.analysis.idle_pieces import IdlePieces
from musetrace.analysis.selection import StepSpans

Ints = npt.NDArray[np.int64]


@dataclass
class Part:
    """Some time of one rank's launches; ``pieces`` of it by launch."""

    total_ns: int = 0
    pieces: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class IdleSums:
    """The launches of one kind in one step, by rank; sums of parts of it add up.

    ``wall`` is the time of all blocks, a piece for each block of a launch; ``idle`` by cause, a number of
    ``IdlePieces``.
    """

    wall: dict[int, Part] = field(default_factory=lambda: defaultdict(Part))
    idle: dict[int, dict[int, Part]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Part)))

    def add(self, spans: StepSpans, pieces: IdlePieces, of_kind: Ints) -> None:
        """Add the launches of one rank that stand at ``of_kind`` in ``spans``."""
        launches = len(spans.launch_id)
        chosen = np.zeros(launches, dtype=np.bool_)
        chosen[of_kind] = True
        launch = pieces.instances % launches
        mine = chosen[launch]
        _add(self.wall[spans.rank], spans, launch[mine], pieces.wall_ns[mine])
        launch = pieces.instance % launches
        mine = chosen[launch]
        order = np.argsort(pieces.cause[mine], kind="stable")
        causes, starts = np.unique(pieces.cause[mine][order], return_index=True)
        bounds = np.append(starts, len(order))
        launch, length_ns = launch[mine][order], pieces.length_ns[mine][order]
        for cause, first, past in zip(causes.tolist(), bounds[:-1], bounds[1:], strict=True):
            _add(self.idle[cause][spans.rank], spans, launch[first:past], length_ns[first:past])

    def blocks(self, rank: int | None) -> int:
        """How many blocks of launches there are, on a rank or on all."""
        return sum(sum(part.pieces.values()) for part in parts_of(self.wall, rank))


def _add(part: Part, spans: StepSpans, launch: Ints, length_ns: Ints) -> None:
    part.total_ns += int(length_ns.sum())
    counts = np.bincount(launch, minlength=len(spans.launch_id))
    for place in np.flatnonzero(counts).tolist():
        part.pieces[int(spans.launch_id[place])] += int(counts[place])


def parts_of(by_rank: Mapping[int, Part], rank: int | None) -> list[Part]:
    """The parts of a rank, or of all."""
    if rank is None:
        return list(by_rank.values())
    return [by_rank[rank]] if rank in by_rank else []
