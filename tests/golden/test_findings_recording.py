"""What the report says of the recording from an H200, each statement from the raw stamps, by loops."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import Run, open_run
from tests.golden.stamped_launches import LOADS, WORK, Stamp

RECORDING = Path(__file__).resolve().parents[2] / "samples" / "recordings" / "slice-h200"
BLOCKS, STEPS = 132, 2

# Kind of launch, its begin and end, the spans of one block, cut off there: ns from the step's begin.
Instance = tuple[str, int, int, list[Stamp]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(shutil.copytree(RECORDING, tmp_path_factory.mktemp("slice") / "run"))


@pytest.fixture(scope="module")
def instances(run: Run) -> list[Instance]:
    """Every block of every launch."""
    jobs = run.job_table.jobs
    bases = {row["step"]: row["base_ns"] for row in run.steps(0).to_pylist()}
    found: list[Instance] = []
    for step in run.step_ids(0):
        spans: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for row in run.spans(0, step).to_pylist():
            assert row["flag"] == 0
            spans[row["launch"], row["block"]].append(row)
        for launch in run.launches(0).to_pylist():
            if launch["step"] != step:
                continue
            begin, end = launch["begin_ns"] - bases[step], launch["end_ns"] - bases[step]
            for block in range(BLOCKS):
                mine = [
                    Stamp(
                        max(row["begin"], begin),
                        min(row["begin"] + row["dur"], end),
                        jobs[row["job"]].name,
                        jobs[row["job"]].op,
                        jobs[row["job"]].kind,
                        row["warp"],
                    )
                    for row in spans[launch["launch"], block]
                ]
                found.append((launch["kind"], begin, end, mine))
    assert len(found) == BLOCKS * 8 * STEPS
    return found


def idle_pieces(begin: int, end: int, spans: list[Stamp]) -> Iterator[tuple[int, int, list[Stamp]]]:
    """From, to, and the waits and loads under way, of all time of a block in which nothing of it works."""
    edges = sorted({begin, end, *(time for span in spans for time in (span.begin, span.end))})
    for first, last in zip(edges, edges[1:], strict=False):
        under_way = [span for span in spans if span.begin <= first < span.end]
        if not any(span.kind in WORK for span in under_way):
            yield first, last, under_way


def works_next(wait: Stamp, spans: list[Stamp], second_hand: set[str]) -> tuple[int, int]:
    """When the warp of a wait works next; never after a wait for a wait."""
    begins = [span.begin for span in spans if span.warp == wait.warp and span.kind in WORK]
    later = [begin for begin in begins if begin >= wait.end]
    return (10**12 if wait.job in second_hand else min(later, default=10**12)), wait.end


@pytest.fixture(scope="module")
def per_step(run: Run, instances: list[Instance]) -> dict[str, dict[str, int]]:
    """ns over all blocks and steps, by cause and kind of launch."""
    jobs = run.job_table.jobs
    second_hand = {job.name for job in jobs if job.awaits is not None and jobs[job.awaits].kind == "wait"}
    order = {job.name: number for number, job in enumerate(jobs)}
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for kind, begin, end, spans in instances:
        came, went = min(span.begin for span in spans), max(span.end for span in spans)
        for first, last, under_way in idle_pieces(begin, end, spans):
            waits = [span for span in under_way if span.kind == "wait"]
            if waits:
                cause = min(
                    waits, key=lambda wait: (*works_next(wait, spans, second_hand), order[wait.job])
                ).job
            elif first < came:
                cause = "head"
            elif first >= went:
                cause = "tail"
            else:
                cause = "load_only" if any(span.kind in LOADS for span in under_way) else "unlabelled"
            found[cause][kind] += last - first
    return found


def test_every_cause_is_the_time_that_the_stamps_leave(run: Run, per_step: dict[str, dict[str, int]]) -> None:
    rows = [row for row in analysis.findings(run).to_pylist() if row["finding"] == "idle_cause"]
    assert {row["wait"] or row["cause"] for row in rows} == set(per_step)
    for row in rows:
        by_kind = per_step[row["wait"] or row["cause"]]
        assert abs(row["per_step_ns"] - sum(by_kind.values()) / BLOCKS / STEPS) <= len(by_kind) / 2
        for of in row["launches"]:
            launches = {"entry": 1, "sliding": 4, "global": 2, "head": 1}[of["kind"]]
            assert of["per_step"] == launches
            assert abs(of["idle_mean_ns"] - by_kind[of["kind"]] / BLOCKS / STEPS / launches) <= 0.5
    idle_ns = sum(sum(by_kind.values()) for by_kind in per_step.values())
    assert sum(row["per_step_ns"] for row in rows) == pytest.approx(idle_ns / BLOCKS / STEPS, abs=len(rows))


def test_the_first_three_are_those_that_the_readme_shows(
    per_step: dict[str, dict[str, int]], run: Run
) -> None:
    totals = {cause: sum(by_kind.values()) / BLOCKS / STEPS for cause, by_kind in per_step.items()}
    first = sorted(totals, key=totals.__getitem__, reverse=True)[:3]
    assert first == ["unpooler_wait_input", "head", "gemm1_wait_input"]
    assert [round(totals[cause] / 1000, 1) for cause in first] == [20.4, 16.2, 12.3]
    launches = run.launches(0).to_pylist()
    lengths = [
        max(row["end_ns"] for row in launches if row["step"] == step)
        - min(row["begin_ns"] for row in launches if row["step"] == step)
        for step in run.step_ids(0)
    ]
    assert round(sum(lengths) / STEPS / 1000, 1) == 872.7
    assert round(sum(totals.values()) / 1000, 1) == 152.4
    rows = analysis.findings(run).to_pylist()
    assert [row["place"] for row in rows[:3]] == [1, 2, 3]
    assert [row["wait"] or row["cause"] for row in rows[:3]] == first


@pytest.mark.parametrize("file", ["README.md", "musetrace/docs/findings.md"])
def test_what_is_quoted_of_the_report_is_what_it_says(
    run: Run, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    assert main(["report", str(run.path), "--width", "110"]) == 0
    page = capsys.readouterr().out
    text = (RECORDING.parents[2] / file).read_text(encoding="utf-8")
    quoted = text[text.index("an average block is idle for 1") :].partition("\n```")[0]
    for part in quoted.split("\n...\n"):
        assert part in page


@pytest.mark.parametrize(
    ("wait", "awaited", "percent"),
    [
        ("unpooler_wait_input", "stop4_combine", 77.3),
        ("gemm1_wait_input", "stop2_norm", 0.0),
        ("qkv_wait_slices", "qkv_compute", 85.0),
        ("stop1_wait_rows", "stop1_sum", 56.9),
    ],
)
def test_how_much_of_a_wait_its_producer_was_not_done(
    run: Run, wait: str, awaited: str, percent: float
) -> None:
    """Of the waits at the head of the list, from the ends of the awaited job on all blocks of the launch."""
    jobs = [job.name for job in run.job_table.jobs]
    total = not_done = 0
    for step in run.step_ids(0):
        rows = run.spans(0, step).to_pylist()
        ends: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            if row["job"] == jobs.index(awaited):
                ends[row["launch"]].append(row["begin"] + row["dur"])
        for row in rows:
            if row["job"] == jobs.index(wait):
                end = row["begin"] + row["dur"]
                last = max(time for time in ends[row["launch"]] if time <= end)
                total += row["dur"]
                not_done += max(0, min(last, end) - row["begin"])
    (found,) = (row for row in analysis.findings(run).to_pylist() if row["wait"] == wait)
    assert found["awaits"] == awaited
    assert found["not_ready_share"] == pytest.approx(not_done / total)
    assert round(100 * not_done / total, 1) == percent


def test_half_of_a_sliding_launchs_idle_time_lies_behind_gemm2(run: Run, instances: list[Instance]) -> None:
    idle = behind = time = time_behind = 0
    for kind, begin, end, spans in instances:
        if kind != "sliding":
            continue
        last = max(span.end for span in spans if span.op == "gemm2" and span.kind in WORK)
        for first, past, _ in idle_pieces(begin, end, spans):
            idle += past - first
            behind += max(0, past - max(first, last))
        time += end - begin
        time_behind += end - last
    (found,) = (
        row
        for row in analysis.findings(run).to_pylist()
        if row["finding"] == "idle_after" and row["launches"][0]["kind"] == "sliding"
    )
    assert found["op"] == "gemm2"
    assert found["share_of_launch_idle"] == pytest.approx(behind / idle)
    assert found["share_of_launch_time"] == pytest.approx(time_behind / time)
    assert abs(found["per_step_ns"] - behind / BLOCKS / STEPS) <= 0.5
    assert round(100 * behind / idle, 1) == 52.2
