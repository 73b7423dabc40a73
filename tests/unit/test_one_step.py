"""The launches of one step, against a slow plain reading of the same tables, and cases by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.analysis.timeline.one_step import launches_of_step, typical_step
from musetrace.errors import AnalysisError
from tests.unit import analysis_oracle as oracle
from tests.unit.analysis_traces import runs
from tests.unit.fake_run import FakeRun, Launch


class Submitted(FakeRun):
    """A run whose launches were submitted 3 ns after each other, from 2 ns after the host's step began."""

    def launches(self, rank: int) -> pa.Table:
        table = super().launches(rank)
        rows = zip(table["step"].to_pylist(), table["launch"].to_pylist(), strict=True)
        submits = [5_000 + 100 * step + 2 + 3 * launch for step, launch in rows]
        return table.append_column("submit_ns", pa.array(submits, pa.uint64()))


@given(runs(), st.data())
def test_a_step_is_its_launches_with_times_from_its_first_one(run: FakeRun, data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from([None, *run.ranks]))
    steps = sorted({x.step for x in run.all_launches if rank in (None, x.rank)})
    if not steps:
        return
    step = data.draw(st.sampled_from(steps))
    mine = [x for x in run.all_launches if x.step == step and rank in (None, x.rank)]
    origin = min(
        oracle.aligned(run, one, run.base_ns(one, s)) for one in run.ranks for s in run.step_ids(one)
    )
    begin = {x: oracle.aligned(run, x.rank, run.base_ns(x.rank, x.step) + x.begin) for x in mine if x.stamped}
    first = min(begin.values(), default=0)
    table = launches_of_step(run, step=step, rank=rank)
    rows = table.to_pylist()
    assert [(row["rank"], row["launch"], row["kind"]) for row in rows] == [
        (x.rank, x.launch, x.kind) for x in sorted(mine, key=lambda x: (x.rank, x.launch))
    ]  # fmt: skip
    found = {(x.rank, x.launch): x for x in mine}
    for row in rows:
        x, after = found[row["rank"], row["launch"]], found.get((row["rank"], row["launch"] + 1))
        assert (row["submit_ns"], row["blocks"], row["blocks_total"]) == (None, x.blocks, run.blocks)
        if not x.stamped:
            assert row["begin_ns"] is row["end_ns"] is row["from_ns"] is row["gap_ns"] is None
            continue
        assert row["begin_ns"] == begin[x] - first
        assert row["end_ns"] - row["begin_ns"] == x.end - x.begin
        assert row["from_ns"] == begin[x] - origin
        assert row["uncertainty_ns"] == run.tick_ns
        assert row["gap_ns"] == (after.begin - x.end if after is not None and after.stamped else None)


@given(runs())
def test_the_origin_is_the_earliest_base_on_the_axis(run: FakeRun) -> None:
    bases = [
        oracle.aligned(run, rank, run.base_ns(rank, step))
        for rank in run.ranks
        for step in run.step_ids(rank)
    ]
    assert origin_ns(run) == min(bases, default=0)


def step_of(step: int, *ends: int) -> list[Launch]:
    """Launches one after the other on rank 0; 0: without stamps."""
    return [Launch(0, step, at, at, "sliding", at, end, 1, end > 0) for at, end in enumerate(ends)]


def test_submits_are_from_the_hosts_begin_of_the_step() -> None:
    run = Submitted([*step_of(0, 10, 20), *step_of(1, 10, 0)], [], 1, (0,))
    rows = launches_of_step(run, step=1).to_pylist()
    assert [row["submit_ns"] for row in rows] == [2, 5]
    assert [row["host_step_ns"] for row in rows] == [47, 47]
    assert [row["begin_ns"] for row in rows] == [0, None]


def test_the_typical_step_is_the_first_of_median_length() -> None:
    run = FakeRun(
        [*step_of(2, 50), *step_of(4, 10), *step_of(5, 30), *step_of(7, 30), *step_of(9, 40)], [], 1, (0,)
    )
    assert typical_step(run) == 5
    assert typical_step(FakeRun([], [], 1, (0,))) is None


def test_a_rank_or_step_that_is_not_there_is_refused() -> None:
    run = FakeRun(step_of(0, 10), [], 1, (0,))
    with pytest.raises(AnalysisError, match="no rank 3"):
        launches_of_step(run, step=0, rank=3)
    with pytest.raises(AnalysisError, match="no step 8"):
        launches_of_step(run, step=8)
    assert analysis.observed(launches_of_step(run, step=0)) == 1.0
