"""The sections on engines and bandwidth: their numbers are those of the analysis; what is lacking is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import musetrace
from musetrace import analysis
from musetrace.cli import main
from musetrace.cli.output import Screen
from musetrace.cli.report.as_text import block_lines
from musetrace.cli.report.document import Block
from musetrace.cli.report.overlap_section import over_time_lines, overlap_blocks
from musetrace.cli.report.roofline_section import no_bytes_sentence, roofline_blocks
from musetrace.job_bytes import JobBytes, LaunchBytes, RunBytes
from musetrace.known_bytes import known_bytes
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.engine import Engine
from musetrace.store.index import keep_probe
from tests.unit.attached_run import GEMM
from tests.unit.fake_run import FakeRun, Launch, Span

Out = pytest.CaptureFixture[str]
WIDE, NARROW = Screen(140, True), Screen(60, False)


@pytest.fixture(scope="module")
def slice_path(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a slice on an H200, and what its memory gives."""
    folder = tmp_path_factory.mktemp("engines") / "run"
    shutil.copytree(repository / "samples/recordings/slice-h200", folder)
    return folder


def lines_of(blocks: Iterable[Block], screen: Screen) -> list[str]:
    return [line for block in blocks for line in block_lines(block, screen)]


def report(capsys: Out, path: Path, *options: str) -> str:
    assert main(["report", str(path), *options]) == 0
    return capsys.readouterr().out


def line_of(page: str, op: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"{op} ") and "B " in line)
    return line.split()[1:]


def test_a_recording_has_its_roofline_and_the_ceiling_of_the_probe_that_is_kept_with_it(
    slice_path: Path, capsys: Out
) -> None:
    page = report(capsys, slice_path, "--kind", "sliding", "--width", "140")
    assert line_of(page, "gemm1")[:9] == ["6", "115.9", "MB", "36.4", "3,181", "2,712", "3,499", "69.2", "%"]
    assert "ceiling: 4,594 GB/s, musetrace probe, stream, n 20" in page
    assert "44 to 54 work items in 99 % of launches" in page


