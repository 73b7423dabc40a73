"""What report, info and check say of a run of somebody's kernels: their names, and nothing of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musetrace.analysis import block_busy, launch_times, op_timeline, ring_ahead, stops
from musetrace.cli import main
from tests.unit.attached_run import record_run


def test_each_kernel_is_measured_over_its_own_blocks(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    gemm, reduce = (op_timeline(run, layer_kind=kind).to_pylist() for kind in ("gemm", "reduce"))
    assert [(row["op"], row["kind"], row["blocks"], row["blocks_total"], row["n"]) for row in gemm] == [
        ("tile", "load", 4, 4, 24),
        ("tile", "compute", 4, 4, 24),
    ]
    # Pair p of block b begins at 100 b + 10 p: reduce's only load at 0 and at 100 ns.
    (load,) = reduce
    assert (load["op"], load["blocks"], load["blocks_total"], load["n"]) == ("rows", 2, 2, 6)
    assert (load["begin_p10_ns"], load["begin_p90_ns"], load["dur_p50_ns"]) == (0, 100, 1)
    kinds = launch_times(run).select(["kind", "layers", "n"]).to_pylist()
    assert kinds == [{"kind": "gemm", "layers": 2, "n": 6}, {"kind": "reduce", "layers": 1, "n": 3}]


def test_a_block_counts_in_the_launches_of_kernels_that_have_it(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    busy = {row["block"]: row for row in block_busy(run).to_pylist()}
    assert {block: row["launches"] for block, row in busy.items()} == {0: 9, 1: 9, 2: 6, 3: 6}
    # A launch of gemm computes 17 ns in a block, one of reduce loads 1 ns.
    assert [busy[block]["busy_ns"] for block in range(4)] == [6 * 17] * 4
    of_reduce = {row["block"]: row["launches"] for row in block_busy(run, layer_kind="reduce").to_pylist()}
    assert of_reduce == {0: 3, 1: 3}
    assert stops(run).num_rows == 0
    assert [row["load"] for row in ring_ahead(run).to_pylist()] == ["gemm.load"]


@pytest.mark.parametrize("width", ["80", "140"])
def test_the_report_names_kernels_and_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], width: str
) -> None:
    record_run(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--width", width]) == 0
    page = capsys.readouterr().out
    for said in (
        "kernel gemm: us from the launch's begin, over blocks x launches x ranks",
        "kernel reduce: us from the launch's begin",
        "blocks of kernel gemm: where their time goes, us per launch",
        "blocks of kernel reduce: where their time goes, us per launch",
        "1 rank x 4 blocks, 3 steps, 9 launches",
        "nothing was lost",
    ):
        assert said in " ".join(page.split())
    for other in ("model", "stop", "layers x steps", "sliding", "job#"):
        assert other not in page
    assert max(map(len, page.splitlines())) <= int(width)
    assert main(["report", str(tmp_path / "run"), "--json", "--kind", "reduce"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["ops"]) == ["reduce"]
    assert document["conditions"]["model"] == {}


def test_what_a_kernel_lost_is_said_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(tmp_path / "run", lost=True)
    capsys.readouterr()
    for verb in ("report", "info", "check"):
        assert main([verb, str(tmp_path / "run")]) == 0
        page = " ".join(capsys.readouterr().out.split())
        assert "3 launched 2 times with one region" in page
        assert "note: kernel reduce ran 3 blocks, attach() was told 2: the stamps of 1 are lost" in page
        assert "attach it with grid=3" in page
        assert "dropped_blocks 3 blocks of launches that the recorder had no room for" in page
        assert "wait report" not in page
    assert main(["info", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 3


def test_a_run_of_single_launches_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import musetrace
    from tests.unit.attached_run import GEMM

    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(GEMM.table, GEMM.grid, device="cpu")
        for _ in range(4):
            with gemm.launch() as stamps:
                GEMM.run(stamps.ptr)
    assert main(["report", str(tmp_path / "run")]) == 0
    page = capsys.readouterr().out
    assert "kernel gemm: us" in page
    assert "4 steps, 4 launches" in page
    # Nobody noted the host's time of a launch.
    assert not [line for line in page.splitlines() if line.startswith("host ")]
