"""Who came last, by clocks of which some are one and the others have an error between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.analysis.certainty.rank_clocks import RankTimes
from musetrace.analysis.gaps.last_rank import may_be_last
from tests.unit.fake_run import FakeRun, Launch, Span

SEND, WAIT = 7, 8


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[list[int]], list[RankTimes], int]:
    """Instants of 1 to 5 ranks in some launches, on clocks that some of them share, and the tick."""
    ranks, launches = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    clocks = [
        RankTimes(
            clock,
            draw(st.integers(0, 20)),
            offsets_ns=(draw(st.integers(-9, 9)),),
        )
        for clock in range(ranks)
    ]
    times = st.lists(st.integers(0, 60), min_size=launches, max_size=launches)
    sent = [draw(times) for _ in range(ranks)]
    return sent, [clocks[draw(st.integers(0, rank))] for rank in range(ranks)], draw(st.integers(1, 12))


@given(arrivals())
def test_only_who_is_surely_before_another_was_not_last(
    found: tuple[list[list[int]], list[RankTimes], int],
) -> None:
    sent, clocks, tick_ns = found
    told = may_be_last(np.array(sent, dtype=np.int64), clocks, tick_ns)
    assert told is not None
    for launch in range(len(sent[0])):
        for rank, mine in enumerate(clocks):
            apart = [
                tick_ns + (0 if mine.clock == other.clock else (mine.error_ns or 0) + (other.error_ns or 0))
                for other in clocks
            ]
            later = [
                sent[one][launch] + other.offsets_ns[0] - sent[rank][launch] - mine.offsets_ns[0]
                for one, other in enumerate(clocks)
            ]
            surely_before = any(by >= least for by, least in zip(later, apart, strict=True))
            assert told[rank, launch] == (not surely_before)


def a_run(late_ns: int, error_ns: int | None, clock: int = 1) -> FakeRun:
    """Rank 1 sends ``late_ns`` later than rank 0, by a clock that is 1,000 ns ahead."""
    launches = [Launch(rank, 0, 0, 0, "sliding", 0, 500, 1) for rank in (0, 1)]
    # The base of rank 1's step is 2 ns later.
    begin = 98 + late_ns + (1_000 if clock else 0)
    spans = [Span(0, 0, 0, 0, SEND, 100, 10), Span(1, 0, 0, 0, SEND, begin, 10)]
    spans += [Span(rank, 0, 0, 0, WAIT, 120, 30) for rank in (0, 1)]
    told = {"clock": clock, "method": "host_anchors", "offset_ns": 0, "error_ns": error_ns}
    told |= {"measured_at_ns": [0], "offsets_ns": [-1_000 if clock else 0]}
    return FakeRun(launches, spans, 1, (0, 1), tick_ns=32, alignment={1: told})


@pytest.mark.parametrize(
    ("late_ns", "error_ns", "expected"),
    [
        (131, 100, [(0.0, 1.0), (0.0, 1.0)]),  # less than the error and a tick: cannot tell
        (132, 100, [(0.0, 0.0), (1.0, 0.0)]),
        (-132, 100, [(1.0, 0.0), (0.0, 0.0)]),
        (32, 0, [(0.0, 0.0), (1.0, 0.0)]),
        (300, None, [(None, None), (None, None)]),  # not aligned: not judged
    ],
)
def test_a_rank_that_came_last_by_less_than_the_alignments_error_is_not_said_to_be_last(
    late_ns: int, error_ns: int | None, expected: list[tuple[float | None, float | None]]
) -> None:
    rows = analysis.stops(a_run(late_ns, error_ns)).to_pylist()
    assert [(row["last_share"], row["tied_share"]) for row in rows] == expected
    assert [row["last_n"] for row in rows] == [0 if error_ns is None else 1] * 2
    assert [row["wait_p50_ns"] for row in rows] == [30, 30]


def test_ranks_of_one_clock_are_told_apart_by_its_tick_whatever_its_error_to_others() -> None:
    rows = analysis.stops(a_run(32, None, clock=0)).to_pylist()
    assert [row["last_share"] for row in rows] == [0.0, 1.0]


def test_the_clocks_of_a_run_are_told_rank_by_rank_with_the_largest_error() -> None:
    run = a_run(0, 100)
    rows = analysis.clocks(run).to_pylist()
    assert [(row["rank"], row["clock"], row["method"], row["error_ns"]) for row in rows] == [
        (0, 0, "same_clock", 0),
        (1, 1, "host_anchors", 100),
    ]
    assert analysis.has_several_clocks(run)
    assert analysis.alignment_error_ns(run) == 100
    assert analysis.alignment_error_ns(a_run(0, None)) is None
    assert not analysis.has_several_clocks(a_run(0, None, clock=0))
    assert analysis.alignment_error_ns(a_run(0, None, clock=0)) == 0
