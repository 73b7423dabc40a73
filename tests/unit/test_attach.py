"""Other people's kernels, in host memory: what the run holds, what is counted, what is said."""

from __future__ import annotations

import ctypes
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import musetrace
from musetrace.record.kernel_launch import AlreadyEnded
from musetrace.record.recorder import Recorder
from tests import slow_reader
from tests.builders import small_table, wide_table
from tests.host_device import HostDevice, wait_until
from tests.host_kernel import SLOT_BYTES, HostKernel

BLOCKS = 3


def attach(rec: Recorder, kernel: HostKernel, name: str = "gemm", **more: Any) -> Any:
    return rec.attach(kernel.table, more.pop("grid", kernel.grid), name=name, device="cpu", **more)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("stamps", ["store", "register"])
def test_what_kernels_stamp_is_what_the_store_holds(tmp_path: Path, stamps: str) -> None:
    gemm, reduce = HostKernel(wide_table(64, 4), 3, stamps), HostKernel(small_table(), 5, stamps)
    began: dict[tuple[int, int], int] = {}
    with musetrace.record(tmp_path / "run", stamps=stamps) as rec:
        first, second = attach(rec, gemm, "gemm"), attach(rec, reduce, "reduce")
        for step in range(4):
            with rec.step(tokens=2):
                for launch in range(3):
                    with first.launch() as stamps_of:
                        began[step, launch] = gemm.run(stamps_of.ptr)
                with second.launch(layer=-7) as stamps_of:
                    began[step, 3] = reduce.run(stamps_of.ptr)
    result = rec.close()
    assert (result.verdict, result.steps, result.launches, result.lost_launches) == ("complete", 4, 16, 0)
    assert result.stamps == 4 * (3 * 3 * 64 + 5 * 16)
    run = musetrace.open(tmp_path / "run")
    launches = run.launches(0)
    assert launches["kind"].to_pylist() == ["gemm", "gemm", "gemm", "reduce"] * 4
    assert launches["layer"].to_pylist() == [0, 1, 2, -7] * 4
    assert launches["launch"].to_pylist() == [0, 1, 2, 3] * 4
    assert launches["blocks"].to_pylist() == [3, 3, 3, 5] * 4
    assert run.steps(0)["tokens"].to_pylist() == [2] * 4
    data = (tmp_path / "run" / "rank-0000.mtj").read_bytes()
    for step in range(4):
        rows = run.spans(0, step).to_pylist()
        base = run.steps(0)["base_ns"][step].as_py()
        for row in rows:
            kernel = reduce if row["launch"] == 3 else gemm
            times = kernel.times(began[step, row["launch"]])[row["block"]].astype(np.int64)
            ours = (times[:, 0] == row["begin"] + base) & (times[:, 1] - times[:, 0] == row["dur"])
            pair = int(np.flatnonzero(ours)[0])
            job = kernel.table.job_of_pair[pair]
            assert row["flag"] == 0
            if job >= 0:
                assert run.job_table.op_name(row["job"]) == kernel.table.op_name(job)
        assert len(rows) == 3 * 3 * 32 + 5 * 8
        assert rows == slow_reader.read_spans(data)[step]


def test_without_steps_every_launch_is_one(tmp_path: Path) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel)
        for _ in range(5):
            with gemm.launch() as stamps:
                kernel.run(stamps.ptr)
    result = rec.close()
    run = musetrace.open(tmp_path / "run")
    assert (result.steps, run.step_ids(0)) == (5, [0, 1, 2, 3, 4])
    assert run.launches(0)["launch"].to_pylist() == [0] * 5
    assert run.launches(0)["layer"].to_pylist() == [0] * 5
    assert run.steps(0)["host_begin_ns"].to_pylist() == [0] * 5  # nobody said


def test_the_kernel_of_a_cpp_program_is_recorded(tmp_path: Path, libraries: dict[str, ctypes.CDLL]) -> None:
    for mode in ("store", "register"):
        library = libraries[mode]
        with musetrace.record(tmp_path / mode, stamps=mode) as rec:
            gemm = rec.attach(library.musetrace_job_table_GemmJobs, (2, 2), device="cpu")
            assert (gemm.name, gemm.blocks) == ("gemm", 4)
            for tiles in (1, 2):
                with gemm.launch() as stamps:
                    library.run_gemm(ctypes.c_void_p(stamps.ptr), 4, tiles, 0xFFFF)
        run = musetrace.open(tmp_path / mode)
        assert (run.verdict, run.losses["no_end"], run.losses["outside"]) == ("complete", 0, 0)
        for step, tiles in enumerate((1, 2)):
            rows = run.spans(0, step).to_pylist()
            names = Counter(run.job_table.job_name(row["job"]) for row in rows)
            per_block = {"tile_load": tiles, "tile_wait": 2 * tiles, "tile_compute": 2 * tiles}
            assert names == {
                n: 4 * c for n, c in {**per_block, "released": 2, "trace": 13 * tiles, "tile_life": 1}.items()
            }
            payloads = {row["payload"] for row in rows if row["has_payload"]}
            assert payloads == {1000 + tile for tile in range(tiles)}


