"""The dashboard with the GPU kernel's job table: it knows no role and no job by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decode_run import build_decode_run

from musetrace.analysis import op_timeline
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.dashboard.scope import ScopeChoices
from musetrace.figures.block_lanes import block_lanes_figure
from musetrace.figures.lane_spans import LaneChoice, lane_spans
from musetrace.figures.op_timeline import op_timeline_figure
from musetrace.job_table import JobTable
from musetrace.store import Run, open_run

TABLE = JobTable.built_in("muse_hopper")
LAYER = {
    job.name: (1000 * index, 1000 * index + 700)
    for index, job in enumerate(TABLE.jobs)
    if job.op not in ("entry", "lm_head")
}
OPS = list(dict.fromkeys(job.op for job in TABLE.jobs if job.name in LAYER))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("hopper")
    return open_run(
        build_decode_run(
            folder, table=TABLE, kinds=("sliding", "global"), schedules={"sliding": LAYER, "global": LAYER}
        )
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_op_timeline_draws_every_op_and_marks_the_stops(run: Run, theme: str) -> None:
    figure = op_timeline_figure(op_timeline(run), tuple(stop_jobs(run.job_table)), theme)
    labels = " ".join(str(text) for text in figure.layout.yaxis.ticktext)
    assert all(op in labels for op in OPS)
    assert {trace.name for trace in figure.data if trace.type == "bar"} >= {
        "load",
        "prefetch",
        "wait",
        "compute",
    }


def test_the_lanes_of_a_block_are_its_stamping_warps(run: Run) -> None:
    spans = lane_spans(run, 0, 0, LaneChoice(0, 0))
    assert [lane.warp for lane in spans.lanes] == [0, 1, 3, 4, 8]
    drawn = {run.job_table.job_name(int(job)) for job in np.unique(spans.job)}
    # Jobs that only some blocks have in this synthetic run have them in block 0.
    assert drawn == set(LAYER)
    assert block_lanes_figure(spans, "light").data


def test_the_first_view_is_a_layer(run: Run) -> None:
    assert ScopeChoices(run).default.kind in ("sliding", "global")
