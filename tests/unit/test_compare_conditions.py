"""In which conditions two runs are not alike, what can be compared of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from musetrace import analysis
from musetrace.errors import AnalysisError
from tests.unit.fake_run import FakeRun, Job, job
from tests.unit.planted_run import LAUNCHES, LENGTHS, TABLE, planted


def test_ranks_that_only_one_run_has_are_left_out_and_said() -> None:
    found = analysis.compare(planted(ranks=(0, 1), **LENGTHS), planted(ranks=(0,), **LENGTHS))
    assert found.ranks == (0,)
    assert {row["n_a"] for row in found.ops.to_pylist()} == {12 * LAUNCHES * 2}
    assert "ranks: 0 1 in A, 0 in B" in found.warnings


class Conditions(FakeRun):
    """A run with conditions and losses of its own."""

    said: dict[str, Any]
    lost: dict[str, int]

    @property
    def manifest(self) -> dict[str, Any]:
        return {**super().manifest, **self.said}

    @property
    def losses(self) -> dict[str, Any]:
        return {**super().losses, **self.lost}


def with_conditions(said: dict[str, Any], lost: dict[str, int]) -> Conditions:
    plain = planted(**LENGTHS)
    run = Conditions(plain.all_launches, plain.all_spans, plain.blocks, plain.ranks)
    run.said, run.lost = said, lost
    return run


def test_every_condition_that_differs_is_a_warning() -> None:
    a = {
        "device": {"name": "H200", "driver": "580"},
        "model": {"name": "mini", "seed": 0},
        "clocks": {"sm_mhz": 1785, "power_limit_w": 700.0, "throttled_by": []},
        "build": {"stop4": "sumsq", "stamps": "register"},
        "stamps": "register",
        "routing": "uniform",
    }
    b = {
        "device": {"name": "H200", "driver": "590"},
        "clock": {"name": "test", "tick_ns": 32},
        "model": {"name": "mini", "seed": 1},
        # An SM clock that is 1.7 % slower is one that moves by itself.
        "clocks": {"sm_mhz": 1755, "power_limit_w": 500.0, "throttled_by": ["power cap"]},
        "build": {"stop4": "gather", "stamps": "store"},
        "stamps": "store",
    }
    found = analysis.compare(with_conditions(a, {}), with_conditions(b, {"lost_launches": 3}))
    assert set(found.warnings) == {
        "device driver: 580 in A, 590 in B",
        "clock tick_ns: 1 in A, 32 in B",
        "clocks power_limit_w: 700.0 in A, 500.0 in B",
        'clocks throttled_by: [] in A, ["power cap"] in B',
        "model seed: 0 in A, 1 in B",
        "build stop4: sumsq in A, gather in B",
        "stamps: register in A, store in B",
        "routing: uniform in A, not known in B",
        "B lost lost_launches 3",
    }
    assert analysis.compare(with_conditions(a, {}), with_conditions(a, {})).warnings == ()


@pytest.mark.parametrize(("first", "second"), [(1980, 1930), (1930, 1980), (1980, None)])
def test_an_sm_clock_that_is_slower_by_more_than_2_per_cent_is_a_warning(
    first: int, second: int | None
) -> None:
    a, b = (with_conditions({"clocks": {"sm_mhz": mhz}}, {}) for mhz in (first, second))
    known = "not known" if second is None else second
    assert analysis.compare(a, b).warnings == (f"clocks sm_mhz: {first} in A, {known} in B",)


def test_a_section_that_both_runs_lack_is_no_warning() -> None:
    assert analysis.compare(with_conditions({"clocks": {}}, {}), with_conditions({}, {})).warnings == ()


def test_ranks_that_are_missing_or_not_aligned_are_said_and_compared_each_by_its_own_clock() -> None:
    lost = {"clock": 1, "method": "unknown", "offset_ns": None, "error_ns": None, "offsets_ns": (0,)}
    b = replace(planted(seed=2, **{**LENGTHS, "a_compute": 22_000}), alignment={1: lost}, missing=(2, 3))
    found = analysis.compare(planted(seed=1, **LENGTHS), b)
    assert found.warnings == (
        "B lacks 2 ranks: 2, 3",
        "B has ranks whose clocks are not aligned: each is compared by its own clock",
    )
    assert found.ops.to_pylist()[0]["verdict"] == "slower"


def test_job_tables_of_one_name_that_differ_are_a_warning() -> None:
    def with_jobs(jobs: tuple[Job, ...]) -> FakeRun:
        run = planted(**LENGTHS)
        return replace(run, job_table=replace(run.job_table, jobs=jobs))

    jobs = TABLE.jobs
    more = with_jobs((*jobs, job("c_compute", "c", "compute")))
    other = with_jobs((*jobs[:-1], replace(jobs[-1], awaits=0)))
    assert analysis.compare(with_jobs(jobs), more).warnings == (
        "job table small: 0 jobs in A only, 1 in B only",
    )
    assert analysis.compare(other, with_jobs(jobs)).warnings == (
        "job table small: jobs of the same names differ",
    )


def test_blocks_layers_and_job_tables_that_differ_are_warnings() -> None:
    a, b = planted(**LENGTHS), planted(**LENGTHS)
    b.all_launches = [x._replace(layer=0) for x in b.all_launches]
    b.blocks, b.job_table = 3, replace(b.job_table, name="other")
    assert analysis.compare(a, b).warnings == (
        "blocks: 2 in A, 3 in B",
        "layers: 3 sliding in A, 1 sliding in B",
        "job table: small in A, other in B",
    )


class StampsOff(FakeRun):
    """As the store has it: no span, and 0 for each time that a stamp would tell."""

    def steps(self, rank: int) -> pa.Table:
        rows = [{**row, "base_ns": 0, "end_ns": 0} for row in super().steps(rank).to_pylist()]
        return pa.Table.from_pylist(rows, schema=super().steps(rank).schema)


def without_spans(run: FakeRun) -> FakeRun:
    launches = [launch._replace(stamped=False) for launch in run.all_launches]
    return StampsOff(launches, [], run.blocks, run.ranks)


def test_a_run_without_stamps_is_compared_by_what_the_host_saw() -> None:
    run = planted(seed=1, **LENGTHS)
    for a, b, which in (
        (run, without_spans(run), "B"),
        (without_spans(run), run, "A"),
    ):
        found = analysis.compare(a, b)
        assert [(row["what"], row["of"]) for row in found.times.to_pylist()] == [("step", "host")]
        tables = (found.ops, found.only, found.busy, found.idle, found.saved)
        assert [table.num_rows for table in tables] == [0] * len(tables)
        assert found.warnings[0] == f"{which} has no spans: only times of steps and launches are compared"


def renamed(run: FakeRun) -> FakeRun:
    jobs: tuple[Job, ...] = tuple(job(f"x_{one.name}", f"x_{one.op}", one.kind) for one in TABLE.jobs)
    return replace(run, job_table=replace(run.job_table, jobs=jobs))


def of_kind(run: FakeRun, kind: str) -> FakeRun:
    return replace(run, all_launches=[launch._replace(kind=kind) for launch in run.all_launches])


EMPTY = FakeRun([], [], blocks=2, ranks=(0, 1))
SOME = planted(**LENGTHS)


@pytest.mark.parametrize(
    ("a", "b", "scope", "said"),
    [
        (SOME, EMPTY, {}, "B has no span"),
        (EMPTY, SOME, {}, "A has no span"),
        (EMPTY, replace(EMPTY, ranks=()), {}, "no rank in common: A has 0, 1, B has none"),
        (
            planted(**LENGTHS),
            planted(**LENGTHS),
            {"rank": 4},
            "rank 4 is not in both: A has 0, 1, B has 0, 1",
        ),
        (
            planted(**LENGTHS),
            planted(**LENGTHS),
            {"layer_kind": "x"},
            "A has no span in launches of kind 'x'",
        ),
        (
            planted(a_compute=9, steps=1),
            renamed(planted(a_compute=9, steps=1)),
            {},
            "no op in common: A has sliding/a/compute, B has sliding/x_a/compute",
        ),
        (
            planted(a_compute=9, steps=1),
            of_kind(planted(a_compute=9, steps=1), "global"),
            {},
            "no kind of launch in common: A has sliding, B has global",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(a: FakeRun, b: FakeRun, scope: dict[str, Any], said: str) -> None:
    with pytest.raises(AnalysisError) as refused:
        analysis.compare(a, b, **scope)
    assert str(refused.value) == f"nothing to compare: {said}"
