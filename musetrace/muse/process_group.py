"""The processes that share a model, as ``torchrun`` starts them: they meet, and exchange bytes.

By gloo; and what is small through memory, once they know that they are on one host.

What the ranks of a model send each other inside a launch does not come by here: see ``peer_device``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from musetrace.errors import DeviceError, one_line
from musetrace.muse.mailboxes import MESSAGE_BYTES, Mailboxes
from musetrace.record.process_place import ProcessPlace

# Until all processes are there, and again until all have their weights.
START_TIMEOUT_S = 300.0
# Until all have ended a pass. Inside a launch the budget counts; this is for a process that stands still.
MEETING_TIMEOUT_S = 60.0

Bytes = npt.NDArray[np.uint8]


@dataclass
class OpenExchange:
    """Bytes on their way: ``told`` [process] is complete when all ``works``, of a peer each, have ended."""

    told: list[Bytes]
    works: list[tuple[int, Any]] = field(default_factory=list)


class ProcessGroup:
    """All processes, met.

    Every process makes its groups in the same order, and calls the same methods in the same order.

    Args:
        place: of this process.
        timeout_s: how long to wait for the others to start.

    Raises:
        DeviceError: they did not come.
    """

    def __init__(self, place: ProcessPlace, timeout_s: float = START_TIMEOUT_S) -> None:
        self.place = place
        self._lost = ""
        self._begun: OpenExchange | None = None
        self._boxes: Mailboxes | None = None
        timeout = timedelta(seconds=timeout_s)
        try:
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=timeout)
            self._group: Any = dist.new_group(backend="gloo", timeout=timeout)
        except (RuntimeError, ValueError) as error:
            raise DeviceError(
                f"process {place.process} has not met all {place.processes} processes within {timeout_s:g} s "
                f"({one_line(error)}); look for the one that ended, and start all of them again"
            ) from None

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Once something fails, the others hear of it."""
        if kind is not None:
            self.close()

    def require_whole(self) -> None:
        """Raises DeviceError once a process was lost: there is no going on without it."""
        if self._lost:
            raise DeviceError(self._lost)

    def share_memory(self) -> None:
        """Exchange small messages through memory from now on, where that is possible; all are on one host.

        Raises:
            DeviceError: a process is gone.
        """
        if self._boxes is None:
            self._boxes = Mailboxes.open(self.place, self.exchange_any)

    def exchange(self, mine: Bytes, timeout_s: float = MEETING_TIMEOUT_S) -> list[Bytes]:
        """Send all others uint8[n], the same n in every process, and get theirs.

        Returns:
            [process], the own among them.

        Raises:
            DeviceError: a process is gone, or was not heard of within ``timeout_s``; the message names it.
        """
        self.require_whole()
        if self._boxes is None or mine.nbytes > MESSAGE_BYTES:
            return self.end_exchange(self.begin_exchange(mine), timeout_s)
        told = self._boxes.exchange(mine, timeout_s, lambda peer, late: self._miss(peer, late, timeout_s))
        self.require_whole()
        return told

    def begin_exchange(self, mine: Bytes) -> OpenExchange:
        """The begin of :meth:`exchange`; :meth:`end_exchange` brings its result, also behind other exchanges.

        Raises as that does.
        """
        self.require_whole()
        self._end_begun()
        told = [np.empty_like(mine) for _ in range(self.place.processes)]
        told[self.place.process] = mine
        begun = OpenExchange(told)
        for peer in range(self.place.processes):
            if peer != self.place.process:
                begun.works += self._begin(peer, dist.irecv, told[peer])
                begun.works += self._begin(peer, dist.isend, mine)
        self._begun = begun
        return begun

    def end_exchange(self, begun: OpenExchange, timeout_s: float = MEETING_TIMEOUT_S) -> list[Bytes]:
        """What all have sent. Raises as :meth:`exchange`."""
        deadline = time.monotonic() + timeout_s
        for peer, work in begun.works:
            self._finish(peer, work, deadline, timeout_s)
        self.require_whole()
        begun.works.clear()
        return begun.told

    def _end_begun(self) -> None:
        """Exchanges end in the order in which they begin."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self.end_exchange(begun)

    def exchange_any(self, mine: bytes, timeout_s: float = START_TIMEOUT_S) -> list[bytes]:
        """As :meth:`exchange`, for bytes of any length."""
        lengths = self.exchange(np.array([len(mine)], dtype="<i8").view(np.uint8), timeout_s)
        sizes = [int(length.view("<i8")[0]) for length in lengths]
        padded = np.zeros(max(1, *sizes), dtype=np.uint8)
        padded[: len(mine)] = np.frombuffer(mine, dtype=np.uint8)
        parts = self.exchange(padded, timeout_s)
        return [part[:size].tobytes() for part, size in zip(parts, sizes, strict=True)]

    def meet(self, timeout_s: float = MEETING_TIMEOUT_S) -> None:
        """Until all processes are here. Raises as :meth:`exchange`."""
        self.exchange(np.zeros(1, dtype=np.uint8), timeout_s)

    def close(self) -> None:
        """Part from the others: whoever still waits for this process is told that it is gone."""
        self._lost = self._lost or f"process {self.place.process} has parted from the others; start all again"
        if self._boxes is not None:
            self._boxes.part()
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _begin(self, peer: int, start: Callable[..., Any], data: Bytes) -> list[tuple[int, Any]]:
        try:
            return [(peer, start(torch.from_numpy(data), peer, self._group))]
        except RuntimeError:
            self._lose(peer, "its connection is closed")
            return []

    def _finish(self, peer: int, work: Any, deadline: float, timeout_s: float) -> None:
        try:
            work.wait(whole_milliseconds(deadline - time.monotonic()))
        except RuntimeError:
            late = time.monotonic() >= deadline
            self._miss(peer, late, timeout_s)
            if late:
                # gloo ends all connections then: what the others' say is no longer theirs.
                self.require_whole()

    def _miss(self, peer: int, late: bool, timeout_s: float) -> None:
        self._lose(peer, f"not heard of for {timeout_s:g} s" if late else "its connection is closed")

    def _lose(self, peer: int, why: str) -> None:
        self._lost = self._lost or (
            f"process {peer} of {self.place.processes} is gone ({why}); end the others and start all again"
        )


def whole_milliseconds(left_s: float) -> timedelta:
    """``left_s`` rounded up, and at least one: gloo drops parts of one, and a wait would end early."""
    return timedelta(milliseconds=max(1, math.ceil(1000 * left_s)))
