"""Clocks compared between steps: processes as threads, with a clock and a store in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import musetrace
from musetrace.record import clock_comparison
from musetrace.record.clock_comparison import MOST_FAILURES, ClockComparison, Compared
from musetrace.record.clock_moments import EVERY_S, FIRST_STEPS, ClockMoments
from musetrace.record.meeting import Meeting
from musetrace.record.peer_clock import PeerClock
from musetrace.record.process_place import ProcessPlace
from tests.fake_peer_clock import FilePeerClock
from tests.host_device import HostDevice
from tests.unit.test_meeting import DictStore

AHEAD_NS = 1_000_000_000
READY_S = 0.2

Opened = Callable[[], PeerClock] | None


class BusyClock(FilePeerClock):
    """Of a GPU that has other work while ``busy``."""

    busy = False

    def clear(self, patience_ns: int = 0) -> None:
        if self.busy:
            raise RuntimeError("the GPU is busy: the exchange of clocks has not ended in time")
        super().clear(patience_ns)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = replace(clock_comparison._BETWEEN, ready_s=READY_S)
    monkeypatch.setattr(clock_comparison, "_BETWEEN", stage)


class Processes:
    """As many processes as there are ends; process p's clock is p s behind rank 0's."""

    def __init__(self, ends: list[Opened]) -> None:
        self.store = DictStore()
        self.parts = []
        for process, end in enumerate(ends):
            meeting = Meeting(ProcessPlace(process, len(ends), process), self.store)
            meeting._prefix = "recording/"
            self.parts.append(ClockComparison(meeting, end, 1))

    def all(
        self, act: Callable[[ClockComparison], Compared | None], *, but: int = -1
    ) -> list[Compared | None]:
        """What comes out of it in each process, at one time; None for one that does not come."""
        found: list[Compared | None] = [None] * len(self.parts)

        def run(process: int) -> None:
            found[process] = act(self.parts[process])

        threads = [threading.Thread(target=run, args=(p,)) for p in range(len(self.parts)) if p != but]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        return found


def clock_of(process: int) -> FilePeerClock:
    return BusyClock(lambda: time.monotonic_ns() - process * AHEAD_NS)


def behind(process: int) -> Opened:
    return lambda: clock_of(process)


@pytest.fixture
def three() -> Iterator[Processes]:
    made = Processes([behind(process) for process in range(3)])
    made.all(ClockComparison.first)
    yield made
    for part in made.parts:
        part._meeting.leave()


def check(found: list[Compared | None], processes: tuple[int, ...] = (1, 2)) -> None:
    assert found[0] == Compared()
    for process in processes:
        compared = found[process]
        assert compared is not None
        assert compared.peer is not None, compared.failure
        assert abs(compared.peer.offset_ns - process * AHEAD_NS) <= compared.peer.error_ns


def test_every_process_is_compared_each_time_and_all_plan_the_same_next_moment(three: Processes) -> None:
    for _ in range(3):
        check(three.all(ClockComparison.between))
        assert len({part.moments._left for part in three.parts}) == 1
    check([Compared(), *three_last(three)[1:]])


def three_last(three: Processes) -> list[Compared | None]:
    server = threading.Thread(target=three.parts[0].serve_last)
    server.start()
    found = three.all(ClockComparison.last)
    server.join(20)
    return found


def test_all_go_on_at_one_time(three: Processes) -> None:
    went_on: list[int] = []

    def between(part: ClockComparison) -> Compared | None:
        compared = part.between()
        went_on.append(time.monotonic_ns())
        return compared

    three.all(between)
    told = three.parts[0]._meeting.heard("clocks-1/over")
    assert told is not None
    assert min(went_on) >= told["resume_ns"]


def test_a_process_that_does_not_come_is_not_waited_for_and_the_next_time_is_good(three: Processes) -> None:
    begin = time.monotonic()
    check(three.all(ClockComparison.between, but=2), (1,))
    assert time.monotonic() - begin < READY_S + 5
    # It comes late, finds the time over, and is with the others again.
    late = three.parts[2].between()
    assert late is not None
    assert late.failure == "rank 0 had no turn to give"
    check(three.all(ClockComparison.between))
    last = three_last(three)[2]
    assert last is not None
    assert last.peer is not None
    assert last.failure == "1 of 2 comparisons between steps failed: rank 0 had no turn to give"


def test_where_all_fail_three_times_nobody_compares_any_more_until_the_end(three: Processes) -> None:
    for part in three.parts:
        part._peer.busy = True  # type: ignore[union-attr]
    for _ in range(MOST_FAILURES):
        found = three.all(ClockComparison.between)
        assert ["the GPU is busy" in one.failure for one in found[1:] if one] == [True, True]
    assert [part.moments.step() for part in three.parts] == [False] * 3
    keys = set(three.store.kept)
    assert three.all(ClockComparison.between) == [None] * 3
    assert set(three.store.kept) == keys
    for part in three.parts:
        part._peer.busy = False  # type: ignore[union-attr]
    last = three_last(three)
    assert all(one is not None and one.peer is not None for one in last[1:])


def test_a_process_that_cannot_be_compared_asks_three_times_and_the_others_go_on(three: Processes) -> None:
    three.parts[2]._peer.busy = True  # type: ignore[union-attr]
    for number in range(MOST_FAILURES + 2):
        found = three.all(ClockComparison.between)
        check(found, (1,))
        failed = found[2]
        assert failed is not None
        assert bool(failed.failure) == (number < MOST_FAILURES)


def test_without_an_end_in_rank_0_nothing_is_compared_and_nothing_is_waited_for() -> None:
    for ends in ([None, behind(1)], [None, None]):
        made = Processes(list(ends))
        made.all(ClockComparison.first)
        assert made.all(ClockComparison.between) == [None, None]
        assert not [key for key in made.store.kept if "clocks-1" in key]


def test_a_process_without_an_end_is_told_at_once() -> None:
    made = Processes([behind(0), None, behind(2)])
    made.all(ClockComparison.first)
    begin = time.monotonic()
    check(made.all(ClockComparison.between), (2,))
    assert time.monotonic() - begin < 10


def test_a_store_that_breaks_ends_it_without_an_error(three: Processes) -> None:
    three.store.broken = True
    assert three.all(ClockComparison.between) == [None] * 3


def test_a_recorder_that_is_alone_compares_nothing_and_one_that_cannot_goes_on(tmp_path: Path) -> None:
    device = HostDevice()
    with musetrace.record(tmp_path / "run", stamps="store") as recorder:
        assert not recorder.compare_clocks()
        collector = recorder.attach(device.source())
        device.run_step(collector, 0)
        assert not recorder.compare_clocks()
        assert not recorder.compare_clocks(when_due=True)

        def broken(**_: object) -> None:
            raise RuntimeError("an illegal memory access")

        recorder._output.clocks_between = broken  # type: ignore[assignment,union-attr]
        assert not recorder.compare_clocks()
        device.run_step(collector, 1)
        assert recorder.state == "recording"
    assert not recorder.compare_clocks()
    assert (recorder.close().verdict, recorder.close().steps) == ("complete", 2)


def test_moments_come_after_some_steps_and_then_every_few_seconds() -> None:
    now_s = [0.0]
    rank_0, other = ClockMoments(lambda: now_s[0]), ClockMoments()
    step_s, at_s = 0.01, []
    for _ in range(2000):
        now_s[0] += step_s
        due = rank_0.step()
        assert other.step() == due
        if due:
            at_s.append(now_s[0])
            other.follow(rank_0.plan())
    assert at_s[0] == pytest.approx(FIRST_STEPS * step_s)
    apart_s = [later - sooner for sooner, later in zip([0.0, *at_s], at_s, strict=False)]
    # Ever further apart, by four times at most, up to the interval.
    assert all(later <= 4 * sooner + 1e-9 for sooner, later in zip(apart_s, apart_s[1:], strict=False))
    assert apart_s[-3:] == pytest.approx([EVERY_S] * 3, rel=0.02)


def test_slow_steps_have_a_moment_each_and_a_plan_of_none_is_kept() -> None:
    now_s = [0.0]
    moments = ClockMoments(lambda: now_s[0])
    for _ in range(FIRST_STEPS):
        now_s[0] += 5.0
        due = moments.step()
    assert due
    assert moments.plan() == 1
    assert moments.step()
    moments.follow(0)
    assert [moments.step() for _ in range(100)] == [False] * 100
