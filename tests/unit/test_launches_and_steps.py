"""Launches, parts of a step, outlier steps: against a slow oracle on random runs, and cases by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit import steps_oracle as oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span

A_COMPUTE, STOP_WAIT, A_LOAD = 2, 8, 0
Question = tuple[FakeRun, dict[str, Any]]


@given(questions())
@settings(max_examples=200, deadline=None)
def test_launches_are_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.launches(run, scope["layer_kind"], scope["rank"], scope["step"])
    assert analysis.launches(run, **scope).to_pylist() == expected


@given(questions())
@settings(max_examples=100, deadline=None)
def test_step_parts_are_the_oracles(question: Question) -> None:
    run, scope = question
    expected = oracle.step_parts(run, scope["rank"], scope["step"])
    assert analysis.step_parts(run, rank=scope["rank"], step=scope["step"]).to_pylist() == expected


def test_a_launch_that_begins_before_the_other_ends_is_seen_to_land_as_blocks_leave() -> None:
    # The next launch begins at 79, its last block comes at 84 and computes from 86 on; the first block of
    # this launch goes at 83, the last at 85.
    launches = [Launch(0, 0, 0, 0, "sliding", 0, 85, 2), Launch(0, 0, 1, 1, "global", 79, 120, 2)]
    spans = [Span(0, 0, 0, 0, A_COMPUTE, 0, 83), Span(0, 0, 0, 1, A_COMPUTE, 3, 82)]
    spans += [Span(0, 0, 1, 1, A_LOAD, 79, 9), Span(0, 0, 1, 0, STOP_WAIT, 84, 2)]
    spans += [Span(0, 0, 1, 0, A_COMPUTE, 86, 30)]
    first, last = analysis.launches(FakeRun(launches, spans, 2, (0,))).to_pylist()
    assert (first["kind"], first["next_kind"], first["n"], first["next_n"]) == ("sliding", "global", 1, 1)
    times = ("all_in", "first_out", "next_in", "next_all_in", "next_work", "lead")
    assert [first[f"{name}_p50_ns"] for name in times] == [3, 83, 79, 84, 86, 4]
    assert first["overlap_n"] == 1
    assert (last["kind"], last["next_kind"], last["next_n"], last["next_in_p50_ns"]) == (
        "global",
        None,
        0,
        None,
    )


def test_an_overlap_of_less_than_the_tick_is_none() -> None:
    def overlaps(by_ns: int, tick_ns: int | None) -> int | None:
        launches = [Launch(0, 0, 0, 0, "a", 0, 100, 1), Launch(0, 0, 1, 1, "b", 100 - by_ns, 300, 1)]
        spans = [Span(0, 0, number, 0, A_COMPUTE, 100, 50) for number in (0, 1)]
        found: int | None = analysis.launches(FakeRun(launches, spans, 1, (0,), tick_ns=tick_ns))[
            "overlap_n"
        ][0].as_py()
        return found

    assert [overlaps(by_ns, 32) for by_ns in (0, 31, 32)] == [0, 0, 1]
    assert [overlaps(by_ns, 1) for by_ns in (0, 1)] == [0, 1]
    assert overlaps(50, None) is None


def test_a_step_has_the_parts_that_its_kinds_name() -> None:
    kinds = ("draft_attention", "draft", "embed", "entry", "sliding", "head", "accept", "keep_kv", "drafty")
    kinds += ("verify_tree",)
    launches = [
        Launch(0, step, number, number, kind, 100 * number, 100 * number + 60, 1)
        for step in range(2)
        for number, kind in enumerate(kinds)
    ]
    rows = analysis.step_parts(FakeRun(launches, [], 1, (0,))).to_pylist()
    assert [(row["part"], row["n"], row["launches_p50"]) for row in rows] == [
        ("step", 2, 10),
        ("draft", 2, 2),
        ("verify", 2, 5),
        ("accept", 2, 2),
        ("drafty", 2, 1),
    ]
    assert [row["part_p50_ns"] for row in rows] == [960, 160, 760, 160, 60]
    assert rows[1]["share"] == 160 / 960


def test_steps_are_counted_in_bins_of_one_width() -> None:
    def bins(lengths: list[int], tick_ns: int | None = 1) -> list[tuple[int, int, int]]:
        launches = [Launch(0, step, 0, 0, "sliding", 0, length, 1) for step, length in enumerate(lengths)]
        table = analysis.step_histogram(FakeRun(launches, [], 1, (0,), tick_ns=tick_ns))
        return [
            (row["from_ns"], row["to_ns"], row["n"]) for row in table.to_pylist() if row["clock"] == "device"
        ]

    assert bins([100, 101, 101, 104]) == [
        (100, 101, 1),
        (101, 102, 2),
        (102, 103, 0),
        (103, 104, 0),
        (104, 105, 1),
    ]
    # 1,900 ns in at most 20 bins: 100 ns wide, 19 whole ones and the edge.
    assert [len(bins([1_000, 2_899])), len(bins([1_000, 2_999])), len(bins([1_000, 3_000]))] == [19, 20, 11]
    assert bins([100, 130], tick_ns=32) == [(100, 150, 2)]
    assert bins([0, 0]) == [(0, 1, 2)]
    assert bins([]) == []


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.sampled_from([1, 32, None]))
def test_every_step_is_in_one_bin(lengths: list[int], tick_ns: int | None) -> None:
    launches = [Launch(0, step, 0, 0, "sliding", 0, length, 1) for step, length in enumerate(lengths)]
    table = analysis.step_histogram(FakeRun(launches, [], 1, (0,), tick_ns=tick_ns)).to_pylist()
    rows = [row for row in table if row["clock"] == "device"]
    for row in rows:
        assert row["n"] == sum(row["from_ns"] <= length < row["to_ns"] for length in lengths)
    assert sum(row["n"] for row in rows) == len(lengths)
    assert len(rows) <= 20
    assert all(row["to_ns"] - row["from_ns"] >= (tick_ns or 1) for row in rows)


def run_of(*lengths: int, tick_ns: int | None = 1, ranks: tuple[int, ...] = (0,)) -> FakeRun:
    launches = [
        Launch(rank, step, 0, 0, "sliding", 0, length + rank, 1)
        for rank in ranks
        for step, length in enumerate(lengths)
    ]
    return FakeRun(launches, [], 1, ranks, tick_ns=tick_ns)


def steps_of(run: FakeRun, **options: Any) -> list[int]:
    found: list[int] = analysis.outlier_steps(run, **options)["step"].to_pylist()
    return found


def test_an_outlier_is_beyond_the_robust_threshold_and_the_tick() -> None:
    # Median 1,004, deviations from it 4, 2, 2, 0, 2, 2, 4, 500: their median is 2, times 1.4826 is 2.97.
    lengths = (1_000, 1_002, 1_002, 1_004, 1_006, 1_006, 1_008)
    assert steps_of(run_of(*lengths, 1_504)) == [7]
    assert steps_of(run_of(*lengths, 1_018)) == []  # 14 < 5 x 2.97
    assert steps_of(run_of(*lengths, 1_019)) == [7]
    assert steps_of(run_of(*lengths, 1_018), threshold=4) == [7]
    assert steps_of(run_of(*lengths, 1_504), threshold=200) == []
    assert steps_of(run_of(*lengths, 1_504, tick_ns=32)) == [7]
    assert steps_of(run_of(*lengths, 1_067, tick_ns=32)) == []  # less than two ticks
    assert steps_of(run_of(*lengths, 1_504, tick_ns=None)) == []


def test_where_all_steps_are_equal_two_ticks_make_an_outlier() -> None:
    assert steps_of(run_of(*[100] * 6, 102)) == [6]
    assert steps_of(run_of(*[100] * 6, 101)) == []


def test_five_steps_have_no_outlier() -> None:
    assert steps_of(run_of(1, 1, 1, 1, 900)) == []
    assert steps_of(run_of(1, 1, 1, 1, 1, 900)) == [5]


def test_a_quick_step_is_no_outlier() -> None:
    assert steps_of(run_of(*[1_000] * 7, 10)) == []


def test_the_longest_outliers_come_first_and_ties_in_the_order_of_the_run() -> None:
    assert steps_of(run_of(500, *[100] * 9, 501, 900)) == [11, 0, 10]


def test_the_slowest_rank_is_named_where_the_clock_tells() -> None:
    run = run_of(*[100] * 6, 300, ranks=(0, 1, 2))
    assert analysis.outlier_steps(run)["rank"].to_pylist() == [None]  # 302 and 301 ns
    slow = [x._replace(end=400) if (x.rank, x.step) == (1, 6) else x for x in run.all_launches]
    assert analysis.outlier_steps(FakeRun(slow, [], 1, (0, 1, 2)))["rank"].to_pylist() == [1]


def test_no_rank_is_the_slowest_where_one_was_not_seen() -> None:
    launches = run_of(*[100] * 6, 300, ranks=(0, 1)).all_launches
    slow = [x._replace(end=400) if (x.rank, x.step) == (1, 6) else x for x in launches]
    assert analysis.outlier_steps(FakeRun(slow, [], 1, (0, 1)))["rank"].to_pylist() == [1]
    missing = FakeRun(slow, [], 1, (0, 1), missing=(2,))
    assert analysis.outlier_steps(missing)["rank"].to_pylist() == [None]
    assert analysis.outlier_steps(missing, rank=0)["rank"].to_pylist() == [0]
    lost = [x for x in slow if (x.rank, x.step) != (0, 6)]
    assert analysis.outlier_steps(FakeRun(lost, [], 1, (0, 1)))["rank"].to_pylist() == [None]


@pytest.mark.parametrize("threshold", [0, -1, float("nan")])
def test_a_threshold_that_makes_every_step_an_outlier_is_refused(threshold: float) -> None:
    for question in (analysis.outlier_steps, analysis.step_growth):
        with pytest.raises(AnalysisError, match="makes every step an outlier: give one above 0"):
            question(run_of(*[100] * 6), threshold=threshold)


@st.composite
def many_steps(draw: st.DrawFn) -> FakeRun:
    """Seven to nine steps of up to three launches, most alike, with random spans in them."""
    ranks, blocks = draw(st.sampled_from([(0,), (0, 1)])), draw(st.integers(1, 2))
    launches, spans = [], []
    kinds = draw(st.lists(st.sampled_from(["sliding", "global"]), min_size=1, max_size=3))
    slow = draw(st.sets(st.integers(0, 8), max_size=2))
    usual = draw(st.integers(5, 15))
    for step in range(draw(st.integers(6, 9))):
        begin = 0
        for launch, kind in enumerate(kinds):
            length = usual + draw(st.sampled_from([0, 0, 0, 1])) + 30 * (step in slow)
            for rank in ranks:
                launches.append(Launch(rank, step, launch, launch, kind, begin, begin + length, blocks))
                for block in range(blocks):
                    job = draw(st.sampled_from([0, 1, 2, 6, 8, 9, 12]))
                    first = draw(st.integers(0, 4))
                    whole = draw(st.booleans())
                    long = max(length - first, 0) if whole else 3
                    spans.append(Span(rank, step, launch, block, job, begin + first, long))
            begin += length + draw(st.sampled_from([2, 2, 2, -1, 20]))
    return FakeRun(launches, spans, blocks, ranks, tick_ns=draw(st.sampled_from([1, 2, 8, None])))


@given(many_steps(), st.sampled_from([0.5, 5.0]), st.sampled_from([1, 3]))
@settings(max_examples=100, deadline=None)
def test_outliers_and_what_grew_are_the_oracles(run: FakeRun, threshold: float, most: int) -> None:
    assert analysis.outlier_steps(run, threshold=threshold).to_pylist() == oracle.outliers(
        run, None, threshold
    )
    for rank in run.ranks:
        expected = oracle.outliers(run, rank, threshold)
        assert analysis.outlier_steps(run, rank=rank, threshold=threshold).to_pylist() == expected
    table = analysis.step_growth(run, threshold=threshold, most_steps=most)
    assert table.to_pylist() == oracle.growth(run, threshold, most)


def test_what_grew_in_a_slow_step_is_named_with_its_size() -> None:
    """Op a takes 10 ns, the stop waits 20, a gap is 5; in step 4 the wait takes 90 and the gap 9."""
    launches, spans = [], []
    for step in range(8):
        wait, gap = (90, 9) if step == 4 else (20, 5)
        begin = 0
        for number in (0, 1):
            launches.append(Launch(0, step, number, number, "sliding", begin, begin + 10 + wait, 1))
            spans.append(Span(0, step, number, 0, A_COMPUTE, begin, 10))
            spans.append(Span(0, step, number, 0, STOP_WAIT, begin + 10, wait))
            begin += 10 + wait + gap
    rows = analysis.step_growth(FakeRun(launches, spans, 1, (0,))).to_pylist()
    assert [(row["step"], row["what"], row["of"], row["growth_ns"]) for row in rows] == [
        (4, "idle", "stop1_wait_ranks", 140),
        (4, "gap", "sliding", 4),
    ]
    assert [row["share"] for row in rows] == [140 / 144, 4 / 144]
    assert [(row["in_step_ns"], row["typical_ns"], row["typical_most_ns"]) for row in rows] == [
        (180, 40, 40),
        (9, 5, 5),
    ]


def test_launches_that_overlapped_less_have_grown_too() -> None:
    """They overlap by 20 ns, and by 4 in step 4: the gap grew by 16, though it is none in any step."""
    launches = []
    for step in range(8):
        begin = 0
        for number in (0, 1):
            launches.append(Launch(0, step, number, number, "sliding", begin, begin + 100, 1))
            begin += 100 - (4 if step == 4 else 20)
    (row,) = analysis.step_growth(FakeRun(launches, [], 1, (0,))).to_pylist()
    assert (row["step"], row["what"], row["of"], row["growth_ns"]) == (4, "gap", "sliding", 16)
    assert (row["in_step_ns"], row["typical_ns"], row["typical_most_ns"]) == (-4, -20, -20)
