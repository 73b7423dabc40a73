"""The article's layer, recorded from its published numbers, gives back those numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import Run, open_run
from tests.article_trace import RANKS, TICK_NS, build_article_run

BLOCKS, LAYERS, REPLAYS = 40, 10, 4
INSTANCES = BLOCKS * LAYERS * REPLAYS * RANKS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("article") / "run"
    return build_article_run(path, blocks=BLOCKS, layers=LAYERS, replays=REPLAYS)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return open_run(folder)


@pytest.fixture(scope="module")
def ops(run: Run) -> dict[tuple[str, str], dict[str, Any]]:
    rows = analysis.op_timeline(run, layer_kind="sliding").to_pylist()
    assert {row["n"] for row in rows} == {INSTANCES}
    return {(row["op"], row["kind"]): row for row in rows}


def us(row: dict[str, Any], name: str) -> Any:
    """A time of a row in us, to be compared with the article's within the clock's tick."""
    return pytest.approx(row[f"{name}_ns"] / 1000, abs=TICK_NS / 1000)


@pytest.mark.parametrize(
    ("op", "kind", "name", "published_us"),
    [
        ("gemm1", "prefetch", "begin_p50", 0.7),
        ("gemm1", "prefetch", "end_p50", 15),
        ("gemm2", "load", "begin_p50", 45),
        ("gemm2", "compute", "begin_p10", 47),
        ("gemm1", "compute", "end_p90", 50),
        ("gemm2", "compute", "end_p10", 55),
        ("gemm2", "compute", "end_p90", 64),
        ("stop4", "compute", "begin_p50", 65),
        ("kv", "prefetch", "begin_p50", 65),
    ],
)
def test_op_timeline(
    ops: dict[tuple[str, str], dict[str, Any]], op: str, kind: str, name: str, published_us: float
) -> None:
    assert published_us == us(ops[op, kind], name)


def test_router_and_pooler_weights_are_issued_7_us_before_the_data_of_stop_1(
    run: Run, ops: dict[tuple[str, str], dict[str, Any]]
) -> None:
    data = ops["stop1", "wait"]["end_p50_ns"]
    for op in ("pooler", "router"):
        assert data - ops[op, "load"]["begin_p50_ns"] == pytest.approx(7_000, abs=TICK_NS)
    loads = {row["load"]: row for row in analysis.ring_ahead(run).to_pylist()}
    # The pooler computes 1.5 us after that data (stop 1's norm), the router 2 us after the pooler begins.
    assert us(loads["pooler_load"], "ahead_p50") == 7 + 1.5
    assert us(loads["router_load"], "ahead_p50") == 7 + 1.5 + 2
    assert loads["pooler_load"]["during_op"] == "o_proj"
    # o_proj (ends at 17) and stop 1 (ends when the pooler begins, so the clock does not tell).
    assert [loads["pooler_load"][f"ops_between_{of}_p50"] for of in ("low", "high")] == [1, 2]


def test_the_first_tile_of_gemm_2_is_issued_before_the_data_of_stop_3(
    run: Run, ops: dict[tuple[str, str], dict[str, Any]]
) -> None:
    (row,) = (row for row in analysis.ring_ahead(run).to_pylist() if row["load"] == "gemm2_load")
    assert us(row, "ahead_p10") == 47 - 45
    assert row["during_op"] == "gemm1"
    assert ops["stop3", "wait"]["end_p10_ns"] > ops["gemm2", "load"]["begin_p90_ns"]


def test_idle_after_gemm_2_is_12_5_us_and_almost_half(run: Run) -> None:
    table = analysis.idle_after(run, layer_kind="sliding").to_pylist()
    (row,) = (row for row in table if row["op"] == "gemm2")
    assert row["n"] == INSTANCES
    assert us(row, "idle_mean") == 12.5
    assert row["share"] == pytest.approx(0.48, abs=0.002)
    causes = analysis.idle(run, layer_kind="sliding").to_pylist()
    whole = sum(one["total_ns"] for one in causes) / INSTANCES
    assert whole == pytest.approx(12_500 / 0.48, abs=TICK_NS)
    # After GEMM 2 a block waits at stops 4 and 5 and then has nothing left to do.
    waits = {"stop4_wait_ranks", "stop5_wait_ranks"}
    after = [one["total_ns"] for one in causes if one["wait"] in waits or one["cause"] == "tail"]
    assert sum(after) == pytest.approx(row["total_ns"], rel=0.001)


def test_the_next_layer_is_launched_at_79_and_lands_at_84(run: Run) -> None:
    rows = analysis.launches(run).to_pylist()
    (row,) = (row for row in rows if row["next_kind"] == "sliding")
    assert row["next_n"] == (LAYERS - 1) * REPLAYS * RANKS == row["overlap_n"]
    for percent in (10, 50, 90):
        assert us(row, f"next_in_p{percent}") == 79
        assert us(row, f"next_all_in_p{percent}") == 84
        assert us(row, f"lead_p{percent}") == 4


def test_busy_and_idle_are_the_wall_to_the_nanosecond(run: Run) -> None:
    for row in analysis.block_busy(run).to_pylist():
        assert row["busy_ns"] + row["idle_ns"] == row["wall_ns"]


def test_the_report_says_where_the_idle_time_lies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--width", "120"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "from the end of gemm2 to the launch's end: 12.5 us of idle per block, 48.0 % of all idle" in page
    assert main(["report", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["idle_after"]["sliding"]
    assert us(next(row for row in rows if row["op"] == "gemm2"), "idle_mean") == 12.5
