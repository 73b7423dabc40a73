"""Bytes of jobs that the author of a kernel declares: from the declaration to the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import musetrace
from musetrace.declare import NewJob, Role
from musetrace.errors import RecordError, UsageError
from musetrace.job_bytes import MAX_BYTES, JobBytes, LaunchBytes, RunBytes
from musetrace.job_table import JobTable
from musetrace.store import Run
from tests.unit.attached_run import GEMM, REDUCE

names = st.text(max_size=8)
counts = st.lists(st.integers(0, MAX_BYTES), min_size=3, max_size=3).map(sorted).filter(lambda of: of[2] > 0)
job_bytes = st.builds(
    lambda of, late, basis: JobBytes(of[1], of[0], of[2], min(late, of[2]), basis),
    counts,
    counts.map(max),
    names,
).map(lambda one: JobBytes.exact(one.expected) if one.low == one.high and not one.late else one)
launch_bytes = st.builds(
    LaunchBytes,
    names,
    st.none() | st.lists(st.integers(-5, 99), max_size=3).map(tuple),
    st.dictionaries(names, job_bytes, max_size=3),
    st.dictionaries(names, names, max_size=3),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "layers", "jobs", "unknown", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(launch_bytes, min_size=1, max_size=3))
def test_bytes_survive_a_manifest(launches: list[LaunchBytes]) -> None:
    data = json.loads(json.dumps([one.to_json() for one in launches]))
    assert RunBytes.of_manifest({"job_bytes": data}) == RunBytes(tuple(launches))


@given(anything)
def test_a_manifest_that_says_nonsense_is_a_note_and_never_an_error(data: Any) -> None:
    found = RunBytes.of_manifest({"job_bytes": data})
    assert found.launches or found.note
    assert found.of("a", 0) is None or found.launches


@pytest.mark.parametrize(
    "data",
    [0, -1, True, 1.5, "9", None, [1, 2], [2, 3, 9, 0, "x"], [5, 1, MAX_BYTES + 1, 0, ""], [5, 5, 5, 6, ""]],
)
def test_bytes_that_cannot_be_are_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        JobBytes.from_json(data)


def test_an_entry_for_a_layer_comes_before_one_for_all() -> None:
    every, first = LaunchBytes("k"), LaunchBytes("k", (0, 2))
    told = RunBytes((every, first))
    assert [told.of("k", layer) for layer in range(3)] == [first, every, first]
    assert (told.of("other", 0), RunBytes((first,)).of("k", 1)) == (None, None)


def record(folder: Path, table: JobTable = GEMM.table, **bytes_of: Any) -> Run:
    with musetrace.record(folder) as rec:
        rec.attach(table, GEMM.grid, device="cpu", bytes=bytes_of.get("gemm"))
        rec.attach(REDUCE.table, REDUCE.grid, device="cpu", bytes=bytes_of.get("reduce"))
    return musetrace.open(folder)


def told(run: Run) -> dict[str, dict[str, int]]:
    launches = RunBytes.of_manifest(run.manifest).launches
    return {one.kind: {name: of.expected for name, of in one.jobs.items()} for one in launches}


def test_bytes_given_to_attach_stand_under_the_names_of_the_run(tmp_path: Path) -> None:
    """Both kernels have a job ``load``, so that in the run each goes by its kernel's name too."""
    run = record(tmp_path / "run", gemm={"load": 4096}, reduce={"load": 7})
    assert told(run) == {"gemm": {"gemm.load": 4096}, "reduce": {"reduce.load": 7}}
    assert {job.name: job.bytes for job in run.job_table.jobs} == {
        "gemm.load": 4096,
        "multiply": None,
        "reduce.load": 7,
    }


def test_bytes_of_a_declared_table_are_kept_and_attach_comes_before_them(tmp_path: Path) -> None:
    jobs = [NewJob("load", "tile", "load", "one", bytes=100), NewJob("store", "tile", "send", "one", bytes=5)]
    table = JobTable.declare("gemm", 2, [Role("one", 0, 0)], jobs)
    assert JobTable.from_json(json.loads(json.dumps(table.to_json()))) == table
    assert told(record(tmp_path / "a", table)) == {"gemm": {"gemm.load": 100, "store": 5}}
    assert told(record(tmp_path / "b", table, gemm={"store": 6})) == {"gemm": {"gemm.load": 100, "store": 6}}


def test_a_run_of_kernels_without_bytes_says_so(tmp_path: Path) -> None:
    assert "does not say how many bytes" in RunBytes.of_manifest(record(tmp_path / "run").manifest).note


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"lode": 1}, "'lode', which its job table does not have"),
        ({"load": 0}, "job load of kernel gemm moves 0 bytes"),
        ({"load": -4}, "moves -4 bytes"),
        ({"load": 1.5}, "moves 1.5 bytes"),
        ({"load": True}, "moves True bytes"),
        ({"load": 1 << 60}, "1 to 2\\^53"),
        (4096, "give a dict"),
    ],
)
def test_bytes_that_attach_cannot_take_are_one_line(tmp_path: Path, given: Any, complaint: str) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        with pytest.raises(RecordError, match=complaint) as refused:
            rec.attach(GEMM.table, GEMM.grid, device="cpu", bytes=given)
        assert "\n" not in str(refused.value)
        rec.attach(GEMM.table, GEMM.grid, device="cpu")


def test_a_declared_job_with_impossible_bytes_is_one_line() -> None:
    with pytest.raises(UsageError, match="job a moves 0 bytes") as refused:
        JobTable.declare("t", 1, [Role("one", 0, 0)], [NewJob("a", "op", "load", "one", bytes=0)])
    assert "\n" not in str(refused.value)
