"""The report on steps and launches: parts, edges of launches, step times, slow steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musetrace.cli import main
from musetrace.job_table import Job, JobTable
from tests.builders import LaunchStamps, build_run

Out = pytest.CaptureFixture[str]
START_NS = 9_000_000_000_000
JOBS = (
    Job("a_compute", "a", "compute", "all", (0, 0), (0,), None),
    Job("b_wait_a", "b", "wait", "all", (0, 0), (0,), 0),
)
TABLE = JobTable("two", 1, 4, JOBS, (0, 1), (0, 0))
KINDS = ("draft", "sliding", "head")


def launches_of(steps: int, slow: dict[int, int], kinds: tuple[str, ...] = KINDS) -> list[LaunchStamps]:
    """Launches that work 10 us and wait 5, more in slow steps; each begins 2 us before the last ends."""
    found, begin = [], START_NS
    for step in range(steps):
        for launch, kind in enumerate(kinds):
            wait = 5_000 + (slow.get(step, 0) if kind == "head" else 0)
            slots = np.array(
                [[begin, begin + 10_000, begin + 10_000, begin + 10_000 + wait]], dtype=np.uint64
            )
            headers = np.array([begin], dtype=np.uint64)
            found.append(LaunchStamps(step, launch, slots, headers, launch, kind, epoch=len(found) + 1))
            begin += 13_000 + wait - 5_000
        begin += 50_000
    return found


def report(folder: Path, capsys: Out, *options: str) -> str:
    assert main(["report", str(folder), *options]) == 0
    return capsys.readouterr().out


def test_parts_edges_and_slow_steps_are_told(tmp_path: Path, capsys: Out) -> None:
    folder = build_run(tmp_path / "run", {0: launches_of(20, {4: 30_000, 7: 70_000})}, TABLE, 1)
    page = report(folder, capsys, "--width", "100").splitlines()
    rows = {tuple(line.split()[:2]): line.split() for line in page}
    # Three launches of 15 us that overlap by 2 us: 41 us; the draft is the first of them.
    assert rows["step", "20"][2:5] == ["3", "41.0", "41.0"]
    assert rows["draft", "20"][2:5] == ["1", "15.0", "15.0"]
    assert rows["verify", "20"][2:5] == ["2", "28.0", "28.0"]
    # One block: it comes at 0 and goes at 15; the next launch comes and computes at 13.
    assert rows["draft", "sliding"] == [
        "draft",
        "sliding",
        "20",
        "<0.01",
        "15.0",
        "13.0",
        "13.0",
        "13.0",
        "2.00",
    ]
    assert rows["head", "-"] == ["head", "-", "20", "<0.01", "15.0", "-", "-", "-", "-"]
    text = " ".join(page)
    assert (
        "step 7 takes 111.0 us on rank 0, 70.0 more than the median: idle: b_wait_a +70.0 us (100.0 %) "
        "step 4 takes 71.0 us on rank 0, 30.0 more than the median: idle: b_wait_a +30.0 us (100.0 %)" in text
    )
    # Bins of 5 us from 40 to 115.
    bins = [line.split() for line in page if line.strip().endswith("█") and line.split()[0].isdigit()]
    counts = {cells[0]: cells[2] for cells in bins}
    assert counts == {"40": "18", "70": "1", "110": "1"}


def test_a_step_of_one_part_is_one_sentence(tmp_path: Path, capsys: Out) -> None:
    folder = build_run(tmp_path / "run", {0: launches_of(2, {}, ("sliding", "head"))}, TABLE, 1)
    page = report(folder, capsys)
    assert "a step is verify alone, launches: 2\n" in page
    assert "steps by their length" not in page  # fewer than 20 tell no distribution
    assert "slow steps" not in page


def test_one_step_and_json(tmp_path: Path, capsys: Out) -> None:
    folder = build_run(tmp_path / "run", {0: launches_of(9, {4: 30_000, 7: 70_000})}, TABLE, 1)

    def slow(*options: str) -> list[int]:
        found: dict[str, Any] = json.loads(report(folder, capsys, "--json", *options))
        assert {row["step"] for row in found["step_growth"]} == {
            row["step"] for row in found["outlier_steps"]
        }
        return [row["step"] for row in found["outlier_steps"]]

    assert slow() == [7, 4]
    assert slow("--step", "4") == [4]
    assert slow("--step", "5") == []


def test_only_the_largest_growth_is_told_of_many_slow_steps(tmp_path: Path, capsys: Out) -> None:
    slow = {step: 10_000 * step for step in range(1, 11)}
    folder = build_run(tmp_path / "run", {0: launches_of(30, slow)}, TABLE, 1)
    page = " ".join(report(folder, capsys).split())
    assert [page.index(f"step {step} takes") for step in (10, 9, 8)] == sorted(
        page.index(f"step {step} takes") for step in (10, 9, 8)
    )
    assert "also: step 7 takes" in page
    assert "and 2 more" in page
    assert page.count("idle: b_wait_a +") == 3
