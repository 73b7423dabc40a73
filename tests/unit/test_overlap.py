"""Engines beside each other and over time: against a slow oracle, and a few cases by hand."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.errors import AnalysisError
from musetrace.store import open_run
from tests.slow_reader import CLOCK, STAMPS, launch_rows, read_chunks, read_stamps
from tests.unit import overlap_oracle as oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span

A_LOAD, A_WAIT, A_COMPUTE, B_SEND = 0, 1, 2, 7


@given(questions())
@settings(max_examples=120, deadline=None)
def test_overlap_is_the_oracles_and_every_nanosecond_is_in_one_state(
    question: tuple[FakeRun, dict[str, Any]],
) -> None:
    run, scope = question
    table = analysis.overlap(run, **scope)
    rows = table.to_pylist()
    assert rows == oracle.overlap(run, scope)
    blocks = analysis.block_busy(run, **scope)
    assert sum(row["only_ns"] for row in rows) == sum(blocks["wall_ns"].to_pylist())
    idle = {row["state"]: row["total_ns"] for row in rows}
    working = sum(row["only_ns"] for row in rows if not row["state"].startswith(("loads", "wait", "nothing")))
    hidden = sum(row["only_ns"] for row in rows if row["state"].startswith(("loads_and", "all")))
    overlapped = sum(row["only_ns"] for row in rows if row["state"] == "all_three")
    assert working + hidden - overlapped == sum(blocks["busy_ns"].to_pylist())
    assert idle.get("nothing", 0) == sum(blocks["rest_ns"].to_pylist())
    assert analysis.ignored_spans(table) == analysis.ignored_spans(blocks)


@given(questions(), st.sampled_from([1, 2, 3, 7, 100]))
@settings(max_examples=120, deadline=None)
def test_utilisation_is_the_oracles(question: tuple[FakeRun, dict[str, Any]], bins: int) -> None:
    run, scope = question
    assert analysis.utilisation(run, **scope, bins=bins).to_pylist() == oracle.utilisation(run, scope, bins)


def on(job: int, begin: int, end: int, **more: int) -> Span:
    return Span(0, 0, 0, 0, job, begin, end - begin, **more)


def launch(begin: int, end: int, blocks: int = 1) -> Launch:
    return Launch(0, 0, 0, 0, "sliding", begin, end, blocks)


def test_what_lies_beside_what_by_hand() -> None:
    """Of 100 ns: 20 to 70 loads, 40 to 60 and 80 to 90 compute, 50 to 85 sends, and a wait from 0 to 30."""
    spans = [on(A_LOAD, 20, 70), on(A_COMPUTE, 40, 60), on(A_COMPUTE, 80, 90), on(B_SEND, 50, 85)]
    run = FakeRun([launch(0, 100)], [*spans, on(A_WAIT, 0, 30)], 1, (0,))
    rows = {row["state"]: (row["total_ns"], row["only_ns"]) for row in analysis.overlap(run).to_pylist()}
    assert rows == {
        "loads": (50, 20),  # alone from 20 to 40
        "compute": (30, 5),  # alone from 85 to 90
        "communication": (35, 10),  # alone from 70 to 80
        "loads_and_compute": (20, 10),  # 40 to 60, of which 40 to 50 without sends
        "loads_and_communication": (20, 10),  # 50 to 70, of which 60 to 70 without compute
        "compute_and_communication": (15, 5),  # 50 to 60 and 80 to 85
        "all_three": (10, 10),  # 50 to 60
        "waiting_only": (20, 20),
        "nothing": (10, 10),
    }


def test_bins_by_hand() -> None:
    """Two launches of 40 ns over each other: a load in one's first half and in the other's last quarter."""
    launches = [launch(0, 40), Launch(0, 0, 1, 1, "sliding", 100, 140, 1)]
    run = FakeRun(launches, [on(A_LOAD, 0, 20), Span(0, 0, 1, 0, A_LOAD, 130, 10)], 1, (0,))
    rows = analysis.utilisation(run, bins=4).to_pylist()
    assert [(row["begin_ns"], row["end_ns"], row["block_ns"]) for row in rows] == [
        (0, 10, 20),
        (10, 20, 20),
        (20, 30, 20),
        (30, 40, 20),
    ]
    assert [row["loads_share"] for row in rows] == [0.5, 0.5, 0, 0.5]
    assert [row["nothing_ns"] for row in rows] == [10, 10, 20, 10]


def test_a_launch_that_is_longer_than_nine_tenths_of_them_does_not_stretch_the_bins() -> None:
    launches = [Launch(0, 0, at, at, "sliding", 100 * at, 100 * at + 10, 1) for at in range(9)]
    run = FakeRun([*launches, Launch(0, 0, 9, 9, "sliding", 900, 1900, 1)], [], 1, (0,))
    rows = analysis.utilisation(run, bins=5).to_pylist()
    assert [(row["end_ns"], row["block_ns"]) for row in rows] == [(2 * n, 20) for n in range(1, 6)]


def test_long_launches_are_added_up_exactly() -> None:
    """A second each, at times that a double could not hold when a million of them are summed up."""
    begins = [997 * at for at in range(1000)]
    launches = [Launch(0, 0, at, at, "k", begin, begin + 10**9 + 1, 1) for at, begin in enumerate(begins)]
    loads = [Span(0, 0, x.launch, 0, A_LOAD, x.begin + 3, 10**9 - 4) for x in launches]
    run = FakeRun(launches, loads, 1, (0,))
    rows = analysis.utilisation(run, bins=3).to_pylist()
    assert [row["end_ns"] for row in rows] == [333_333_334, 666_666_668, 1_000_000_002]
    assert [row["loads_ns"] for row in rows] == [
        1000 * 333_333_331,
        1000 * 333_333_334,
        1000 * (999_999_999 - 666_666_668),
    ]
    assert [row["block_ns"] for row in rows] == [1000 * 333_333_334, 1000 * 333_333_334, 1000 * 333_333_333]


def test_nothing_to_tell_and_what_cannot_be_asked() -> None:
    empty = FakeRun([], [], blocks=4, ranks=())
    assert analysis.overlap(empty).num_rows == analysis.utilisation(empty).num_rows == 0
    run = FakeRun([launch(5, 5)], [], 1, (0,))
    assert {row["share"] for row in analysis.overlap(run).to_pylist()} == {None}
    for bins in (0, -1, 100_001):
        with pytest.raises(AnalysisError, match=f"cut into {bins} bins; choose 1 to 100,000"):
            analysis.utilisation(run, bins=bins)
    for ask in (analysis.overlap, analysis.utilisation):
        with pytest.raises(AnalysisError, match="no rank 7 in this run: it has 0"):
            ask(run, rank=7)


def test_a_real_recording_counted_tick_by_tick(repository: Path, tmp_path: Path) -> None:
    """The two global layers of a step of the H200 slice: sets of ticks of 32 ns from each block's stamps."""
    folder = tmp_path / "run"
    shutil.copytree(repository / "samples/recordings/slice-h200", folder)
    run = open_run(folder)
    kinds = [job.kind for job in run.job_table.jobs]
    total, wall = Counter[str](), 0
    for spans, begin, end in raw_launches(repository, "global", step=0):
        for block in range(132):
            sets: dict[str, set[int]] = {name: set() for name in (*oracle.STATES, "wait")}
            for row in spans:
                if row["block"] == block:
                    of = oracle.ENGINE.get(kinds[row["job"]], "wait")
                    sets[of].update(range(row["begin"] // 32, (row["begin"] + row["dur"]) // 32))
            loads, compute, sends = (sets[name] for name in ("loads", "compute", "communication"))
            engines = loads | compute | sends
            wall += end - begin
            for state, ticks in (
                *(("loads", loads), ("compute", compute), ("communication", sends)),
                *(("loads_and_compute", loads & compute), ("loads_and_communication", loads & sends)),
                *(("compute_and_communication", compute & sends), ("all_three", loads & compute & sends)),
                ("waiting_only", sets["wait"] - engines),
            ):
                total[state] += 32 * len(ticks)
            total["nothing"] += end - begin - 32 * len(engines | sets["wait"])
    rows = analysis.overlap(run, layer_kind="global", step=0).to_pylist()
    assert {row["state"]: row["total_ns"] for row in rows} == dict(total)
    assert sum(row["only_ns"] for row in rows) == wall


def raw_launches(repository: Path, kind: str, step: int) -> Iterator[tuple[list[dict[str, int]], int, int]]:
    """The spans of each launch of a kind, with absolute times, and its first and last time."""
    _, chunks = read_chunks((repository / "samples/recordings/slice-h200/rank-0000.mtj").read_bytes())
    table, anchor = json.loads(chunks[0][1])["job_table"], None
    for chunk, payload in chunks:
        if chunk == CLOCK:
            anchor = json.loads(payload)
        if chunk == STAMPS:
            launch, slot_bytes, blocks = read_stamps(payload)
            if (launch["kind"], launch["step"]) == (kind, step):
                spans, believed = launch_rows(launch, slot_bytes, blocks, table, anchor)
                yield spans, min(believed), max(believed)
