"""Bandwidth of what moves bytes: against a slow oracle, cases by hand, and a real recording's raw stamps."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.analysis.engines.read_ceiling import read_ceiling
from musetrace.errors import AnalysisError
from musetrace.job_bytes import JobBytes, LaunchBytes, RunBytes
from musetrace.muse.job_bytes import bytes_of_older_run
from musetrace.store import Run, open_run
from tests.slow_reader import STAMPS, read_chunks, read_stamps
from tests.unit import roofline_oracle as oracle
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import SMALL_JOBS, FakeRun, Launch, Span, small_table

A_LOAD, A_COMPUTE, B_LOAD, B_SEND, STOP_WAIT, STOP_NORM = 0, 2, 5, 7, 8, 10
MOVING = [job.name for job in SMALL_JOBS if job.kind != "wait"]

some_bytes = st.builds(
    lambda low, more, most, late, basis: JobBytes(low + more, low, low + more + most, min(late, low), basis),
    st.integers(0, 50),
    st.integers(0, 5),
    st.integers(1, 5),
    st.sampled_from([0, 0, 7, 60]),
    st.sampled_from(["", "", "drawn", "guessed"]),
)
launch_bytes = st.builds(
    LaunchBytes,
    st.sampled_from(["sliding", "global"]),
    st.sampled_from([None, None, (2,), (3, 4)]),
    st.dictionaries(st.sampled_from([*MOVING, "not_in_the_table"]), some_bytes, max_size=5),
    st.just({}),
)
PROBE = {"experiments": [{"name": "stream", "facts": [{"name": "rate", "unit": "TB/s", "n": 9}]}]}
PROBE["experiments"][0]["facts"][0] |= {"median": 0.004, "p10": 0.003, "p90": 0.005}


class Probed(FakeRun):
    """A run with a probe."""

    @property
    def manifest(self) -> dict[str, Any]:
        return {**super().manifest, "probe": PROBE}


def sortable(row: dict[str, Any]) -> str:
    names = ("part", "kind", "name", "bytes", "bytes_low", "bytes_high", "bytes_late", "unknown_jobs")
    return repr([row[name] for name in (*names, "layers")])


@given(questions(), st.lists(launch_bytes, max_size=4), st.lists(st.sampled_from(MOVING)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_roofline_is_the_oracles(
    question: tuple[FakeRun, dict[str, Any]], told: list[LaunchBytes], unknown: list[str], probed: bool
) -> None:
    run, scope = question
    launches = tuple(
        replace(one, unknown={name: "why" for name in unknown if name not in one.jobs}) for one in told
    )
    if probed:
        run = Probed(**vars(run))
    table = analysis.roofline(run, **scope, moved=RunBytes(launches))
    rows = table.to_pylist()
    expected = oracle.roofline(run, scope, RunBytes(launches), (4.0, 3.0, 5.0) if probed else None)
    expected = [{name: one[name] for name in table.schema.names} for one in expected]
    assert sorted(rows, key=sortable) == sorted(expected, key=sortable)
    order = ["launch", "phase", "op", "job"]
    assert [order.index(row["part"]) for row in rows] == sorted(order.index(row["part"]) for row in rows)


def on(job: int, begin: int, end: int, block: int = 0) -> Span:
    return Span(0, 0, 0, block, job, begin, end - begin)


def ask(
    *spans: Span, blocks: int = 2, tick_ns: int | None = 1, **jobs: Any
) -> dict[tuple[str, str], dict[str, Any]]:
    told = {name: of if isinstance(of, JobBytes) else JobBytes.exact(of) for name, of in jobs.items()}
    run = FakeRun([Launch(0, 0, 0, 0, "k", 0, 1000, blocks)], spans, blocks, (0,), tick_ns=tick_ns)
    rows = analysis.roofline(run, moved=RunBytes((LaunchBytes("k", None, told),))).to_pylist()
    return {(row["part"], row["name"]): row for row in rows}


def test_the_three_times_of_a_load_by_hand() -> None:
    """Block 0 loads from 100 to 200 and from 400 to 500, block 1 from 150 to 300: 12,000 bytes."""
    rows = ask(on(A_LOAD, 100, 200), on(A_LOAD, 400, 500), on(A_LOAD, 150, 300, 1), a_load=12_000)
    row = rows["job", "a_load"]
    assert row["elapsed_p50_ns"] == 400  # 100 to 500
    assert row["covered_p50_ns"] == 300  # 100 to 300 and 400 to 500
    assert row["block_sum_p50_ns"] == 350  # 200 of block 0 and 150 of block 1
    assert row["blocks"] == 2
    assert row["bandwidth_gb_s"] == 40  # 12,000 bytes in 300 ns
    # Two pieces: 300 ns are off by less than two ticks either way.
    assert row["bandwidth_low_gb_s"] == pytest.approx(12_000 / 302)
    assert row["bandwidth_high_gb_s"] == pytest.approx(12_000 / 298)
    assert rows["launch", "k"]["bandwidth_gb_s"] == 12


def test_what_may_be_late_is_not_counted_in_the_low_bandwidth_of_a_job_but_in_that_of_a_launch() -> None:
    rows = ask(on(A_LOAD, 0, 100), tick_ns=10, a_load=JobBytes.exact(5_000, late=4_000))
    assert rows["job", "a_load"]["bandwidth_low_gb_s"] == pytest.approx(1_000 / 110)
    assert rows["launch", "k"]["bandwidth_low_gb_s"] == pytest.approx(5_000 / 1_010)
    assert rows["job", "a_load"]["bandwidth_gb_s"] == 50


def test_phases_reach_from_stop_to_stop_and_count_what_their_ops_read() -> None:
    """The stop ends at 600, in block 1; ``b`` loads 100 of its bytes ahead, ``a`` 200, the rest nothing."""
    spans = [on(A_LOAD, 0, 100), on(B_LOAD, 50, 90), on(STOP_WAIT, 300, 500), on(STOP_NORM, 500, 600, 1)]
    rows = ask(*spans, a_load=200, b_load=100, b_send=999, stop1_norm=3)
    assert [name for part, name in rows if part == "phase"] == ["stop1"]
    phase = rows["phase", "stop1"]
    assert (phase["bytes"], phase["covered_p50_ns"], phase["block_sum_p50_ns"]) == (303, 600, None)
    assert ("phase", "end") not in rows  # the op behind the stop reads nothing
    assert rows["launch", "k"]["bytes"] == 303  # what is sent is not read


def test_a_phase_whose_stop_ends_before_the_one_in_front_has_no_length() -> None:
    """A table with two stops: the second one's wait ends at 300, in another warp, the first one's at 500."""
    first, second = SMALL_JOBS[STOP_WAIT], replace(SMALL_JOBS[12], name="stop2_wait_ranks", op="stop2")
    jobs = (SMALL_JOBS[A_LOAD], first, SMALL_JOBS[B_LOAD], second)
    table = replace(small_table(), jobs=tuple(replace(job, awaits=job.awaits and 0) for job in jobs))
    spans = [on(0, 0, 100), on(1, 100, 500), on(2, 0, 50), on(3, 200, 300)]
    run = FakeRun([Launch(0, 0, 0, 0, "k", 0, 1000, 1)], spans, 1, (0,), job_table=table)
    told = LaunchBytes("k", None, {"a_load": JobBytes.exact(100), "b_load": JobBytes.exact(100)})
    rows = analysis.roofline(run, moved=RunBytes((told,))).to_pylist()
    phases = {row["name"]: row["covered_p50_ns"] for row in rows if row["part"] == "phase"}
    assert phases == {"stop1": 500, "stop2": 0}


def test_a_time_that_may_be_none_has_no_highest_bandwidth_and_without_a_tick_there_is_no_interval() -> None:
    row = ask(on(A_LOAD, 100, 132), tick_ns=32, a_load=64)["job", "a_load"]
    assert (row["bandwidth_gb_s"], row["bandwidth_low_gb_s"], row["bandwidth_high_gb_s"]) == (2, 1, None)
    row = ask(on(A_LOAD, 100, 132), tick_ns=None, a_load=64)["job", "a_load"]
    assert (row["bandwidth_gb_s"], row["bandwidth_low_gb_s"], row["bandwidth_high_gb_s"]) == (2, None, None)
    assert ask(on(A_LOAD, 100, 100), a_load=64)["job", "a_load"]["bandwidth_gb_s"] is None


def test_launches_that_lack_a_block_are_left_out_and_counted() -> None:
    told = RunBytes((LaunchBytes("k", None, {"a_load": JobBytes.exact(8)}),))
    launches = [Launch(0, 0, 0, 0, "k", 0, 100, 1), Launch(0, 0, 1, 1, "k", 100, 200, 2)]
    spans = [on(A_LOAD, 0, 50), Span(0, 0, 1, 0, A_LOAD, 110, 20)]
    table = analysis.roofline(FakeRun(launches, spans, 2, (0,)), moved=told)
    assert [(row["name"], row["n"], row["layers"]) for row in table.to_pylist()] == [
        ("k", 1, [1]),
        ("a", 1, [1]),
        ("a_load", 1, [1]),
    ]
    assert table.schema.metadata[b"partial_launches"] == b"1"


def test_a_run_without_bytes_says_so_and_what_it_lacks_is_refused() -> None:
    run = FakeRun([Launch(0, 0, 0, 0, "k", 0, 9, 1)], [on(A_LOAD, 1, 2)], 1, (0,))
    table = analysis.roofline(run)
    assert table.num_rows == 0
    assert b"does not say how many bytes" in table.schema.metadata[b"bytes_note"]
    with pytest.raises(AnalysisError, match="no rank 7 in this run: it has 0"):
        analysis.roofline(run, rank=7)
    assert analysis.roofline(FakeRun([], [], blocks=4, ranks=())).num_rows == 0


@pytest.mark.parametrize(
    ("probe", "note"),
    [
        (None, "no probe of the device is kept"),
        ({"unreadable": "probe.json: its checksum is wrong"}, "no probe of the device is kept"),
        ({"experiments": 3}, "has not measured stream"),
        ({"experiments": [None, {"name": "stream", "facts": None}]}, "has not measured stream"),
        ({"experiments": [{"name": "stream", "facts": [{"name": "rate", "unit": "TB/s"}]}]}, "not measured"),
    ],
)
def test_a_ceiling_that_was_not_measured_is_never_invented(probe: Any, note: str) -> None:
    ceiling = read_ceiling({"probe": probe})
    assert (ceiling.gb_s, ceiling.p10_gb_s, ceiling.p90_gb_s) == (None, None, None)
    assert note in ceiling.note


def test_the_ceiling_is_the_best_rate_that_was_probed(repository: Path) -> None:
    probe = json.loads((repository / "samples/recordings/probe-h200.json").read_text())
    ceiling = read_ceiling({"probe": probe})
    # 192 KiB in flight: 4.5896 [4.5835 4.5978] TB/s.
    assert ceiling.gb_s == pytest.approx(4589.6, abs=0.1)
    assert (ceiling.p10_gb_s, ceiling.p90_gb_s) == pytest.approx((4583.5, 4597.8), abs=0.1)


@pytest.fixture(scope="module")
def slice_run(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The recording of one rank of eight on an H200, with the probe of that GPU."""
    folder = tmp_path_factory.mktemp("roofline") / "slice"
    shutil.copytree(repository / "samples/recordings/slice-h200", folder)
    return open_run(folder)


