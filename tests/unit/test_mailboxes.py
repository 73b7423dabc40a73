"""Small messages through shared memory: who sends what, and what becomes of those who do not come."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from musetrace.muse.mailboxes import MESSAGE_BYTES, Mailboxes
from musetrace.record.process_place import ProcessPlace

Lost = list[tuple[int, bool]]


@pytest.fixture
def peer() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands still."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def boxes_of(processes: int, ends: list[int] | None = None) -> list[Mailboxes]:
    """Of so many processes, all of them in this one."""
    words = np.zeros(Mailboxes.size(processes), dtype=np.int64)
    numbers = ends or [os.pidfd_open(os.getpid())] * processes
    return [Mailboxes(ProcessPlace(n, processes, n), words, numbers) for n in range(processes)]


def nobody_is_lost(process: int, late: bool) -> None:
    pytest.fail(f"process {process} was lost")


def message(process: int, number: int) -> npt.NDArray[np.uint8]:
    """Another length and other bytes each time."""
    return np.random.default_rng((process, number)).integers(
        256, size=number % (MESSAGE_BYTES + 1), dtype=np.uint8
    )


@pytest.mark.parametrize("processes", [2, 5])
def test_every_process_gets_every_message(processes: int) -> None:
    """Of 600 exchanges, some of whose processes are late."""
    boxes = boxes_of(processes)
    together = threading.Barrier(processes)

    def run(process: int) -> list[list[bytes]]:
        together.wait()
        told = []
        for number in range(600):
            if (number + process) % 50 == 0:
                time.sleep(0.002)
            lost: Lost = []
            parts = boxes[process].exchange(
                message(process, number), 30, lambda *who, to=lost: to.append(who)
            )
            assert not lost
            told.append([part.tobytes() for part in parts])
        return told

    with ThreadPoolExecutor(processes) as pool:
        of_all = list(pool.map(run, range(processes)))
    expected = [[message(p, number).tobytes() for p in range(processes)] for number in range(600)]
    assert all(told == expected for told in of_all)


def test_a_message_that_came_in_part_is_waited_for() -> None:
    first, second = boxes_of(2)
    second._number = 1
    second._write(np.arange(40, dtype=np.uint8))
    begin = 8 * (second._box(1, 1) + 8)
    whole = bytes(second._bytes[begin : begin + 40])
    second._bytes[begin + 32 : begin + 40] = bytes(8)

    def complete() -> None:
        second._bytes[begin : begin + 40] = whole

    timer = threading.Timer(0.05, complete)
    timer.start()
    told = first.exchange(np.zeros(1, dtype=np.uint8), 10, nobody_is_lost)
    timer.join()
    assert told[1].tolist() == list(range(40))


def lost_by(boxes: Mailboxes, timeout_s: float) -> Lost:
    lost: Lost = []
    boxes.exchange(np.zeros(1, dtype=np.uint8), timeout_s, lambda *who: lost.append(who))
    return lost


def test_a_late_process_is_named(peer: subprocess.Popen[bytes]) -> None:
    own = os.pidfd_open(os.getpid())
    begin = time.monotonic()
    assert lost_by(boxes_of(3, [own, own, os.pidfd_open(peer.pid)])[0], 0.05)[-1] == (2, True)
    assert time.monotonic() - begin < 20


def test_a_process_that_ended_is_named_at_once(peer: subprocess.Popen[bytes]) -> None:
    """Also while nobody has asked how it ended."""
    boxes = boxes_of(2, [os.pidfd_open(os.getpid()), os.pidfd_open(peer.pid)])
    peer.kill()
    begin = time.monotonic()
    assert lost_by(boxes[0], 60) == [(1, False)]
    assert time.monotonic() - begin < 20


def test_what_a_process_said_before_it_parted_is_heard() -> None:
    first, second = boxes_of(2)
    second._number = 1
    second._write(np.array([7], dtype=np.uint8))
    second.part()
    told = first.exchange(np.zeros(1, dtype=np.uint8), 60, nobody_is_lost)
    assert told[1].tolist() == [7]
    assert lost_by(first, 60) == [(1, False)]


def test_boxes_that_one_process_cannot_open_are_used_by_none() -> None:
    place = ProcessPlace(0, 2, 0)

    def exchange_any(mine: bytes, answers: list[bytes]) -> list[bytes]:
        return [mine, answers.pop(0)]

    told = f"{os.getpid()} -1".encode()
    for answer, opened in ((b"no", False), (b"yes", True)):
        answers = [told, answer]
        made = Mailboxes.open(place, lambda mine, rest=answers: exchange_any(mine, rest))
        assert (made is not None) == opened
    other = Mailboxes.open(ProcessPlace(1, 2, 1), lambda mine: [b"0 -1" if b" " in mine else b"no", mine])
    assert other is None
