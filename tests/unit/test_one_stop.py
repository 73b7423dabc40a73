"""One stop in detail against a slow plain reading of the spans: by block, by time, the latest arrivals."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.gaps.late_arrivals import MOST_ROWS, late_arrivals
from musetrace.analysis.gaps.one_stop import (
    EARLY,
    LEAD,
    MOST_BINS,
    arrival_histogram,
    block_arrivals,
    no_lead_sentence,
)
from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.errors import AnalysisError
from musetrace.store.cube_store import CubeStore
from tests.unit import analysis_oracle as oracle
from tests.unit.analysis_traces import questions, runs
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.test_cubes import Cubed, scopes

SEND = 7  # b_send, which stop1_wait_ranks awaits
Question = tuple[FakeRun, dict[str, Any]]
Arrived = dict[tuple[int, int], dict[int, dict[int, int]]]


def arrived_in(run: FakeRun, kind: str | None, step: int | None) -> Arrived:
    """By (step, launch), rank and block: when the block's last send ended, by the rank's clock."""
    found: Arrived = defaultdict(lambda: defaultdict(dict))
    for x in oracle.in_scope(run, kind, None, step)[1]:
        if x.job == SEND:
            of = found[x.step, x.launch][x.rank]
            of[x.block] = max(of.get(x.block, -1), run.base_ns(x.rank, x.step) + x.begin + x.dur)
    return found


@given(questions())
@settings(max_examples=60)
def test_each_block_is_as_early_and_as_often_last_as_the_spans_say(question: Question) -> None:
    run, scope = question
    early: dict[tuple[int, int], list[int]] = defaultdict(list)
    last, launches = Counter[tuple[int, int]](), Counter[int]()
    for by_rank in arrived_in(run, scope["layer_kind"], scope["step"]).values():
        for rank, ends in by_rank.items():
            launches[rank] += 1
            for block, end in ends.items():
                early[rank, block].append(max(ends.values()) - end)
            late = [
                block for block, end in ends.items() if max(ends.values()) - end < max(run.tick_ns or 0, 1)
            ]
            last.update([(rank, late[0])] if len(late) == 1 else [])
    table = block_arrivals(run, stop="stop1", **scope)
    told = run.tick_ns is not None
    assert table.to_pylist() == [
        {
            "rank": rank,
            "block": block,
            "n": len(times),
            "early_mean_ns": int(sum(times) / len(times) + 0.5),
            "early_mean_uncertainty_ns": run.tick_ns,
            "last_n": last[rank, block] if told else None,
            "last_share": last[rank, block] / launches[rank] if told else None,
        }
        for (rank, block), times in sorted(early.items())
        if scope["rank"] in (None, rank)
    ]


@given(questions())
@settings(max_examples=60)
def test_bins_hold_every_arrival_once_and_are_alike_on_all_ranks(question: Question) -> None:
    run, scope = question
    values: dict[tuple[str, int], list[int]] = defaultdict(list)
    can_lead = len(run.ranks) > 1 and not run.missing and not oracle.not_aligned(run)
    for by_rank in arrived_in(run, scope["layer_kind"], scope["step"]).values():
        for rank, ends in by_rank.items():
            values[EARLY, rank] += [max(ends.values()) - end for end in ends.values()]
        if can_lead and len(by_rank) == len(run.ranks):
            of = {rank: oracle.aligned(run, rank, max(ends.values())) for rank, ends in by_rank.items()}
            for rank in of:
                values[LEAD, rank].append(max(of.values()) - of[rank])
    values = {key: of for key, of in values.items() if scope["rank"] in (None, key[1])}
    rows = arrival_histogram(run, stop="stop1", **scope).to_pylist()
    assert {(row["measure"], row["rank"]) for row in rows} == set(values)
    for measure in (EARLY, LEAD):
        mine = [row for row in rows if row["measure"] == measure]
        widths = {row["to_ns"] - row["from_ns"] for row in mine if row["to_ns"] is not None}
        beyond = {row["from_ns"] for row in mine if row["to_ns"] is None}
        if not mine:
            continue
        assert len(widths) == 1
        assert len(beyond) <= 1
        (width,) = widths
        assert width % (run.tick_ns or 1) == 0
        assert {row["from_ns"] % width for row in mine} == {0}
        assert max(row["from_ns"] for row in mine) <= MOST_BINS * width
        for row in mine:
            of_rank = values[measure, row["rank"]]
            end = row["to_ns"] if row["to_ns"] is not None else max(of_rank) + 1
            assert row["n"] == sum(row["from_ns"] <= value < end for value in of_rank) > 0
        for (of_measure, rank), of_rank in values.items():
            if of_measure == measure:
                assert sum(row["n"] for row in mine if row["rank"] == rank) == len(of_rank)


@given(runs(), st.data())
@settings(max_examples=60)
def test_the_latest_arrivals_are_launches_of_the_step_with_their_last_send(
    run: FakeRun, data: st.DataObject
) -> None:
    steps = sorted({x.step for x in run.all_launches})
    if not steps:
        return
    step = data.draw(st.sampled_from(steps))
    arrived = arrived_in(run, None, step)
    spread = {
        (rank, launch): max(ends.values()) - min(ends.values())
        for (_, launch), by_rank in arrived.items()
        for rank, ends in by_rank.items()
        if len(ends) > 1
    }
    rows = late_arrivals(run, stop="stop1", step=step).to_pylist()
    assert len(rows) == min(len(spread), MOST_ROWS)
    assert {(row["rank"], row["launch"]) for row in rows} <= set(spread)
    for row in rows:
        ends = arrived[step, row["launch"]][row["rank"]]
        assert row["spread_ns"] == spread[row["rank"], row["launch"]]
        near = sorted(b for b, end in ends.items() if max(ends.values()) - end < max(run.tick_ns or 1, 1))
        assert row["block"] == near[0]
        assert row["is_tied"] == (None if run.tick_ns is None else len(near) > 1)
        first, last = (oracle.aligned(run, row["rank"], of(ends.values())) for of in (min, max))
        assert (row["from_ns"], row["to_ns"]) == (first - origin_ns(run), last - origin_ns(run))
        span = run.spans(row["rank"], step).slice(row["span"], 1).to_pylist()[0]
        assert (span["job"], span["block"], span["launch"], span["flag"]) == (SEND, near[0], row["launch"], 0)
        assert run.base_ns(row["rank"], step) + span["begin"] + span["dur"] == ends[near[0]]
    # Nothing that is left out is longer for certain than what is there.
    left = [value for key, value in spread.items() if key not in {(r["rank"], r["launch"]) for r in rows}]
    if left and run.tick_ns is not None:
        assert max(left) - min(row["spread_ns"] for row in rows) < 2 * run.tick_ns


def test_launches_that_the_clock_does_not_tell_apart_stand_in_the_order_of_the_step() -> None:
    lengths = (10, 70, 11, 300, 69)
    launches = [Launch(0, 0, at, at, "sliding", 1_000 * at, 1_000 * at + 900, 2) for at in range(5)]
    spans = [
        Span(0, 0, at, block, SEND, 1_000 * at + 10, 20 + block * length)
        for at, length in enumerate(lengths)
        for block in (0, 1)
    ]
    run = FakeRun(launches, spans, 2, (0,), tick_ns=16)
    assert [row["launch"] for row in late_arrivals(run, stop="stop1", step=0).to_pylist()] == [3, 1, 4, 0, 2]


@given(runs())
@settings(max_examples=10)
def test_kept_sums_answer_as_the_spans_do(run: FakeRun) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cubed = Cubed(run, CubeStore(Path(folder) / "cubes", 7))
        keep_cubes(cubed)  # type: ignore[arg-type]
        cubed.readable = False
        for scope in scopes(run):
            for ask in (block_arrivals, arrival_histogram):
                answer, expected = (ask(of, stop="stop1", **scope) for of in (cubed, run))  # type: ignore[arg-type]
                assert answer.to_pylist() == expected.to_pylist()


def test_a_stop_that_there_is_not_is_refused() -> None:
    run = FakeRun([Launch(0, 0, 0, 0, "sliding", 1, 9, 1)], [], 1, (0,))
    for ask in (block_arrivals, arrival_histogram):
        with pytest.raises(AnalysisError, match="no stop 'stop9' in this run: it has stop1"):
            ask(run, stop="stop9")
    with pytest.raises(AnalysisError, match="no stop 'stop9'"):
        late_arrivals(run, stop="stop9", step=0)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (FakeRun([], [], 1, (0,)), "one rank"),
        (FakeRun([], [], 1, (0, 1), missing=(2, 3)), "Rank 2, 3 are missing"),
        (FakeRun([], [], 1, (0, 1), missing=tuple(range(2, 30))), "8, 9, ... are missing"),
        (
            FakeRun([], [], 1, (0, 1), alignment={1: {"clock": 1, "error_ns": None, "method": "unknown"}}),
            "not aligned",
        ),
        (FakeRun([], [], 1, (0, 1)), ""),
    ],
)
def test_why_no_rank_is_compared_is_said(run: FakeRun, words: str) -> None:
    assert words in no_lead_sentence(run)
    assert bool(no_lead_sentence(run)) == bool(words)
