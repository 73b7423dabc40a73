"""Small messages between the processes of one host, through memory that they share.

A step has several of them, and by sockets each would cost as much as the layers of a small model. A process
that waits looks again and again, and keeps the interpreter meanwhile: who has to ask for it back, behind a
wait, gets it late while a recording is drained.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch

from musetrace.record.process_place import ProcessPlace

MESSAGE_BYTES = 192
# Words of a box: number of the exchange, length and check of its message, and whether its process has parted.
_NUMBER, _LENGTH, _CHECK, _PARTED, _HEADER_WORDS = 0, 1, 2, 3, 8
_BOX_WORDS = _HEADER_WORDS + MESSAGE_BYTES // 8
# About 0.2 ms; behind that others of this process are let in between two looks.
_LOOKS_AT_ONCE = 2000
_PAUSE_S = 50e-6

Bytes = npt.NDArray[np.uint8]
ExchangeAny = Callable[[bytes], list[bytes]]


class PartedError(Exception):
    """A process has ended, or has parted from the others."""


class Mailboxes:
    """A box for each process, in two turns: who writes the next message but one has heard of all others.

    Args:
        place: of this process.
        words: int64[:meth:`size`], the same memory in all processes; zeros to begin with.
        processes: what becomes readable when process i ends, a file number; its own is not looked at.
    """

    def __init__(self, place: ProcessPlace, words: npt.NDArray[np.int64], processes: list[int]) -> None:
        self._place = place
        self._words, self._bytes = words.data, words.data.cast("B")
        self._opened: list[int] = []
        self._ends: dict[int, select.poll] = {}
        for process, number in enumerate(processes):
            if process != place.process:
                self._ends[process] = select.poll()
                self._ends[process].register(number, select.POLLIN)
        self._number = 0

    @staticmethod
    def size(processes: int) -> int:
        """Words of two boxes for each process."""
        return 2 * processes * _BOX_WORDS

    @classmethod
    def open(cls, place: ProcessPlace, exchange_any: ExchangeAny) -> Mailboxes | None:
        """Boxes that all have opened; None where one cannot.

        Args:
            exchange_any: what brings bytes to all others and theirs here, by [process].
        """
        size, made = cls.size(place.processes), -1
        if place.process == 0:
            with suppress(OSError, AttributeError):
                made = _memory_of(8 * size)
        told = [tuple(map(int, text.split())) for text in exchange_any(b"%d %d" % (os.getpid(), made))]
        boxes: Mailboxes | None = None
        with suppress(OSError, RuntimeError, AttributeError):
            path = f"/proc/{told[0][0]}/fd/{told[0][1]}"
            words = torch.from_file(path, shared=True, size=size, dtype=torch.int64).numpy()
            ends = [os.pidfd_open(pid) for pid, _ in told]
            boxes = cls(place, words, ends)
            boxes._opened = ends
        able = exchange_any(b"yes" if boxes is not None else b"no")
        if made >= 0:
            os.close(made)
        return boxes if all(answer == b"yes" for answer in able) else None

    def exchange(self, mine: Bytes, timeout_s: float, lose: Callable[[int, bool], None]) -> list[Bytes]:
        """Leave uint8[n], at most MESSAGE_BYTES, for all others, and take theirs.

        Args:
            lose: told (process, whether it is only late) when one is not heard of.

        Returns:
            [process], the own among them; undefined behind ``lose``.
        """
        self._number += 1
        self._write(mine)
        deadline = time.monotonic() + timeout_s
        told = [mine] * self._place.processes
        for process in self._ends:
            try:
                told[process] = self._take(process, deadline)
            except PartedError:
                lose(process, False)
            except TimeoutError:
                lose(process, True)
        return told

    def part(self) -> None:
        """Whoever waits for this process is told that it is gone; nothing is exchanged afterwards."""
        for turn in (0, 1):
            self._words[self._box(self._place.process, turn) + _PARTED] = 1
        while self._opened:
            os.close(self._opened.pop())

    def _box(self, process: int, turn: int) -> int:
        """Its first word."""
        return (turn * self._place.processes + process) * _BOX_WORDS

    def _write(self, mine: Bytes) -> None:
        box, data = self._box(self._place.process, self._number % 2), mine.tobytes()
        begin = 8 * (box + _HEADER_WORDS)
        self._bytes[begin : begin + len(data)] = data
        self._words[box + _LENGTH] = len(data)
        self._words[box + _CHECK] = zlib.crc32(data, self._number & 0xFFFFFFFF)
        self._words[box + _NUMBER] = self._number

    def _take(self, process: int, deadline: float) -> Bytes:
        """The message of this turn.

        Raises:
            PartedError: the process is gone.
            TimeoutError: it was not heard of.
        """
        box, looks = self._box(process, self._number % 2), 0
        while True:
            # Before the message is looked for: it may have been the last thing that the process did.
            is_gone = looks >= _LOOKS_AT_ONCE and self._is_gone(process)
            data = self._message(box)
            if data is not None:
                return data
            if is_gone:
                raise PartedError
            looks += 1
            if looks < _LOOKS_AT_ONCE:
                continue
            if time.monotonic() >= deadline:
                raise TimeoutError
            time.sleep(_PAUSE_S)

    def _is_gone(self, process: int) -> bool:
        parted = self._words[self._box(process, 0) + _PARTED] != 0
        return parted or bool(self._ends[process].poll(0))

    def _message(self, box: int) -> Bytes | None:
        """None where not all of it has come: other processors may see words in another order."""
        if self._words[box + _NUMBER] != self._number:
            return None
        begin, length = 8 * (box + _HEADER_WORDS), self._words[box + _LENGTH]
        data = bytes(self._bytes[begin : begin + length])
        if zlib.crc32(data, self._number & 0xFFFFFFFF) != self._words[box + _CHECK]:
            return None
        return np.frombuffer(data, dtype=np.uint8)


def _memory_of(size_bytes: int) -> int:
    """The file number of memory that lives as long as a process has it, and that nobody can cut short."""
    number = os.memfd_create("musetrace-mailboxes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(number, size_bytes)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return number