def test_what_the_recorder_kept_of_bytes_is_what_the_model_gives(slice_run: Run) -> None:
    kept = RunBytes.of_manifest(slice_run.manifest).launches
    assert kept == bytes_of_older_run(slice_run.manifest).launches
    # The first and last layer have other experts, and the last one no projection behind it.
    assert [of.kind for of in kept].count("sliding") == [of.kind for of in kept].count("global") == 2


def raw_extents(repository: Path, job: str, layers: tuple[int, ...]) -> list[int]:
    """From the first begin to the last end of a job over all blocks, by the stamps as a journal has them."""
    data = (repository / "samples/recordings/slice-h200/rank-0000.mtj").read_bytes()
    _, chunks = read_chunks(data)
    table = json.loads(chunks[0][1])["job_table"]
    number = [one["name"] for one in table["jobs"]].index(job)
    pairs = [at for at, of in enumerate(table["job_of_pair"]) if of == number]
    found = []
    for launch, _, blocks in (read_stamps(payload) for kind, payload in chunks if kind == STAMPS):
        if launch["kind"] == "sliding" and launch["layer"] in layers:
            stamped = [one.slots[2 * pair : 2 * pair + 2] for one in blocks for pair in pairs]
            begins, ends = zip(*(both for both in stamped if all(both)), strict=True)
            found.append(max(ends) - min(begins))
    return sorted(found)


