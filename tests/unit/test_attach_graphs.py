"""Launches that are part of a graph: each replay is a step, and what was not seen is counted."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

import musetrace
from musetrace.errors import RecordError
from musetrace.record.recorder import Recorder
from tests.builders import small_table
from tests.host_device import wait_until
from tests.host_kernel import HostKernel
from tests.scripted_device import Graph, ScriptedDevice, capture, install

GEMM, REDUCE = HostKernel(small_table(), 3), HostKernel(small_table(32), 2)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    return install(monkeypatch)


def attached(rec: Recorder, **more: Any) -> tuple[Any, Any]:
    gemm = rec.attach(GEMM.table, GEMM.grid, name="gemm", device="cpu", **more)
    return gemm, rec.attach(REDUCE.table, REDUCE.grid, name="reduce", device="cpu", **more)


def captured(device: ScriptedDevice, gemm: Any, reduce: Any, layers: int = 2) -> Graph:
    """Gemm and reduce in turn, ``layers`` times."""
    with capture(device) as graph:
        for _ in range(layers):
            for kernel, handle in ((GEMM, gemm), (REDUCE, reduce)):
                with handle.launch() as stamps:
                    graph.add(kernel, stamps.ptr)
    return graph


def launches(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    rows = musetrace.open(path).launches(0).select(list(columns)).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_each_replay_is_a_step_of_its_launches_in_the_order_of_capture(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    began = []
    with musetrace.record(tmp_path / "run") as rec:
        graph = captured(device, *attached(rec))
        assert len({address for _, address in graph.launches}) == 4
        for _ in range(3):
            with rec.step(stream="side"):
                began.append(graph.replay())
    result = rec.close()
    assert (result.steps, result.launches, result.lost_launches) == (3, 12, 0)
    per_step = [(0, "gemm", 0), (1, "reduce", 0), (2, "gemm", 1), (3, "reduce", 1)]
    assert launches(tmp_path / "run", "step", "launch", "kind", "layer") == [
        (step, *launch) for step in range(3) for launch in per_step
    ]
    assert launches(tmp_path / "run", "begin_ns") == [(t0,) for step in began for t0 in step]
    assert launches(tmp_path / "run", "epoch") == [(1 + step,) for step in range(3) for _ in range(4)]
    assert device.log == [("snapshot", "side"), ("snapshot", "side")] * 3
    run = musetrace.open(tmp_path / "run")
    assert [run.spans(0, step).num_rows for step in range(3)] == [2 * (3 * 8 + 2 * 16)] * 3
    assert not run.losses["stale"]


def test_a_graph_that_is_not_replayed_in_a_step_has_no_launch_there(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        prefill, decode = captured(device, gemm, reduce, 1), captured(device, gemm, reduce, 2)
        for graph in (prefill, decode, None, decode):
            with rec.step():
                if graph is not None:
                    graph.replay()
    assert rec.close().lost_launches == 0
    found = launches(tmp_path / "run", "step", "launch")
    assert found == [(0, 0), (0, 1), *[(1, n) for n in (2, 3, 4, 5)], *[(3, n) for n in (2, 3, 4, 5)]]
    assert musetrace.open(tmp_path / "run").step_ids(0) == [0, 1, 2, 3]


def test_eager_launches_of_a_step_stand_before_its_replays(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        graph = captured(device, gemm, reduce, 1)
        with rec.step():
            graph.replay()
            for _ in range(2):
                with gemm.launch() as stamps:
                    GEMM.run(stamps.ptr)
    found = launches(tmp_path / "run", "launch", "kind")
    assert found == [(0, "gemm"), (1, "gemm"), (2, "gemm"), (3, "reduce")]


def test_replays_that_share_a_step_are_counted_and_the_last_is_kept(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    few = HostKernel(GEMM.table, GEMM.grid, pairs=(0, 2))
    with musetrace.record(tmp_path / "run") as rec:
        gemm, _ = attached(rec)
        with capture(device), gemm.launch() as stamps:
            address = stamps.ptr
        with rec.step():
            for kernel, t0 in ((GEMM, 10_000_000), (GEMM, 20_000_000), (few, 30_000_000)):
                kernel.run(address, device.anchor.device_ns + t0)
        with rec.step():
            GEMM.run(address)
    run = musetrace.open(tmp_path / "run")
    assert (run.losses["lost_launches"], run.launches(0).num_rows) == (2, 2)
    assert run.launches(0)["begin_ns"][0].as_py() == device.anchor.device_ns + 30_000_000
    assert [run.spans(0, step).num_rows for step in (0, 1)] == [2 * 3, 8 * 3]
    assert run.loss_reasons == {"replayed 3 times in one step": 2}


def test_replays_outside_of_steps_are_counted_at_the_end(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        graph = captured(device, *attached(rec), layers=1)
        with rec.step():
            graph.replay()
        for _ in range(5):
            graph.replay()
    run = musetrace.open(tmp_path / "run")
    assert launches(tmp_path / "run", "step", "launch") == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert run.loss_reasons == {"replayed 5 times outside of a step": 8}


def test_a_replay_after_the_close_writes_to_memory_that_is_still_there(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        graph = captured(device, *attached(rec))
        with rec.step():
            graph.replay()
    del rec
    for _ in range(3):
        graph.replay()
    with musetrace.record(tmp_path / "next") as rec:
        gemm, _ = attached(rec)
        with rec.step(), gemm.launch() as stamps:
            graph.replay()
            GEMM.run(stamps.ptr)
    assert launches(tmp_path / "run", "step") == [(0,)] * 4
    assert launches(tmp_path / "next", "step") == [(0,)]


def test_a_step_without_a_free_snapshot_is_counted_when_there_is_one_again(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        graph = captured(device, *attached(rec), layers=1)
        device.gate.clear()  # nothing is drained
        for _ in range(7):
            with rec.step():
                graph.replay()
        device.gate.set()
        wait_until(lambda: len(rec._kernels._graphs.captured.slabs[-1]._free) == 4)
        with rec.step():
            graph.replay()
    # Four snapshots were free; three steps found none.
    assert [what for what, _ in device.log] == ["snapshot"] * 8 + ["forget"] * 6 + ["snapshot"] * 2
    run = musetrace.open(tmp_path / "run")
    assert run.loss_reasons == {"buffers_busy": 6}
    assert sorted(set(run.launches(0)["step"].to_pylist())) == [0, 1, 2, 3, 7]
    assert run.losses["stale"] == 0


def test_skipped_replays_count_although_the_graph_is_not_replayed_again(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        graph = captured(device, *attached(rec), layers=1)
        device.gate.clear()
        for _ in range(5):
            with rec.step():
                graph.replay()
        device.gate.set()
    run = musetrace.open(tmp_path / "run")
    assert (run.launches(0).num_rows, run.losses["lost_launches"]) == (8, 2)


def test_many_captured_launches_have_regions_of_their_own(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        graph = captured(device, gemm, reduce, layers=70)
        assert len({address for _, address in graph.launches}) == 140
        with rec.step():
            graph.replay()
    assert launches(tmp_path / "run", "launch", "layer") == [(n, n // 2) for n in range(140)]
    assert rec.close().lost_launches == 0


def test_a_step_around_a_capture_leaves_the_capture_alone(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        first = captured(device, gemm, reduce, 1)
        device.capturing.add("current")
        with rec.step(), gemm.launch() as stamps:
            first.add(GEMM, stamps.ptr)
        device.capturing.remove("current")
        with rec.step():
            first.replay()
    assert launches(tmp_path / "run", "step", "launch") == [(1, 0), (1, 1), (1, 2)]


def test_a_capture_opens_no_run_and_ends_the_attaching(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        graph = captured(device, gemm, reduce, 1)
        assert (rec._drain, list((tmp_path / "run").iterdir())) == (None, [])
        with pytest.raises(RecordError, match="kernel late is attached after the first launch or step"):
            rec.attach(GEMM.table, 1, name="late", device="cpu")
        with rec.step():
            graph.replay()
    assert launches(tmp_path / "run", "step", "launch") == [(0, 0), (0, 1)]


def test_a_captured_launch_without_memory_is_counted_and_does_not_stamp(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, _ = attached(rec, buffers=4)
        device.rows_left = 8
        with capture(device):
            pointers = []
            for _ in range(9):
                with gemm.launch() as stamps:
                    pointers.append(stamps.ptr)
    assert [pointer != 0 for pointer in pointers] == [True] * 8 + [False]
    run = musetrace.open(tmp_path / "run")
    assert run.loss_reasons == {"no_memory_for_a_captured_launch": 1}


def test_captured_kernels_that_never_stamped_are_named(
    tmp_path: Path, device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        captured(device, gemm, reduce, 2)
        with reduce.launch():
            pass
        with rec.step():
            pass
    assert capsys.readouterr().err.splitlines() == [
        "musetrace: kernel gemm was captured 2 times and its graph never replayed while the recorder was "
        "open, or it never stamped: pass stamps.ptr to it, and build it with -DMUSETRACE_STAMPS=2",
        "musetrace: kernel reduce was launched 3 times and never stamped: pass stamps.ptr to it, and build "
        "it with -DMUSETRACE_STAMPS=2",
    ]


def test_without_stamps_a_capture_is_left_alone(tmp_path: Path, device: ScriptedDevice) -> None:
    with musetrace.record(tmp_path / "run", stamps="off") as rec:
        gemm, reduce = attached(rec)
        assert {address for _, address in captured(device, gemm, reduce).launches} == {0}
        with rec.step(), gemm.launch() as stamps:
            assert stamps.ptr == 0
    assert launches(tmp_path / "run", "step", "kind") == [(0, "gemm")]


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_device_that_fails_ends_the_recording_and_not_the_program(
    tmp_path: Path, device: ScriptedDevice, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, reduce = attached(rec)
        graph = captured(device, gemm, reduce, 1)
        with rec.step():
            graph.replay()
        wait_until(lambda: rec._drain.journals[0].launches == 2)
        device.broken = True
        for _ in range(3):
            with rec.step():
                if how == "graph":
                    graph.replay()
                else:
                    with gemm.launch() as stamps:
                        GEMM.run(stamps.ptr)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("musetrace: recording stopped: ")
    assert "CUDA error: an illegal memory access was encountered; the program goes on" in line
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0).num_rows == 2
    assert run.manifest["ranks"][0]["end_reason"].startswith("failed: ")
    assert run.losses["lost_launches"] == (3 if how == "eager" else 0)


def test_what_a_graph_holds_of_the_recorder_is_a_plain_address(
    tmp_path: Path, device: ScriptedDevice
) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm, _ = attached(rec)
        with capture(device), gemm.launch() as stamps:
            pass
        words = (ctypes.c_uint32 * 8).from_address(stamps.ptr)
        assert list(words) == [GEMM.grid, 16, 4, 1, 0, 0, 0, 0]
        for epoch in (2, 3):
            with rec.step():
                pass
            assert list(words) == [GEMM.grid, 16, 4, epoch, 0, 0, 0, 0]
