"""The page of a run of somebody's kernels: kernels and their launches, and no layers of a model."""

from __future__ import annotations

import pytest

from musetrace.dashboard.conditions import conditions
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope, ScopeChoices
from musetrace.dashboard.views import VIEWS, stops
from musetrace.dashboard.views.launches.edges import draw_edges
from musetrace.dashboard.views.launches.one_step import draw_step
from musetrace.dashboard.views.launches.steps import list_steps
from musetrace.dashboard.views.op_view import draw_ops
from musetrace.dashboard.views.overlap.engines import draw_shares
from musetrace.dashboard.views.view import View
from musetrace.figures.lane_spans import LaneChoice, lane_spans
from musetrace.store.run import Run
from tests.unit.attached_run import record_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return record_run(tmp_path_factory.mktemp("attached") / "run")


def test_kernels_are_what_there_is_to_choose(run: Run) -> None:
    assert [option.label for option in ScopeChoices(run).options()["kind"]] == [
        "all kernels",
        "gemm",
        "reduce",
    ]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_no_view_speaks_of_layers_where_there_are_none(run: Run, view: View) -> None:
    runs = OpenRuns([run])
    assert "layer" not in str(view.layout(runs, runs.ref(0), {}).body).lower()


def test_a_launch_has_the_lanes_of_its_own_kernel(run: Run) -> None:
    assert [lane.block for lane in lane_spans(run, 1, 0, LaneChoice()).lanes] == [0, 1, 2, 3]
    assert [lane.block for lane in lane_spans(run, 1, 2, LaneChoice()).lanes] == [0, 1]
    assert [lane.warp for lane in lane_spans(run, 1, 2, LaneChoice(0, 1)).lanes] == [0]


def test_the_timeline_of_a_kernel_counts_its_blocks(run: Run) -> None:
    figure, _ = draw_ops(run, Scope("reduce"), "light")
    hovers = [text for trace in figure.data if trace.customdata is not None for text in trace.customdata]
    assert any("2 of 2 blocks" in text for texts in hovers for text in texts)


def test_kernels_are_drawn_and_listed_without_stops_and_bytes(run: Run) -> None:
    strip, note, _ = draw_step(run, Scope(), "light")
    assert {"gemm", "reduce"} <= {trace.name for trace in strip.data}
    assert ": 3 launches; " in note
    *_, edges = draw_edges(run, Scope("gemm"), "light")
    assert {row["launch"] for row in edges.rowData} == {
        "gemm \N{RIGHTWARDS ARROW} gemm",
        "gemm \N{RIGHTWARDS ARROW} reduce",
    }
    assert [row["what"] for row in list_steps(run, Scope())[1].rowData][-2:] == ["gemm", "reduce"]
    shares, _ = draw_shares(run, Scope("reduce"), "light")
    assert sum(shares.data[0].x) > 0
    page = stops.VIEW.layout(OpenRuns([run]), RunRef(0), {})
    assert "no stop between ranks" in page.body.children


def test_the_header_says_nothing_of_a_model(run: Run) -> None:
    labels = [condition.label for condition in conditions(run)]
    assert "model" not in labels
    assert "device" in labels
