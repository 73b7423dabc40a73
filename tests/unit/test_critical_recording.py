"""What the paths and replays of the H200 recording say, against its raw spans."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from musetrace import analysis
from musetrace.store import Run, open_run

RECORDING = Path(__file__).parents[2] / "samples" / "recordings" / "slice-h200"
LAYERS = ("sliding", "global")
TICK_NS = 32

Ends = dict[str, dict[int, int]]  # by job and block, ns from the launch's begin


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("recording") / "slice"
    shutil.copytree(RECORDING, folder)
    return open_run(folder)


def layer_launches(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.launches(0).to_pylist() if row["kind"] in LAYERS]


@pytest.fixture(scope="module")
def last_ends(run: Run) -> dict[tuple[int, int], Ends]:
    """By step and launch: when each job ended last in each block, from the raw spans."""
    found: dict[tuple[int, int], Ends] = defaultdict(lambda: defaultdict(dict))
    begins = {(row["step"], row["launch"]): row["begin_ns"] for row in run.launches(0).to_pylist()}
    for step in run.steps(0).to_pylist():
        batch = run.spans(0, step["step"])
        columns = [
            batch.column(name).to_pylist() for name in ("launch", "job", "block", "begin", "dur", "flag")
        ]
        for launch, job, block, begin, dur, flag in zip(*columns, strict=True):
            key = (step["step"], launch)
            of_job = found[key][run.job_table.job_name(job)]
            if flag == 0:
                end = step["base_ns"] + begin + dur - begins[key]
                of_job[block] = max(of_job.get(block, 0), end)
    return found


def test_every_layer_waits_for_the_block_that_sends_gemm_2_last(
    run: Run, last_ends: dict[tuple[int, int], Ends]
) -> None:
    launches = layer_launches(run)
    assert len(launches) == 12
    for launch in launches:
        sent = last_ends[launch["step"], launch["launch"]]["gemm2_send"]
        last = {block for block, end in sent.items() if end == max(sent.values())}
        path = analysis.critical_spans(run, step=launch["step"], launch=launch["launch"]).to_pylist()
        (edge,) = [row for row in path if row["from_job"] == "gemm2_send"]
        assert edge["from_block"] in last
        assert edge["begin_ns"] == max(sent.values())
        assert edge["op"] == "stop4"
        assert sum(row["dur_ns"] for row in path) == launch["end_ns"] - launch["begin_ns"]


@pytest.mark.parametrize("kind", LAYERS)
def test_the_reset_is_long_on_the_path_and_brings_little(
    run: Run, last_ends: dict[tuple[int, int], Ends], kind: str
) -> None:
    """The sender resets the exchange until just behind the end of o_proj's product, which it then sends.

    Without the reset every block would send as soon as its product is there: no block gains more than the
    reset ends behind the product, and the last send cannot begin before the last product ends.
    """
    least = most = resets = 0
    launches = [launch for launch in layer_launches(run) if launch["kind"] == kind]
    for launch in launches:
        ends = last_ends[launch["step"], launch["launch"]]
        reset, product = ends["exchange_reset"], ends["o_proj_compute"]
        blocks = list(product)
        most += max(max(reset[block] - product[block], 0) for block in blocks)
        least += max(max(reset[block], product[block]) for block in blocks) - max(product.values())
        resets += max(reset.values())
    (row,) = analysis.what_if(run, ["exchange=0"], layer_kind=kind).to_pylist()
    slack = 2 * TICK_NS  # what the sender takes from one job to the next
    assert least / len(launches) - slack <= row["saved_mean_ns"] <= most / len(launches) + slack
    assert row["on_path_mean_ns"] == pytest.approx(resets / len(launches), rel=0.1)
    assert row["on_path_mean_ns"] > 5 * row["saved_mean_ns"]
    assert row["residual_ns"] == 0


def test_the_experts_lead_the_path_and_the_ranking(run: Run) -> None:
    for kind in LAYERS:
        path = analysis.critical_path(run, layer_kind=kind)
        first = max(path.parts.to_pylist(), key=lambda row: row["total_ns"])
        assert (first["op"], first["kind"]) == ("gemm1", "compute")
        assert sum(path.parts["total_ns"].to_pylist()) == path.length_ns
        ranked = [row["change"] for row in analysis.what_ifs(run, layer_kind=kind).to_pylist()]
        assert ranked[:2] == ["gemm1=0", "gemm2=0"]