def test_rows_of_a_real_recording_checked_by_hand(slice_run: Run, repository: Path) -> None:
    """Sliding layers: 0 with experts in bf16, 2 to 4 in NVFP4, two steps; the raw stamps lie 32 ns apart."""
    table = analysis.roofline(slice_run, layer_kind="sliding")
    rows = {(row["part"], row["name"], tuple(row["layers"])): row for row in table.to_pylist()}
    o_proj = raw_extents(repository, "o_proj_load", (0, 2, 3, 4))
    assert len(o_proj) == 8
    row = rows["job", "o_proj_load", (0, 2, 3, 4)]
    assert row["elapsed_p50_ns"] == row["covered_p50_ns"] == o_proj[3] == 6_656  # the 4th smallest of 8
    # Out-projection of 16 heads of 64: 8192 x 1024 x 2 bytes in 6.656 us are 2.52 TB/s; without the 34,816
    # bytes that each of 132 loaders may still have on the way, 1.82 TB/s. Memory gives 4.59 TB/s.
    assert row["bytes"] == 8192 * 1024 * 2
    assert row["bandwidth_gb_s"] == pytest.approx(16_777_216 / 6_656)
    assert row["bandwidth_low_gb_s"] == pytest.approx((16_777_216 - 132 * 34_816) / 6_688)
    assert row["bandwidth_high_gb_s"] == pytest.approx(16_777_216 / 6_624)
    assert row["ceiling_share"] == pytest.approx(16_777_216 / 6_656 / 4594.29, abs=1e-4)
    gemm1 = raw_extents(repository, "gemm1_load", (2, 3, 4))
    row = rows["job", "gemm1_load", (2, 3, 4)]
    assert row["covered_p50_ns"] == gemm1[2] == 36_448
    # 44 to 54 work items, 49.143 in the mean, of 2,359,296 bytes each: 3.18 TB/s, 2.71 to 3.50.
    assert (row["bytes_low"], row["bytes_high"]) == (44 * 2_359_296, 54 * 2_359_296)
    assert row["bandwidth_gb_s"] == pytest.approx(49.1429 * 2_359_296 / 36_448, rel=1e-5)
    assert row["bandwidth_low_gb_s"] == pytest.approx((44 * 2_359_296 - 132 * 2 * 18_432) / 36_480)
    assert row["bandwidth_high_gb_s"] == pytest.approx(54 * 2_359_296 / 36_416)
    # The whole layer: 247.3 MB in 104.7 us, 51 % of what memory gives.
    row = rows["launch", "sliding", (2, 3, 4)]
    parts = 37_748_736 + 16_777_216 + 2 * 8_388_608 + 1_048_576 + 1_064_960  # dense, router, keys and values
    assert row["bytes"] == pytest.approx(parts + 49.1429 * 3_538_944, abs=200)
    assert row["covered_p50_ns"] == 104_672
    assert row["ceiling_share"] == pytest.approx(0.514, abs=0.001)
    assert all(row["n"] == 2 * len(row["layers"]) for row in rows.values())


def test_phases_of_a_real_recording_follow_its_stops(slice_run: Run) -> None:
    """The last layer that runs projects nothing behind stop 5; the entry has only that."""
    phases = {
        kind: {
            (row["name"], tuple(row["layers"]), row["n"])
            for row in analysis.roofline(slice_run, layer_kind=kind).to_pylist()
            if row["part"] == "phase"
        }
        for kind in ("entry", "global", "head")
    }
    stops = {(f"stop{number}", (1, 5), 4) for number in range(1, 6)}
    assert phases == {"entry": {("end", (-1,), 2)}, "global": {*stops, ("end", (1,), 2)}, "head": set()}
