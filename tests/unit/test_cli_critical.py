"""Critical paths and what-ifs in the report: options, JSON, errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import open_run
from tests.unit.decode_step_run import build_decode_steps

Out = pytest.CaptureFixture[str]
CHANGES = ("gemm2=0", "gemm2=-10%", "stop4=gone", "unpooler_send=+50%")


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    build_decode_steps(tmp_path / "run")
    return tmp_path / "run"


def options(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--what-if", change)]


def test_json_has_the_answers_of_the_analysis(run_folder: Path, capsys: Out) -> None:
    assert main(["report", "run", "--json", *options(*CHANGES)]) == 0
    document = json.loads(capsys.readouterr().out)
    run = open_run(run_folder)
    kinds = list(document["ops"])
    assert kinds == ["entry", "sliding", "global", "head"]
    for kind in kinds:
        path = analysis.critical_path(run, layer_kind=kind)
        assert document["critical_path"][kind] == path.parts.to_pylist()
        assert document["critical_edges"][kind] == path.edges.to_pylist()
        assert document["what_ifs"][kind] == analysis.what_ifs(run, layer_kind=kind).to_pylist()
        assert document["what_if"][kind] == analysis.what_if(run, CHANGES, layer_kind=kind).to_pylist()
        assert [row["change"] for row in document["what_if"][kind]] == list(CHANGES)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_page_tells_what_was_asked_for(run_folder: Path, capsys: Out, width: int) -> None:
    assert main(["report", "run", "--kind", "sliding", "--width", str(width), *options(*CHANGES)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    told = lines[lines.index("what if") + 2 :]
    assert [line.split()[0] for line in told[: len(CHANGES)]] == list(CHANGES)
    (row, *_) = analysis.what_if(open_run(run_folder), CHANGES, layer_kind="sliding").to_pylist()
    assert f"{row['new_mean_ns'] / 1000:.1f}" in told[0].split()


def test_a_scope_is_that_of_the_paths(run_folder: Path, capsys: Out) -> None:
    assert main(["report", "run", "--json", "--kind", "global", "--rank", "1", "--step", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["critical_path"]) == ["global"]
    assert document["what_if"] == {}
    path = analysis.critical_path(open_run(run_folder), layer_kind="global", rank=1, step=1)
    assert document["critical_path"]["global"] == path.parts.to_pylist()


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ("gem2=0", 1, "no op or job 'gem2' in this run: did you mean gemm2"),
        ("gemm2", 2, "what if 'gemm2': say NAME=0, NAME=-10% or NAME=gone"),
        ("kv_write=gone", 1, "kv_write has no waits that could be gone: say kv_write=0"),
    ],
)
def test_a_change_that_cannot_be_is_one_line(
    run_folder: Path, capsys: Out, change: str, code: int, says: str
) -> None:
    assert main(["report", "run", "--what-if", change]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1
