"""Random small runs: touching, nested, empty, flagged spans, ties, empty blocks, ranks without a launch."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.fake_run import BASE_NS, SMALL_JOBS, UNKNOWN_JOB, FakeRun, Launch, Span

KINDS = ("sliding", "global")
# Waits with the jobs that they await, and some that are busy.
WAITING = (0, 1, 1, 2, 3, 6, 7, 8, 8, 12, 12, 13)
JOBS = (*range(len(SMALL_JOBS)), UNKNOWN_JOB)


@st.composite
def launches(draw: st.DrawFn, ranks: tuple[int, ...], blocks: int) -> list[Launch]:
    found = []
    for step in draw(st.sampled_from([(0,), (4,), (3, 7)])):
        for launch in range(draw(st.sampled_from([1, 1, 2, 3]))):
            kind = draw(st.sampled_from(KINDS))
            begin = draw(
                st.integers(1, 12)
            )  # later than a span may begin: a warp was quicker than the header
            for rank in ranks:
                if draw(st.integers(0, 9)):  # else: this rank lost the launch
                    reported = draw(st.sampled_from([blocks, blocks, max(blocks - 1, 0)]))
                    end = begin + draw(st.integers(0, 40))
                    stamped = draw(st.integers(0, 9)) > 0
                    found.append(Launch(rank, step, launch, launch + 2, kind, begin, end, reported, stamped))
    return found


@st.composite
def spans(draw: st.DrawFn, of: list[Launch], blocks: int) -> list[Span]:
    if not of:
        return []
    # Few jobs at few times, so that the cases that matter (ties, one op on several ranks) come often.
    few = [(2, 3, UNKNOWN_JOB), (7, 8), (0, 2, 4, 5, 6, 10), (4, 6, 10)]
    jobs = draw(st.sampled_from([JOBS, *few, WAITING, WAITING]))
    latest, longest = draw(st.sampled_from([(40, 12), (4, 3)]))
    one = st.builds(
        lambda launch, block, job, begin, dur, flag, warp, iteration: Span(
            *(launch.rank, launch.step, launch.launch, block, job, begin, 0 if flag else dur, flag),
            warp,
            iteration,
        ),
        st.sampled_from(of),
        st.integers(0, blocks - 1),
        st.sampled_from(jobs),
        st.integers(0, latest),
        st.integers(0, longest),
        st.sampled_from([0] * 12 + [1, 2, 3, 4, 5]),
        st.sampled_from([0, 1, 255]),
        st.integers(0, 1),
    )
    return draw(st.lists(one, min_size=draw(st.sampled_from([0, 10, 30])), max_size=40))


@st.composite
def alignments(draw: st.DrawFn, ranks: tuple[int, ...]) -> dict[int, dict[str, Any]]:
    """Clocks that some ranks share, measured once, twice or three times, or not aligned."""
    clocks = {clock: draw(alignment(clock)) for clock in ranks}
    return {rank: clocks[draw(st.sampled_from([one for one in ranks if one <= rank]))] for rank in ranks}


@st.composite
def alignment(draw: st.DrawFn, clock: int) -> dict[str, Any]:
    """How one clock stands to the axis.

    Measured with a power of two in between, so that an offset in between has no rounding that can differ; no
    clock runs backwards, so the offset falls by no more than the time that passes.
    """
    apart, offsets = draw(st.sampled_from([1, 2048, 8192])), [draw(st.integers(-12, 12))]
    for _ in range(2):
        offsets.append(draw(st.integers(max(offsets[-1] - apart, -12), 12)))
    measured = draw(st.sampled_from([1, 2, 3]))
    return {
        "clock": clock,
        "method": "host_anchors",
        "offset_ns": 0,
        "error_ns": draw(st.sampled_from([0, 1, 5, 5, 30, None])),
        "measured_at_ns": [BASE_NS, BASE_NS + apart, BASE_NS + 2 * apart][:measured],
        "offsets_ns": offsets[:measured],
    }


@st.composite
def runs(draw: st.DrawFn) -> FakeRun:
    ranks = draw(st.sampled_from([(0,), (0, 1), (0, 2), (0, 1, 2)]))
    blocks = draw(st.sampled_from([1, 1, 2, 3]))
    some = draw(launches(ranks, blocks))
    missing = draw(st.sampled_from([(), (), (5,)]))
    tick_ns = draw(st.sampled_from([1, 1, 3, 32, None]))
    clocks = draw(st.one_of(st.just({}), alignments(ranks)))
    return FakeRun(some, draw(spans(some, blocks)), blocks, ranks, missing, tick_ns=tick_ns, alignment=clocks)


@st.composite
def questions(draw: st.DrawFn) -> tuple[FakeRun, dict[str, Any]]:
    """A run and a scope that it has."""
    run = draw(runs())
    rank = draw(st.sampled_from([None, *run.ranks]))
    steps = {x.step for x in run.all_launches if rank in (None, x.rank)}
    step = draw(st.sampled_from([None, *sorted(steps)]))
    kinds = {x.kind for x in run.all_launches if rank in (None, x.rank) and step in (None, x.step)}
    return run, {"layer_kind": draw(st.sampled_from([None, *sorted(kinds)])), "rank": rank, "step": step}
