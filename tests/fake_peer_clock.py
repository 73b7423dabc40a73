"""One end of an exchange of clocks, whose memory is a file: what ``PeerClock`` is on a GPU."""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROUNDS = 64
Flags = npt.NDArray[np.uint64]


class FilePeerClock:
    """Reads the clock that it is given. ``broken`` cannot reach any other end."""

    def __init__(self, read_clock: Callable[[], int], *, broken: bool = False) -> None:
        descriptor, path = tempfile.mkstemp(prefix="musetrace-test-")
        os.ftruncate(descriptor, 2 * ROUNDS * 8)
        os.close(descriptor)
        self.handle = path.encode()
        self._read_clock = read_clock
        self._broken = broken
        self._flags = {self.handle: flags_of(path)}
        # Who has it mapped keeps it.
        atexit.register(Path(path).unlink, missing_ok=True)

    def reach(self, handle: bytes) -> None:
        if self._broken:
            raise RuntimeError("mapping the flags of another GPU's clock: no peer access")
        self._flags.setdefault(handle, flags_of(handle.decode()))

    def clear(self, patience_ns: int = 0) -> None:
        self._flags[self.handle][:] = 0

    def answer(self, handle: bytes, budget_ns: int) -> int:
        deadline = time.monotonic_ns() + budget_ns
        for number in range(ROUNDS):
            if not self._wait(0, number, deadline):
                return number
            self._flags[handle][1, number] = self._read_clock()
        return ROUNDS

    def ask(self, handle: bytes, budget_ns: int) -> Flags:
        deadline = time.monotonic_ns() + budget_ns
        self.clear()
        rounds: list[Any] = []
        for number in range(ROUNDS):
            asked = self._read_clock()
            self._flags[handle][0, number] = asked
            if not self._wait(1, number, deadline):
                break
            rounds.append((asked, int(self._flags[self.handle][1, number]), self._read_clock()))
        return np.array(rounds, dtype=np.uint64).reshape(-1, 3)

    def _wait(self, row: int, number: int, deadline: int) -> bool:
        own = self._flags[self.handle]
        while own[row, number] == 0:
            if time.monotonic_ns() > deadline:
                return False
            time.sleep(0)
        return True


def flags_of(path: str) -> Flags:
    return np.memmap(path, dtype=np.uint64, mode="r+", shape=(2, ROUNDS))