def test_an_older_recording_has_its_roofline_and_says_where_the_bytes_are_from(
    tmp_path: Path, repository: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_job_bytes", lambda engine, position: ())
    older = tmp_path / "older"
    with musetrace.record(older) as recorder:
        record_decode(recorder, DecodeOptions(device="cpu", steps=2, guesses="none"), lambda done, of: None)
    page = report(capsys, older, "--kind", "sliding", "--width", "140")
    # Six sliding layers x two steps x two ranks; a rank has four heads of 64: 512 x 256 x 2 bytes.
    assert line_of(page, "o_proj")[:3] == ["24", "262.1", "kB"]
    assert "ceiling: not known: no probe of the device is kept with the run" in page
    assert "bytes are worked out from the model that the run describes" in page
    keep_probe(older, json.loads((repository / "samples/recordings/probe-h200.json").read_text()))
    page = report(capsys, older, "--kind", "sliding", "--width", "140")
    assert "ceiling: 4,590 GB/s, musetrace probe, stream, n 20" in page


def test_json_has_every_row_of_the_three_answers(slice_path: Path, capsys: Out) -> None:
    document = json.loads(report(capsys, slice_path, "--json", "--kind", "global", "--step", "1"))
    run = musetrace.open(slice_path)
    scope: dict[str, Any] = {"layer_kind": "global", "step": 1}
    assert document["overlap"] == {"global": analysis.overlap(run, **scope).to_pylist()}
    assert document["utilisation"] == {"global": analysis.utilisation(run, **scope).to_pylist()}
    rows = analysis.roofline(run, **scope, moved=known_bytes(run)).to_pylist()
    assert document["roofline"] == {"global": rows}
    assert {row["part"] for row in rows} == {"launch", "phase", "op", "job"}
    assert {row["way"] for row in rows} == {"reads", "sends"}


def test_a_kernel_without_bytes_has_one_line_and_one_with_bytes_its_rows(tmp_path: Path, capsys: Out) -> None:
    for name, bytes_of in (("without", None), ("with", {"load": 4_000_000})):
        with musetrace.record(tmp_path / name) as rec:
            gemm = rec.attach(GEMM.table, GEMM.grid, device="cpu", bytes=bytes_of)
            for _ in range(3):
                with gemm.launch() as stamps:
                    GEMM.run(stamps.ptr)
    page = report(capsys, tmp_path / "without", "--width", "140")
    assert [line for line in page.splitlines() if line.startswith("roofline")] == [
        "roofline: the run does not say how many bytes its jobs move: attach(..., bytes={...}) does"
    ]
    page = report(capsys, tmp_path / "with", "--width", "140")
    assert "roofline:" not in page
    (tile,) = (line for line in page.splitlines() if line.startswith("tile") and " MB " in line)
    # Pair 0 of block b is stamped from 100 b on for 1 ns: 4 ns of loads in all, in four pieces.
    assert tile.split()[1:6] == ["3", "4.0", "MB", "0.00", "1,000,000"]


def test_bytes_that_nobody_knows_are_noted_and_not_shown_as_numbers() -> None:
    spans = [Span(0, 0, 0, 0, 0, 10, 50), Span(0, 0, 0, 0, 5, 60, 30)]
    run = FakeRun([Launch(0, 0, 0, 0, "k", 0, 100, 1)], spans, 1, (0,))
    told = LaunchBytes("k", None, {"a_load": JobBytes.exact(500)}, {"b_load": "nobody\x1b counts them"})
    lines = lines_of(roofline_blocks(analysis.roofline(run, moved=RunBytes((told,))), WIDE), WIDE)
    rows = {line.split("  ")[0].strip(): line.split() for line in lines}
    assert rows["a"][1:5] == ["1", "500", "B", "0.05"]
    assert "b" not in rows
    (whole,) = (line for line in lines if line.startswith("whole k"))
    assert whole.split()[3:6] == [">500", "B", "0.10"]
    assert "b_load: nobody\\x1b counts them" in lines
    said = "the run does not say how many bytes its jobs move: attach(..., bytes={...}) does"
    assert no_bytes_sentence(analysis.roofline(run), NARROW) == said


def test_an_engine_that_never_works_has_no_row_and_the_lines_over_time_show_when() -> None:
    """A load in the first half, compute in the second."""
    spans = [Span(0, 0, 0, 0, 0, 0, 50), Span(0, 0, 0, 0, 2, 50, 50)]
    run = FakeRun([Launch(0, 0, 0, 0, "k", 0, 100, 1)], spans, 1, (0,))
    over_time = analysis.utilisation(run)
    screen = Screen(120, False)
    lines = lines_of(overlap_blocks(analysis.overlap(run), over_time, screen), screen)
    assert [line.split()[0] for line in lines] == [
        *("at", "loads", "compute"),
        *("blocks", "loads", "compute", "communication", "waits"),
    ]
    assert lines[1].split()[1:3] == ["50.0", "%"]
    of_loads, of_compute = (line[len("communication  ") :] for line in lines[4:6])
    assert of_loads.rstrip() == "@" * 50
    assert of_compute == " " * 50 + "@" * 50
    assert over_time_lines(over_time, Screen(30, False)) == []  # no room


@pytest.mark.parametrize("width", [60, 80, 119, 200])
@pytest.mark.parametrize("kind", ["sliding", "entry", "head"])
def test_no_line_of_the_sections_is_too_wide(slice_path: Path, kind: str, width: int) -> None:
    run, screen = musetrace.open(slice_path), Screen(width, True)
    over_time = analysis.utilisation(run, layer_kind=kind)
    blocks = overlap_blocks(analysis.overlap(run, layer_kind=kind), over_time, screen)
    blocks += roofline_blocks(analysis.roofline(run, layer_kind=kind, moved=known_bytes(run)), screen)
    lines = lines_of(blocks, screen)
    assert len(lines) > 12
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith("~")]