def test_launches_of_several_threads_keep_their_numbers(tmp_path: Path) -> None:
    kernels = [HostKernel(small_table(), 1 + n) for n in range(3)]
    gate = threading.Barrier(3)
    with musetrace.record(tmp_path / "run") as rec:
        attached = [attach(rec, kernel, f"k{n}", buffers=256) for n, kernel in enumerate(kernels)]

        def work(number: int) -> None:
            gate.wait()
            for _ in range(60):
                with attached[number].launch() as stamps:
                    kernels[number].run(stamps.ptr)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    result = rec.close()
    assert (result.verdict, result.launches, result.lost_launches) == ("complete", 180, 0)
    run = musetrace.open(tmp_path / "run")
    assert run.step_ids(0) == list(range(180))
    assert Counter(run.launches(0)["kind"].to_pylist()) == {f"k{n}": 60 for n in range(3)}
    assert not run.notes


def test_launches_inside_of_each_other_belong_to_their_step(tmp_path: Path) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        one, two = attach(rec, kernel, "one"), attach(rec, kernel, "two")
        with rec.step(), one.launch() as a, two.launch() as b:
            kernel.run(a.ptr)
            kernel.run(b.ptr)
        outside = one.launch()
        stamps = outside.__enter__()
        with rec.step():
            kernel.run(stamps.ptr)
            outside.__exit__(None, None, None)
    run = musetrace.open(tmp_path / "run")
    found = run.launches(0).select(["step", "launch", "kind"]).to_pylist()
    assert found == [
        {"step": 0, "launch": 0, "kind": "one"},
        {"step": 0, "launch": 1, "kind": "two"},
        {"step": 1, "launch": 0, "kind": "one"},
    ]


def test_a_region_comes_back_clean_with_its_next_epoch(tmp_path: Path) -> None:
    """The second launch in a region stamps less, and nothing of the first is taken for its own."""
    both, few = HostKernel(small_table(), 2), HostKernel(small_table(), 1, pairs=(0, 2))
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, both, buffers=1)
        addresses = set()
        for kernel in (both, few):
            with gemm.launch() as stamps:
                addresses.add(stamps.ptr)
                kernel.run(stamps.ptr)
            wait_until(lambda: not rec._kernels._kernels[0].pool.is_lent)
    assert len(addresses) == 1
    assert addresses.pop() % 128 == 0
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0)["epoch"].to_pylist() == [1, 2]
    assert run.launches(0)["blocks"].to_pylist() == [2, 1]
    assert run.launches(0)["stale_blocks"].to_pylist() == [0, 0]
    assert [run.spans(0, step).num_rows for step in (0, 1)] == [16, 2]


def test_without_a_free_buffer_the_launch_goes_on_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    gate = threading.Event()
    monkeypatch.setattr(AlreadyEnded, "synchronize", lambda self: gate.wait(20))
    pointers = []
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel, buffers=2)
        for _ in range(10):
            with gemm.launch() as stamps:
                kernel.run(stamps.ptr)
                pointers.append(stamps.ptr)
        gate.set()
    assert [pointer != 0 for pointer in pointers] == [True] * 2 + [False] * 8
    result = rec.close()
    assert (result.launches, result.lost_launches) == (2, 8)
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.losses["lost_launches"]) == ("complete", 8)


def test_a_kernel_of_another_build_is_named_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = HostKernel(small_table(), BLOCKS)
    for stamps, kernel, remedy in (
        (
            "register",
            HostKernel(small_table(), 3, "store"),
            "-DMUSETRACE_STAMPS=2, or record with stamps='store'",
        ),
        (
            "store",
            HostKernel(small_table(), 3, "register"),
            "-DMUSETRACE_STAMPS=1, or record with stamps='register'",
        ),
        (
            "register",
            HostKernel(small_table(32), 3),
            "give attach() the job table that the kernel is built with",
        ),
    ):
        folder = tmp_path / f"{stamps}-{kernel.table.slots}-{kernel.stamps}"
        with musetrace.record(folder, stamps=stamps) as rec:
            gemm = rec.attach(told.table, 3, name="gemm", device="cpu")
            for _ in range(3):
                with gemm.launch() as at:
                    kernel.run(at.ptr)
        (line,) = said(capsys)
        size, told_size = SLOT_BYTES[kernel.stamps], SLOT_BYTES[stamps]
        assert line.startswith(
            f"musetrace: kernel gemm was built for {kernel.table.slots} slots of {size} bytes, attach() was "
            f"told 16 slots of {told_size} bytes: its launches are lost; "
        )
        assert line.endswith(remedy)
        run = musetrace.open(folder)
        assert (run.verdict, run.losses["lost_launches"]) == ("complete", 3)
        assert run.launches(0).num_rows == 0
        assert run.manifest["reports"] == [{"kernel": "gemm", "text": line[len("musetrace: ") :], "rank": 0}]


