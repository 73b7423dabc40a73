"""The collector and the recorder around it: what is handed out, what is written, what is counted."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musetrace.errors import RecordError
from musetrace.record import record
from musetrace.record.recorder import Recorder
from musetrace.record.source import BUFFERS, LaunchInfo, StampSource
from musetrace.store import open_run
from tests import slow_reader
from tests.builders import small_table
from tests.host_device import HostDevice, already_done, wait_until


def info(step: int, launch: int = 0) -> LaunchInfo:
    return LaunchInfo(step, launch, 0, "sliding")


@pytest.mark.parametrize("stamps", ["store", "register"])
def test_what_the_device_stamped_is_what_the_store_holds(tmp_path: Path, stamps: str) -> None:
    device = HostDevice(ranks=2, blocks=3, stamps=stamps)
    with record(tmp_path / "run", stamps=stamps) as recorder:
        device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=3, launches=2)
    result = recorder.close()
    assert (result.verdict, result.state, result.ranks, result.steps) == ("complete", "closed", 2, 3)
    assert (result.launches, result.stamps, result.lost_launches) == (12, 12 * 3 * 16, 0)
    run = open_run(tmp_path / "run")
    for rank in (0, 1):
        assert run.step_ids(rank) == [0, 1, 2]
        for step in range(3):
            rows = run.spans(rank, step).to_pylist()
            assert len(rows) == 2 * 3 * 8
            for row in rows:
                pair = row["job"] & 0x7FFF
                assert (row["dur"], row["flag"], row["sm"]) == (pair + 1, 0, row["block"] + 7)
            assert rows == slow_reader.read_spans((tmp_path / f"run/rank-000{rank}.mtj").read_bytes())[step]


def test_without_stamps_launches_and_steps_are_recorded(tmp_path: Path) -> None:
    device = HostDevice(stamps="off")
    with record(tmp_path / "run", stamps="off") as recorder:
        device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=2)
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows, run.spans(0, 1).num_rows) == ("complete", 6, 0)
    assert run.manifest["stamps"] == "off"
    launch = run.launches(0).to_pylist()[0]
    assert launch["begin_ns"] == launch["end_ns"] == 0
    assert 0 < launch["submit_ns"] <= launch["done_ns"]


def test_each_lease_has_a_buffer_of_its_own_and_a_growing_epoch(tmp_path: Path) -> None:
    device = HostDevice(ranks=2)
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        leases = [collector.acquire(info(0, launch)) for launch in range(BUFFERS)]
        assert all(lease is not None for lease in leases)
        assert len({lease.address for lease in leases if lease}) == BUFFERS
        assert [lease.epoch for lease in leases if lease] == list(range(1, BUFFERS + 1))
        assert all(lease.address % 128 == 0 for lease in leases if lease)
        assert collector.acquire(info(0, BUFFERS)) is None


def test_a_drained_buffer_comes_back_clean(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        for step in range(BUFFERS + 8):
            wait_until(lambda: len(recorder._drain.free) == BUFFERS)
            lease = collector.acquire(info(step))
            assert lease is not None
            assert not lease.buffer.memory.any()
            device.stamp(lease)
            collector.submit(lease, already_done)


def test_stamps_of_an_earlier_launch_are_never_taken_for_data(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        lease = collector.acquire(info(0))
        assert lease is not None
        device.stamp(lease)
        layout = device.source().layout
        layout.headers(lease.buffer.memory)["epoch"][1] = lease.epoch + 1
        collector.submit(lease, already_done)
    run = open_run(tmp_path / "run")
    assert run.losses["stale"] == 8
    assert [row["flag"] for row in run.spans(0, 0).to_pylist()] == [0] * 8 + [4] * 8


def test_losses_are_exact_when_the_drain_is_slower_than_the_producer(tmp_path: Path) -> None:
    device = HostDevice(ranks=2)
    gate = threading.Semaphore(0)
    recorded = attempts = 0
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        for step in range(40):
            recorded += device.run_step(collector, step, launches=5, wait_done=gate.acquire)
            attempts += 5
            gate.release(3)
            time.sleep(0.0005)
        gate.release(1000)
    result = recorder.close()
    assert 0 < recorded < attempts
    assert (result.launches, result.lost_launches) == (2 * recorded, 2 * (attempts - recorded))
    run = open_run(tmp_path / "run")
    assert run.verdict == "complete"
    assert run.losses["lost_launches"] == 2 * (attempts - recorded)
    assert sum(run.launches(rank).num_rows for rank in run.ranks) == 2 * recorded


def test_acquire_and_submit_never_wait_for_the_drain(tmp_path: Path) -> None:
    device = HostDevice()
    gate = threading.Event()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        # The drain thread is stuck in the first launch for as long as this loop runs.
        taken = sum(device.run_step(collector, step, wait_done=gate.wait) for step in range(1000))
        assert taken == BUFFERS
        gate.set()
    assert recorder.close().lost_launches == 3000 - BUFFERS


def test_a_lease_that_is_never_submitted_counts_as_lost(tmp_path: Path) -> None:
    device = HostDevice(ranks=2)
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        assert collector.acquire(info(0)) is not None
    assert recorder.close().lost_launches == 2
    assert open_run(tmp_path / "run").losses["lost_launches"] == 2


def test_numbers_that_do_not_grow_cost_the_launch_and_not_the_program(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        assert device.run_step(collector, 5, launches=2) == 2
        assert collector.acquire(info(5, 1)) is None
        assert collector.acquire(info(4, 7)) is None
        with pytest.raises(RecordError, match="step 5 is noted after step 5"):
            collector.step(5, 1, 2)
        with pytest.raises(RecordError, match="70000 tokens"):
            collector.step(6, 1, 2, tokens=70_000)
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.losses["lost_launches"]) == ("complete", 2)


def test_a_launch_submitted_after_a_later_step_is_lost_and_nothing_is_damaged(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        early, late = collector.acquire(info(0)), collector.acquire(info(1))
        assert early is not None
        assert late is not None
        for lease in (late, early):
            device.stamp(lease)
            collector.submit(lease, already_done)
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.losses["lost_launches"], run.step_ids(0)) == ("complete", 1, [0, 1][1:])


def test_a_report_and_numpy_numbers_are_written(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        numbers = (np.int64(0), np.int64(1), np.int32(2))
        lease = collector.acquire(LaunchInfo(*numbers, "head"))
        assert lease is not None
        device.stamp(lease)
        collector.submit(lease, already_done)
        collector.report({"site": np.uint32(7), "want": np.uint64(2**63)})
    run = open_run(tmp_path / "run")
    assert run.launches(0)["kind"].to_pylist() == ["head"]
    assert run.manifest["reports"] == [{"site": 7, "want": 2**63, "rank": 0}]


def test_what_the_device_is_reaches_the_manifest(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        recorder.attach(device.source())
    manifest = open_run(tmp_path / "run").manifest
    assert (manifest["device"], manifest["build"]) == ({"kind": "host"}, {"flags": "-O0"})
    assert manifest["clock"] == {"name": "CLOCK_MONOTONIC", "tick_ns": 1}
    first, last = manifest["ranks"][0]["anchors"]
    for anchor in (first, last):
        assert abs(anchor["device_ns"] - anchor["host_monotonic_ns"]) < 10**8
    assert first["device_ns"] <= last["device_ns"] <= time.monotonic_ns()


def test_a_recorder_that_is_off_leases_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSETRACE_OUTPUT", raising=False)
    monkeypatch.chdir(tmp_path)
    device = HostDevice()
    with record() as recorder, record() as second:
        assert (recorder.active, second.active, recorder.state) == (False, False, "off")
        collector = recorder.attach(device.source())
        assert device.run_step(collector, 0) == 0
        collector.report({})
    assert recorder.close().verdict == "off"
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_output_and_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSETRACE_OUTPUT", str(tmp_path / "named"))
    monkeypatch.setenv("MUSETRACE_STAMPS", "store")
    with record(tmp_path / "elsewhere") as recorder:
        assert (recorder.path, recorder.stamps, recorder.active) == (tmp_path / "named", "store", True)
        recorder.attach(HostDevice().source())
    assert open_run(tmp_path / "named").verdict == "complete"
    assert not (tmp_path / "elsewhere").exists()


def test_a_recorder_without_a_device_leaves_no_folder(tmp_path: Path) -> None:
    with record(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists()


def test_a_device_of_another_build_is_refused(tmp_path: Path) -> None:
    with record(tmp_path / "run", stamps="register") as recorder:
        with pytest.raises(RecordError, match="8 bytes.*opened for register"):
            recorder.attach(HostDevice(stamps="store").source())
        recorder.attach(HostDevice(stamps="register").source())
        with pytest.raises(RecordError, match="has a device already"):
            recorder.attach(HostDevice(stamps="register").source())
    with pytest.raises(RecordError, match="choose register, store or off"):
        Recorder(tmp_path / "other", stamps="both")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allocate": lambda size: np.zeros(size + 8, dtype=np.uint8)}, "bytes for"),
        ({"allocate": lambda size: no_memory()}, "cannot allocate .* bytes for stamps"),
        ({"device": {"handle": object()}}, "cannot start the recording"),
        ({"model": {"x": float("nan")}}, "cannot start the recording"),
    ],
)
def test_a_device_that_cannot_be_recorded_is_refused_before_its_first_launch(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    source = HostDevice().source()
    with record(tmp_path / "run", stamps="store") as recorder:
        with pytest.raises(RecordError, match=message):
            recorder.attach(StampSource(**{**vars(source), **change}))
        recorder.attach(source)
    assert open_run(tmp_path / "run").verdict == "complete"


def no_memory() -> Any:
    raise MemoryError


@pytest.mark.parametrize("change", [{"ranks": 0}, {"blocks": 65536}, {"blocks": 0}, {"slot_bytes": 2}])
def test_a_source_that_the_format_cannot_hold_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        StampSource(**{**vars(HostDevice().source()), **change})
    with pytest.raises(RecordError, match="even"):
        StampSource(**{**vars(HostDevice().source()), "job_table": small_table(0)})


@pytest.mark.parametrize(
    "values", [(1.0, 0, 0, "head"), (True, 0, 0, "head"), (0, 0, None, "head"), (0, 0, 0, 7)]
)
def test_a_launch_of_the_wrong_types_is_refused(values: Any) -> None:
    with pytest.raises(RecordError, match="must be integers"):
        LaunchInfo(*values)


@pytest.mark.parametrize(
    "values", [(0, 1.5, 2, 0), (0, -1, 2, 0), (0, 1, 2**63, 0), ("0", 1, 2, 0), (0, 1, 2, -1)]
)
def test_a_step_that_the_format_cannot_hold_is_refused(tmp_path: Path, values: Any) -> None:
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(HostDevice().source())
        with pytest.raises(RecordError, match="is noted with|cannot be recorded"):
            collector.step(*values)
        collector.step(0, 1, 2, 3)
    assert open_run(tmp_path / "run").steps(0)["tokens"].to_pylist() == [3]


def test_a_report_that_json_cannot_hold_is_kept_as_text(tmp_path: Path) -> None:
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(HostDevice().source())
        collector.report({"site": object})
        collector.report({"site": "x" * 100_000})
    run = open_run(tmp_path / "run")
    assert run.verdict == "complete"
    first, second = (report["text"] for report in run.manifest["reports"])
    assert first == "{'site': <class 'object'>}"
    assert second.startswith("{'site': 'xxx")


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (2**32, 0, 0), (0, 65535, 0), (0, -1, 0), (0, 0, 40_000)])
def test_a_launch_that_the_format_cannot_hold_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(RecordError, match="cannot be recorded"):
        LaunchInfo(*numbers, "sliding")


def test_memory_of_the_ledger_is_bounded_and_its_sum_exact() -> None:
    from musetrace.record.loss_ledger import LossLedger

    ledger = LossLedger()
    for step in range(5000):
        ledger.note(info(step), "a")
        ledger.note(info(step), "a")
    entries = ledger.take()
    assert len(entries) == 1024
    assert sum(entry.launches for entry in entries) == 10_000
    assert ledger.take() == []


def test_leases_taken_at_once_have_epochs_in_a_row_or_are_all_lost(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        assert collector.acquire(info(0)) is not None
        leases = collector.acquire_all([info(1, launch) for launch in range(BUFFERS - 2)])
        assert leases is not None
        assert [lease.epoch for lease in leases] == list(range(2, BUFFERS))
        assert len({lease.address for lease in leases}) == BUFFERS - 2
        # One buffer is left: two launches get none, and it stays for one.
        assert collector.acquire_all([info(2, 0), info(2, 1)]) is None
        assert collector.acquire_all([info(2, 1), info(3, 0)]) is None
        assert collector.acquire_all([info(4, 1), info(4, 0)]) is None
        lease = collector.acquire(info(5))
        assert lease is not None
        assert lease.epoch == BUFFERS
        for taken in (*leases, lease):
            device.stamp(taken)
            collector.submit(taken, already_done)
    result = recorder.close()
    assert (result.launches, result.lost_launches) == (
        BUFFERS - 1,
        6 + 1,
    )  # and the first was never submitted


def test_epochs_in_a_row_begin_again_before_the_largest(tmp_path: Path) -> None:
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(HostDevice().source())
        collector._epoch = 2**32 - 3
        leases = collector.acquire_all([info(0, launch) for launch in range(2)])
        assert [lease.epoch for lease in leases or []] == [2**32 - 2, 2**32 - 1]
        leases = collector.acquire_all([info(1, launch) for launch in range(2)])
        assert [lease.epoch for lease in leases or []] == [1, 2]


def test_waiting_for_room_ends_when_the_drain_has_made_it(tmp_path: Path) -> None:
    device = HostDevice()
    gate = threading.Event()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(device.source())
        assert collector.wait_free(BUFFERS, 0)
        assert not collector.wait_free(BUFFERS + 1, 60)  # there never are so many
        device.run_step(collector, 0, wait_done=gate.wait)
        assert collector.wait_free(BUFFERS - 3, 0)
        assert not collector.wait_free(BUFFERS, 0.01)
        gate.set()
        assert collector.wait_free(BUFFERS, 60)
    assert not collector.wait_free(1, 60)


def test_the_device_says_how_many_buffers_it_needs(tmp_path: Path) -> None:
    device = HostDevice()
    with record(tmp_path / "run", stamps="store") as recorder:
        collector = recorder.attach(replace(device.source(), buffers=100))
        assert len(collector.acquire_all([info(0, launch) for launch in range(100)]) or []) == 100
    for buffers in (0, 1025):
        with pytest.raises(RecordError, match=f"{buffers} stamp buffers cannot be had; the limit is 1024"):
            replace(device.source(), buffers=buffers)
