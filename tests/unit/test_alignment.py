"""Ranks with clocks of their own: their times come onto one axis within the error that is stated.

The oracle knows true time. A clock is a line over it, read in steps; what a recorder measures is read off the
clocks at moments that the test chooses.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.analysis.certainty.rank_clocks import RankTimes
from musetrace.errors import DeviceError
from musetrace.record.host_clock import host_clock
from musetrace.record.peer_clock import offset_of
from musetrace.store.alignment import RankClock, alignments
from musetrace.store.offset_line import MOST_POINTS, OffsetLine, OffsetPoint, line_through
from musetrace.store.payloads import Clock, PayloadError, PeerOffset, encode_json, parse_clock

SECOND = 1_000_000_000
Alignment = dict[str, Any]


@dataclass(frozen=True)
class TrueClock:
    """What a clock shows at a true time in ns: ``start_ns`` at 0, faster by ``ppb``, in steps of a tick."""

    start_ns: int
    ppb: int
    tick_ns: int = 1

    def exact(self, at: Fraction) -> Fraction:
        return self.start_ns + at * (SECOND + self.ppb) / SECOND

    def read(self, at: Fraction) -> int:
        shown = self.exact(at)
        return int(shown // self.tick_ns) * self.tick_ns


HOST = TrueClock(5_000 * SECOND, 0)
clocks = st.builds(
    TrueClock,
    st.integers(1_700_000_000 * SECOND, 1_700_000_010 * SECOND),
    st.integers(-50_000, 50_000),
    st.sampled_from([1, 32, 1000]),
)
waits = st.integers(0, 40_000)


def anchor(device: TrueClock, host: TrueClock, at: Fraction, until_read: int, until_back: int) -> Clock:
    """As a recorder reads one."""
    before, read = host.read(at), device.read(at + until_read)
    after = host.read(at + until_read + until_back)
    error_ns = (after - before + 1) // 2 + device.tick_ns
    return Clock(read, before + (after - before) // 2, 1, error_ns)


def ping_pong(mine: TrueClock, root: TrueClock, at: Fraction, rounds: list[tuple[int, int]]) -> PeerOffset:
    """Rounds that take so long on their way there and back."""
    seen = []
    for there, back in rounds:
        arrived, returned = at + there, at + there + back
        seen.append((mine.read(at), root.read(arrived), mine.read(returned)))
        at = returned + 100
    return offset_of(np.array(seen, dtype=np.uint64), max(mine.tick_ns, root.tick_ns))


def meta(rank: int, host: str = "here") -> dict[str, Any]:
    return {"process": f"process {rank}", "host_clock": host, "clock": {"name": "globaltimer"}}


def check(told: Alignment, clock: TrueClock, axis: TrueClock, at: Fraction) -> None:
    """A time of the clock, put onto the axis, is within the stated error of what the axis truly shows."""
    times = RankTimes(0, told["error_ns"], tuple(told["measured_at_ns"]), tuple(told["offsets_ns"]))
    aligned = int(times.aligned(np.array([clock.read(at)], dtype=np.int64))[0])
    assert abs(aligned - axis.exact(at)) <= told["error_ns"] + clock.tick_ns


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[TrueClock], list[RankClock], list[Fraction]]:
    """Three clocks, what their journals say, and true times between the first and the last measurement."""
    ends = Fraction(draw(st.integers(SECOND // 100, 100 * SECOND)))
    true, ranks = [], []
    for rank in range(3):
        clock = draw(clocks)
        first, last = (anchor(clock, HOST, at, draw(waits), draw(waits)) for at in (Fraction(0), ends))
        if rank == 1:
            rounds = draw(st.lists(st.tuples(waits, waits), min_size=1, max_size=5))
            moments = (Fraction(draw(st.integers(0, SECOND // 200))), ends)
            first, last = (
                replace(one, peer=ping_pong(clock, true[0], at, rounds))
                for one, at in zip((first, last), moments, strict=True)
            )
        true.append(clock)
        ranks.append(RankClock(rank, meta(rank), (first, last), first.device_ns, last.device_ns))
    moments = draw(st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=1, max_size=5))
    return true, ranks, [moment * ends for moment in moments]


@given(recordings())
def test_every_time_comes_onto_the_axis_within_the_stated_error(
    recording: tuple[list[TrueClock], list[RankClock], list[Fraction]],
) -> None:
    true, ranks, moments = recording
    told = alignments(ranks)
    assert told[0]["method"] == "same_clock"
    assert told[2]["method"] == "host_anchors"
    for rank, clock in enumerate(true):
        assert told[rank]["clock"] == rank
        for at in moments:
            check(told[rank], clock, true[0], at)
        drift, error = told[rank]["drift_ppb"], told[rank]["drift_error_ppb"]
        if rank:
            apart = Fraction(SECOND + true[0].ppb, SECOND + clock.ppb) - 1
            assert abs(apart * SECOND - Fraction(drift)) <= Fraction(error) * 2 + 1


@given(recordings(), st.integers(0, 2), st.integers(0, 100 * SECOND))
def test_a_clock_that_was_measured_once_is_within_the_error_however_long_it_ran(
    recording: tuple[list[TrueClock], list[RankClock], list[Fraction]], which: int, more: int
) -> None:
    """A rank was killed: its journal has the first anchor, and times up to the end."""
    true, ranks, moments = recording
    end = max(moments) + more
    ranks[which] = replace(ranks[which], anchors=ranks[which].anchors[:1], last_ns=true[which].read(end))
    told = alignments(ranks)
    for rank, clock in enumerate(true):
        for at in [*moments, end] if rank == which else moments:
            check(told[rank], clock, true[0], at)
    if which:
        assert told[which]["drift_ppb"] is None


@given(recordings())
def test_without_rank_0_the_others_are_aligned_to_the_first_that_is_there(
    recording: tuple[list[TrueClock], list[RankClock], list[Fraction]],
) -> None:
    true, ranks, moments = recording
    told = alignments(ranks[1:])
    assert [told[rank]["method"] for rank in (1, 2)] == ["same_clock", "host_anchors"]
    for at in moments:
        check(told[2], true[2], true[1], at)


def test_the_better_way_is_taken_and_two_by_peer_memory_are_related_by_it() -> None:
    near = PeerOffset(10, 5_000, 40)
    far = Clock(0, 1_000, 1, 9_000)
    ranks = [
        RankClock(1, meta(1), (replace(far, peer=near),)),
        RankClock(2, meta(2), (replace(far, peer=replace(near, offset_ns=-300)),)),
    ]
    told = alignments([RankClock(0, meta(0), (far,)), *ranks])
    assert [(told[r]["method"], told[r]["offset_ns"], told[r]["error_ns"]) for r in (1, 2)] == [
        ("peer_ping_pong", 5_000, 40),
        ("peer_ping_pong", -300, 40),
    ]
    # Rank 0's journal is gone. At 5,310 of rank 2's clock rank 0's was at 5,010, and rank 1's at 10.
    without = alignments(ranks)[2]
    assert (without["method"], without["offset_ns"]) == ("peer_ping_pong", -5_300)
    assert 80 <= without["error_ns"] <= 84


def test_ranks_of_one_process_and_of_one_host_clock_have_the_same_clock() -> None:
    one = {"process": "a", "host_clock": "here", "clock": {"name": "globaltimer"}}
    told = alignments([RankClock(rank, one, (Clock(5, 6, 7, 8),)) for rank in range(3)])
    assert {(told[rank]["method"], told[rank]["error_ns"], told[rank]["clock"]) for rank in told} == {
        ("same_clock", 0, 0)
    }
    host = {"host_clock": "here", "clock": {"name": "CLOCK_MONOTONIC"}}
    told = alignments([RankClock(rank, host | {"process": str(rank)}, ()) for rank in range(2)])
    assert told[1]["method"] == "same_clock"
    old = {"host": "h", "pid": 7, "clock": {"name": "globaltimer"}}
    assert alignments([RankClock(rank, old, ()) for rank in range(2)])[1]["method"] == "same_clock"


def test_ranks_of_two_hosts_are_placed_by_unix_time_and_are_not_aligned() -> None:
    first, second = Clock(1_000, 50, 900_000, 20), Clock(70, 4_000, 900_500, 20)
    told = alignments(
        [RankClock(0, meta(0), (first,)), RankClock(1, meta(1, "there"), (second,), 80, 90)],
    )[1]
    assert (told["method"], told["error_ns"], told["drift_ppb"]) == ("unix_time", None, None)
    # Half a us after rank 0's clock read 1,000, rank 1's read 70.
    assert told["offset_ns"] == 1_500 - 70
    assert told["note"] == "it is on another host, or in another time namespace, than the first rank"


@pytest.mark.parametrize("second", [Clock(SECOND, 3 * SECOND, 1, 20), Clock(SECOND, SECOND // 2, 1, 20)])
def test_a_clock_that_was_set_while_it_was_recorded_is_not_aligned(second: Clock) -> None:
    steady = (Clock(0, 0, 1, 20), Clock(SECOND, SECOND, 1, 20))
    told = alignments([RankClock(0, meta(0), steady), RankClock(1, meta(1), (Clock(0, 0, 1, 20), second))])
    assert (told[1]["method"], told[1]["error_ns"]) == ("unix_time", None)
    assert told[1]["note"] == "a clock was set while it was recorded, or not read well"


def test_anchors_without_an_error_and_journals_without_anchors_align_nothing() -> None:
    old = Clock(5, 6, 7)
    told = alignments([RankClock(rank, meta(rank), (old,)) for rank in range(2)])
    assert (told[1]["method"], told[1]["error_ns"]) == ("unix_time", None)
    told = alignments([RankClock(0, meta(0), ()), RankClock(1, {}, ())])
    assert (told[1]["method"], told[1]["offset_ns"], told[1]["error_ns"]) == ("unknown", 0, None)


def test_why_two_clocks_were_not_compared_is_kept() -> None:
    why = "mapping the memory of rank 0 (cudaIpcOpenMemHandle): invalid device context"
    anchors = (Clock(0, 0, 1, 20, peer_failure=why),)
    told = alignments([RankClock(0, meta(0), anchors[:1]), RankClock(1, meta(1), anchors)])[1]
    assert (told["method"], told["note"]) == ("host_anchors", why)
    some = (*peers((0, 5, 1)), Clock(9, 9, 1, 20, PeerOffset(9, 5, 1), "1 of 2 comparisons failed: busy"))
    told = alignments([RankClock(0, meta(0), ()), RankClock(1, meta(1), some)])[1]
    assert (told["method"], told["note"]) == ("peer_ping_pong", "1 of 2 comparisons failed: busy")


def test_a_clock_chunk_says_what_is_known_and_old_ones_say_less() -> None:
    whole = Clock(5, 6, 7, 8, PeerOffset(9, -10, 11), "why")
    for clock in (whole, Clock(5, 6, 7), replace(whole, peer=None), replace(whole, peer_failure=None)):
        assert parse_clock(encode_json(clock.to_json())) == clock
    assert Clock(5, 6, 7).to_json() == {"device_ns": 5, "host_monotonic_ns": 6, "unix_ns": 7}


@pytest.mark.parametrize(
    "wrong",
    [
        {"error_ns": -1},
        {"error_ns": "2"},
        {"peer": 3},
        {"peer": {"at_ns": 1, "offset_ns": 2}},
        {"peer": {"at_ns": 1, "offset_ns": 1 << 70, "error_ns": 1}},
        {"peer_failure": 7},
        {"peer_failure": "x" * 300},
    ],
)
def test_a_clock_chunk_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        parse_clock(encode_json(Clock(5, 6, 7).to_json() | wrong))


def test_processes_of_a_host_share_its_clock_and_one_in_another_time_namespace_does_not() -> None:
    program = "from musetrace.record.host_clock import host_clock; print(host_clock())"
    asked = [sys.executable, "-c", program]
    here = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    assert here == str(host_clock())
    shifted = ["unshare", "-T", "--monotonic", "86400", *asked]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    there = subprocess.run(shifted, capture_output=True, text=True, timeout=60, check=False)
    if there.returncode != 0:
        pytest.skip("no time namespaces for this user")
    assert there.stdout.strip() != here


def test_the_offset_is_that_of_the_round_that_came_back_soonest() -> None:
    rounds = np.array(
        [[1_000, 51_900, 2_000], [3_000, 53_260, 3_500], [4_000, 54_100, 6_000]], dtype=np.uint64
    )
    # 53,260 - (3,000 + 3,500) / 2, and half of 500 and a tick.
    assert offset_of(rounds, 32) == PeerOffset(at_ns=3_250, offset_ns=50_010, error_ns=282)


@pytest.mark.parametrize(
    ("rounds", "line"),
    [
        ([], "the GPU of rank 0 did not answer"),
        ([[10, 100, 20], [30, 500, 40]], "a clock was set while the two were compared"),
        ([[20, 100, 10]], "a clock was set while the two were compared"),
    ],
)
def test_rounds_that_no_offset_fits_are_refused(rounds: list[list[int]], line: str) -> None:
    with pytest.raises(DeviceError, match=line):
        offset_of(np.array(rounds, dtype=np.uint64).reshape(-1, 3), 32)


@dataclass(frozen=True)
class BentClock(TrueClock):
    """A clock whose speed changes evenly: beside a straight line by ``bend_ns`` after ``over_ns``."""

    bend_ns: int = 0
    over_ns: int = 1

    def exact(self, at: Fraction) -> Fraction:
        return super().exact(at) + self.bend_ns * (at / self.over_ns) ** 2


@st.composite
def followed(draw: st.DrawFn) -> tuple[BentClock, TrueClock, list[Fraction], list[Fraction]]:
    """A clock that does not run evenly, rank 0's, when they are compared, and times in between.

    No interval is more than four times the one before it or behind it.
    """
    lengths = [draw(st.integers(SECOND // 10, SECOND))]
    for _ in range(draw(st.integers(1, 6))):
        least, most = -(-lengths[-1] // 4), min(4 * lengths[-1], 10 * SECOND)
        lengths.append(draw(st.integers(least, most)))
    moments = [Fraction(sum(lengths[:number])) for number in range(len(lengths) + 1)]
    root, ppb = draw(clocks), draw(st.integers(-50_000, 50_000))
    bend_ns = draw(st.integers(-sum(lengths) // 10_000, sum(lengths) // 10_000))
    mine = BentClock(root.start_ns + 777, ppb, 32, bend_ns, int(moments[-1]))
    shares = draw(st.lists(st.fractions(0, 1, max_denominator=10**4), min_size=1, max_size=5))
    return mine, root, moments, [share * moments[-1] for share in shares]


@given(followed(), st.lists(st.tuples(waits, waits), min_size=1, max_size=3))
def test_a_clock_that_does_not_run_evenly_is_followed_within_the_error(
    case: tuple[BentClock, TrueClock, list[Fraction], list[Fraction]], rounds: list[tuple[int, int]]
) -> None:
    mine, root, moments, times = case
    peers = [ping_pong(mine, root, at, rounds) for at in moments]
    anchors = tuple(
        Clock(one.at_ns, HOST.read(at), 1, 10_000_000, peer=one)
        for one, at in zip(peers, moments, strict=True)
    )
    ranks = [RankClock(0, meta(0), ()), RankClock(1, meta(1), anchors, peers[0].at_ns, peers[-1].at_ns)]
    told = alignments(ranks)[1]
    assert (told["method"], len(told["offsets_ns"])) == ("peer_ping_pong", len(moments))
    between = [
        abs(
            at.offset_ns
            - Fraction(
                before.offset_ns * (after.at_ns - at.at_ns) + after.offset_ns * (at.at_ns - before.at_ns),
                after.at_ns - before.at_ns,
            )
        )
        for before, at, after in zip(peers, peers[1:], peers[2:], strict=False)
    ]
    assert abs(told["residual_ns"] - max(between)) <= 1
    assert told["error_ns"] >= told["residual_ns"] + max(one.error_ns for one in peers)
    for at in times:
        if peers[0].at_ns <= mine.read(at) <= peers[-1].at_ns:
            check(told, mine, root, at)


def test_a_line_of_many_measurements_keeps_some_and_what_the_others_add() -> None:
    """Every third lies 100 ns beside a straight line."""
    points = [OffsetPoint(SECOND * n, 20 * n + 100 * (n % 3 == 1), 40) for n in range(3 * MOST_POINTS + 1)]
    line = line_through(points)
    assert line is not None
    assert (line.points[0], line.points[-1]) == (points[0], points[-1])
    assert MOST_POINTS // 2 < len(line.points) <= MOST_POINTS
    assert set(line.points) <= set(points)
    for point in points:
        assert abs(point.offset_ns - line.offset_ns(point.at_ns)) + point.error_ns <= line.error_ns(
            point.at_ns
        )
    assert line.residual_ns is not None
    assert 100 <= line.residual_ns <= 200


def test_two_clocks_known_against_a_third_are_related_along_both_bends() -> None:
    ranks = [
        RankClock(1, meta(1), peers((0, 0, 5), (1_000_000, 100, 5), (2_000_000, 0, 5))),
        RankClock(2, meta(2), peers((0, 50, 7), (500_000, 50, 7), (2_000_000, 350, 7))),
    ]
    told = alignments(ranks)[2]
    times = RankTimes(0, told["error_ns"], tuple(told["measured_at_ns"]), tuple(told["offsets_ns"]))
    # Rank 2's clock to rank 0's, and back to rank 1's: as each line says, in exact numbers.
    for at_ns in (0, 250_000, 500_000, 1_000_000, 1_250_000, 2_000_000):
        to_root = 50 if at_ns <= 500_000 else 50 + Fraction(300 * (at_ns - 500_000), 1_500_000)
        other = at_ns + to_root
        back = 100 - abs(Fraction(100 * (other - 1_000_000), 1_000_000))
        expected = to_root - back
        aligned = int(times.aligned(np.array([at_ns], dtype=np.int64))[0]) - at_ns
        assert abs(aligned - expected) <= told["error_ns"] - 12
        assert abs(aligned - expected) <= 5
    # 100 ns of rank 1's, and 75 of rank 2's: 50 lies 75 below the line from 50 to 350.
    assert told["residual_ns"] == 175


def peers(*compared: tuple[int, int, int]) -> tuple[Clock, ...]:
    return tuple(Clock(at, at, 1, 10**9, peer=PeerOffset(at, *of)) for at, *of in compared)


def test_measurements_closer_than_their_errors_make_no_clock_run_backwards() -> None:
    first, last = OffsetPoint(1_000, 500, 4_000), OffsetPoint(4_000, -3_000, 3_000)
    assert line_through([first, last]) == OffsetLine((last,))  # 3,500 ns back within 3,000: the better alone
    assert line_through([first, replace(last, offset_ns=-2_000)]) == OffsetLine(
        (first, replace(last, offset_ns=-2_000))
    )
    ahead = replace(first, offset_ns=-7_000)
    assert line_through([ahead, last]) == OffsetLine((last,))  # the other clock would run backwards


@given(
    st.lists(st.builds(OffsetPoint, st.integers(0, 50), st.integers(-60, 60), st.integers(0, 60)), min_size=1)
)
def test_along_a_line_both_clocks_run_forward(points: list[OffsetPoint]) -> None:
    line = line_through(points)
    if line is not None:
        others = [at_ns + line.offset_ns(at_ns) for at_ns in range(-5, 60)]
        assert others == sorted(others)
