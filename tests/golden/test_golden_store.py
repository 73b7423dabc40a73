"""Row J1 of the fault table: journals of every released format are read for ever, and mean the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from musetrace.store import open_run
from tests import slow_reader

GOLDEN = Path(__file__).parent / "journal-1.0"
COLUMNS = ("begin", "dur", "job", "launch", "layer", "block", "sm", "warp", "flag")
Row = tuple[int, ...]


def expected_rows() -> list[Row]:
    lines = (GOLDEN / "expected.txt").read_text(encoding="ascii").splitlines()
    return [tuple(map(int, line.split())) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("stamps", ["register", "store"])
def test_a_golden_journal_gives_its_expected_spans(tmp_path: Path, stamps: str) -> None:
    shutil.copytree(GOLDEN / stamps, tmp_path / "run")
    run = open_run(tmp_path / "run")
    rows = [
        (step, *(row[name] for name in COLUMNS))
        for step in run.step_ids(0)
        for row in run.spans(0, step).to_pylist()
    ]
    assert rows == expected_rows()
    assert run.verdict == "complete"
    assert run.losses == {
        "lost_launches": 2,
        "overflow_stamps": 3,
        "dropped_blocks": 0,
        "no_end": 1,
        "no_begin": 1,
        "reversed": 1,
        "stale": 1,
        "outside": 0,
        "unknown_job": 1,
        "damaged_chunks": 0,
        "missing_ranks": [],
    }
    assert run.steps(0)["base_ns"].to_pylist() == [5_000_000_000, 2 * 2**32 - 104]
    assert run.steps(0)["tokens"].to_pylist() == [3, 1]
    assert run.launches(0)["stale_blocks"].to_pylist() == [0, 1, 0]
    assert run.manifest["reports"] == [
        {"site": 1, "rank": 0, "block": 1, "warp": 1, "want": 2, "got": 1, "waited_ns": 1000}
    ]


@pytest.mark.parametrize("stamps", ["register", "store"])
def test_the_slow_reader_agrees_with_the_golden_text(stamps: str) -> None:
    steps = slow_reader.read_spans((GOLDEN / stamps / "rank-0000.mtj").read_bytes())
    rows = [(step, *(row[name] for name in COLUMNS)) for step in sorted(steps) for row in steps[step]]
    assert rows == expected_rows()
