"""The recordings that ship as samples stay readable, and the README's three lines of pyarrow work on them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import musetrace
from musetrace.analysis import op_timeline

RECORDINGS = Path(__file__).resolve().parents[2] / "samples" / "recordings"


@pytest.mark.parametrize("name", [path.name for path in RECORDINGS.iterdir() if path.is_dir()])
def test_a_sample_recording_is_complete_and_shows_the_five_stops(tmp_path: Path, name: str) -> None:
    run = musetrace.open(shutil.copytree(RECORDINGS / name, tmp_path / name))
    assert run.verdict == "complete"
    assert not any(run.losses.values())
    ops = op_timeline(run, layer_kind="sliding").column("op").to_pylist()
    assert {f"stop{number}" for number in range(1, 6)} <= set(ops)


def test_the_readme_reads_spans_in_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    musetrace.open(shutil.copytree(RECORDINGS / "mini-cpu-tp2", tmp_path / "run"))
    readme = (RECORDINGS.parents[1] / "README.md").read_text()
    lines = re.search(r"```python\n(import pyarrow.*?)```", readme, re.DOTALL)
    assert lines is not None
    assert len(lines[1].replace("\n\n", "\n").splitlines()) == 3
    monkeypatch.chdir(tmp_path)
    exec(compile(lines[1], "README.md", "exec"), {})
    assert "dur_mean" in capsys.readouterr().out
