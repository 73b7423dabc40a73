"""The clock of another GPU, read through its memory: an exchange of flags, and the arithmetic behind it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from musetrace.errors import DeviceError
from musetrace.store.payloads import PeerOffset

Rounds = npt.NDArray[np.uint64]


class PeerClock(Protocol):
    """One GPU's end of an exchange of flags with a GPU of another process.

    ``handle`` is what the other process needs to reach this end's memory, plain bytes. Every method may raise
    RuntimeError, which says what CUDA refused.
    """

    handle: bytes

    def reach(self, handle: bytes) -> None:
        """Map the memory of another end; one that is mapped already stays so."""

    def clear(self, patience_ns: int) -> None:
        """Empty the own flags, before the other end may ask; the GPU's other work may hold it up so long."""

    def answer(self, handle: bytes, budget_ns: int) -> int:
        """Answer the other end with the time of the own clock, round by round; returns how many rounds.

        This and :meth:`ask` take the budget once they run on the GPU, and wait four budgets (2 s at most) for
        that.
        """

    def ask(self, handle: bytes, budget_ns: int) -> Rounds:
        """Ask the other end. Returns uint64[n, 3] in ns: asked, answered (the other's clock), answer seen."""


_ends: dict[int, PeerClock] = {}


def peer_clock_of(module: Any, gpu: int) -> PeerClock:
    """The end of this process's GPU, made once: others may have its memory mapped as long as it lives.

    Args:
        module: the compiled CUDA module.
        gpu: its number.

    Raises:
        RuntimeError: CUDA refused.
    """
    if gpu not in _ends:
        module.set_device(gpu)
        _ends[gpu] = module.PeerClock()
    return _ends[gpu]


def offset_of(rounds: Rounds, tick_ns: int) -> PeerOffset:
    """How far the other clock is ahead, by the round that came back soonest.

    NTP's arithmetic, where the other end reads its clock once (t1 = t2):
    offset = ((t1 - t0) + (t2 - t3)) / 2. The other's reading lies between t0 and t3, wherever it was made,
    and each reading may be late by a tick: the error is at most (t3 - t0) / 2 + tick.

    Args:
        rounds: uint64[n, 3], see :meth:`PeerClock.ask`.
        tick_ns: the coarser of the two clocks' steps.

    Raises:
        DeviceError: there are no rounds, or no steady offset fits all of them.
    """
    if len(rounds) == 0:
        raise DeviceError("the GPU of rank 0 did not answer")
    asked, answered, seen = rounds.astype(np.int64).T
    least, most = int((answered - seen).max()) - tick_ns, int((answered - asked).min()) + tick_ns
    if (seen < asked).any() or least > most:
        raise DeviceError("a clock was set while the two were compared")
    best = int(np.argmin(seen - asked))
    t0, t1, t3 = int(asked[best]), int(answered[best]), int(seen[best])
    at_ns = t0 + (t3 - t0) // 2
    return PeerOffset(at_ns=at_ns, offset_ns=t1 - at_ns, error_ns=(t3 - t0 + 1) // 2 + tick_ns)
