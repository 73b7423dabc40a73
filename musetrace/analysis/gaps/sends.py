"""When each block and rank was through with what a stop waits for, in the launches of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sends:
    """A rank's sends to a stop; ``last_ns`` int64[launches, blocks]: a block's last end, -1 where none."""

    spans: StepSpans
    last_ns: Ints

    @classmethod
    def of(cls, spans: StepSpans, send: int, blocks: int) -> Sends:
        """The spans of job ``send``, on so many blocks; looked for once, for all questions about a stop."""
        return cls(spans, spans.made_once(f"ends of job {send}", lambda: _last_ends(spans, send, blocks)))

    @property
    def here(self) -> Bools:
        """bool[launches, blocks]: the blocks that sent."""
        return self.last_ns >= 0

    @property
    def launches(self) -> Bools:
        """bool[launches]: those in which some block sent."""
        return np.asarray(self.here.any(axis=1))

    @property
    def latest_ns(self) -> Ints:
        """int64[launches]: when the last block was through, -1 where none sent."""
        return np.asarray(self.last_ns.max(axis=1, initial=-1))


def _last_ends(spans: StepSpans, send: int, blocks: int) -> Ints:
    sent = np.flatnonzero(spans.job == send)
    last_ns = np.full(len(spans.launch_id) * blocks, -1, dtype=np.int64)
    at = spans.launch[sent].astype(np.int64) * blocks + spans.block[sent]
    np.maximum.at(last_ns, at, spans.end[sent])
    return last_ns.reshape(-1, blocks)


def seen_on_every_rank(run: RunLike, sends: Sequence[Sends]) -> tuple[Ints, Ints] | None:
    """The launches of a step that every rank of the run sent in.

    Returns:
        Their ids, int64[n], and when the last block of each rank was through, int64[ranks, n] in ns by each
        rank's own clock, in the order of ``sends``. None where there are none, or no other rank: whoever is
        not seen may have been last.
    """
    if len(run.ranks) < 2 or {one.spans.rank for one in sends} != set(run.ranks):
        return None
    launches = [one.spans.launch_id[one.launches] for one in sends]
    shared = reduce(np.intersect1d, launches)
    if not len(shared):
        return None
    times = [
        one.spans.base_ns + one.latest_ns[one.launches][np.searchsorted(its, shared)]
        for one, its in zip(sends, launches, strict=True)
    ]
    return shared, np.stack(times)


def leads(run: RunLike, sends: Sequence[Sends]) -> tuple[Ints, Ints] | None:
    """How long each rank is through before the last one, in the launches of a step that all were seen in.

    Returns:
        Their ids, int64[n], and the leads on the aligned axis, int64[ranks, n] in ns, in the order of
        ``sends``. None as of ``seen_on_every_rank``.
    """
    every = seen_on_every_rank(run, sends)
    if every is None:
        return None
    shared, sent = every
    clocks = rank_times(run)
    aligned = [clocks[one.spans.rank].aligned(its_ns) for one, its_ns in zip(sends, sent, strict=True)]
    arrived = np.stack(aligned)
    return shared, arrived.max(axis=0) - arrived