def test_blocks_beyond_the_grid_are_named_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = HostKernel(small_table(), 200)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel, grid=132)
        for _ in range(4):
            with gemm.launch() as stamps:
                kernel.run(stamps.ptr)
    assert said(capsys) == [
        "musetrace: kernel gemm ran 200 blocks, attach() was told 132: the stamps of 68 are lost; "
        "attach it with grid=200"
    ]
    run = musetrace.open(tmp_path / "run")
    assert (run.losses["dropped_blocks"], run.losses["lost_launches"]) == (4 * 68, 0)
    assert run.launches(0)["blocks"].to_pylist() == [132] * 4


def test_a_region_that_two_launches_shared_holds_the_last(tmp_path: Path) -> None:
    first, second = HostKernel(small_table(), 2, "store"), HostKernel(small_table(), 2, "store", (0, 2))
    with musetrace.record(tmp_path / "run", stamps="store") as rec:
        gemm = attach(rec, first)
        with gemm.launch() as stamps:
            t0 = first.run(stamps.ptr)
            second.run(stamps.ptr, t0 + 5_000)
    run = musetrace.open(tmp_path / "run")
    assert run.losses["lost_launches"] == 1
    assert run.spans(0, 0).num_rows == 4
    assert run.launches(0)["begin_ns"].to_pylist() == [t0 + 5_000]


def test_a_kernel_that_never_stamps_is_named_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        silent, _, loud = (
            attach(rec, kernel, "silent"),
            attach(rec, kernel, "idle"),
            attach(rec, kernel, "loud"),
        )
        for _ in range(20):
            with silent.launch():
                pass
        with loud.launch() as stamps:
            kernel.run(stamps.ptr)
    assert said(capsys) == [
        "musetrace: kernel silent was launched 20 times and never stamped: pass stamps.ptr to it, and build "
        "it with -DMUSETRACE_STAMPS=2",
        "musetrace: kernel idle was attached and never launched: launch it inside of its launch()",
    ]
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.losses["lost_launches"], run.launches(0).num_rows) == ("complete", 0, 21)
    assert run.launches(0)["blocks"].to_pylist() == [0] * 20 + [BLOCKS]
    assert len(run.manifest["reports"]) == 2


def test_a_recording_without_a_launch_is_a_run(tmp_path: Path) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        attach(rec, HostKernel(small_table(), BLOCKS))
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.job_table.kernels[0].name, run.step_ids(0)) == ("complete", "gemm", [])


def test_without_stamps_launches_and_steps_are_recorded(tmp_path: Path, capsys: Any) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run", stamps="off") as rec:
        gemm = attach(rec, kernel)
        for _ in range(2):
            with rec.step(), gemm.launch() as stamps:
                assert stamps.ptr == 0
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows, run.manifest["stamps"]) == ("complete", 2, "off")
    assert said(capsys) == []


def test_stamps_are_handed_on_in_every_form(tmp_path: Path) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, HostKernel(small_table(), BLOCKS))
        with gemm.launch() as stamps:
            array, tensor = np.from_dlpack(stamps), torch.from_dlpack(stamps)
            assert array.ctypes.data == tensor.data_ptr() == stamps.ptr
            assert array.nbytes == tensor.nbytes == stamps.size_bytes
            assert not hasattr(stamps, "__cuda_array_interface__")


def test_a_run_of_one_built_in_table_names_no_kernel(tmp_path: Path) -> None:
    device = HostDevice()
    with musetrace.record(tmp_path / "run", stamps="store") as rec:
        device.run_steps_unhurried(rec, rec.attach(device.source()), steps=1)
    data = (tmp_path / "run" / "rank-0000.mtj").read_bytes()
    _, chunks = slow_reader.read_chunks(data)
    assert "kernels" not in json.loads(chunks[0][1])["job_table"]
    for kind, payload in chunks:
        if kind == slow_reader.STAMPS:
            launch, _, _ = slow_reader.read_stamps(payload)
            assert set(launch) == {"step", "launch", "layer", "kind", "epoch", "submit_ns", "done_ns"}
