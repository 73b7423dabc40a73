"""The recorder's CUDA part around a GPU that is none: what it asks of which stream, and what never."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import musetrace
from musetrace.errors import RecordError
from tests.builders import small_table
from tests.host_device import wait_until
from tests.host_kernel import HostKernel
from tests.unit import fake_streams
from tests.unit.fake_streams import Cuda, FakeStream

BLOCKS = 3


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return fake_streams.install(monkeypatch)


def kernel(stamps: str = "register") -> HostKernel:
    """Its clock is that of the fake GPU: Unix time."""
    return HostKernel(small_table(), BLOCKS, stamps)


def t0() -> int:
    return int(fake_streams.clock_reads(1)[0])


@pytest.mark.parametrize("stamps", ["register", "store"])
def test_eager_launches_are_copied_beside_their_stream(tmp_path: Path, cuda: Cuda, stamps: str) -> None:
    gemm_kernel = kernel(stamps)
    with musetrace.record(tmp_path / "run", stamps=stamps) as rec:
        gemm = rec.attach(gemm_kernel.table, BLOCKS, name="gemm", buffers=2)
        cuda.log.clear()
        for launch in range(4):
            wait_until(lambda: not rec._kernels._kernels[0].pool.is_lent)
            with gemm.launch() as at:
                gemm_kernel.run(at.ptr, t0())
            assert cuda.asked("default") == []  # nothing is ever queued in the program's stream
            copies = rec._kernels.device.copies.stream.name
            assert cuda.asked(copies) == ["wait for default", "record"] * (launch + 1)
        assert all(relaxed for _, _, relaxed in cuda.log)
        assert cuda.mode == fake_streams.GLOBAL
    result = rec.close()
    assert (result.verdict, result.launches, result.lost_launches) == ("complete", 4, 0)
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0)["epoch"].to_pylist() == [1, 1, 2, 2]
    assert [run.spans(0, step).num_rows for step in range(4)] == [8 * BLOCKS] * 4
    assert not any(count for name, count in run.losses.items() if name not in ("unknown_job",) and count)
    facts = {"kind": "cuda", "name": "NVIDIA H200", "sms": 132, "cuda": "13.0"}
    assert facts.items() <= run.manifest["device"].items()
    assert run.manifest["clock"] == {"name": "globaltimer", "tick_ns": 32}


def test_a_graph_is_copied_in_the_stream_of_the_step(tmp_path: Path, cuda: Cuda) -> None:
    gemm_kernel = kernel()
    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(gemm_kernel.table, BLOCKS, name="gemm")
        side = FakeStream(name="side")
        cuda.log.clear()
        cuda.capturing.add("side")
        addresses = []
        for _ in range(10):
            with gemm.launch(stream=side) as at:
                addresses.append(at.ptr)
        # Memory is had and cleared on a stream of its own, by a thread that may do so in a capture.
        assert cuda.asked("side") == []
        assert [(what, relaxed) for what, _, relaxed in cuda.log] == [("synchronize", True)] * 2
        cuda.capturing.clear()
        for _ in range(3):
            cuda.log.clear()
            with rec.step(stream=side):
                for address in addresses:
                    gemm_kernel.run(address, t0())
            copies = rec._kernels.device.copies.stream.name
            assert cuda.asked("side") == []  # copies and clearings of tensors are not noted
            assert cuda.asked(copies) == ["wait for side", "record"] * 2
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0)["launch"].to_pylist() == list(range(10)) * 3
    assert run.launches(0)["epoch"].to_pylist() == [1] * 10 + [2] * 10 + [3] * 10
    assert run.losses["lost_launches"] == run.losses["stale"] == 0
    assert run.spans(0, 2).num_rows == 10 * 8 * BLOCKS


def test_a_stream_is_taken_in_every_form(tmp_path: Path, cuda: Cuda) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(small_table(), BLOCKS)
        forms = {
            "default": (None, 0),
            "at 77": (77, SimpleNamespace(ptr=77), SimpleNamespace(__cuda_stream__=lambda: (0, 77))),
            "own": (FakeStream(name="own"),),
        }
        copies = rec._kernels.device.copies.stream.name
        for name, given in forms.items():
            for stream in given:
                cuda.log.clear()
                with gemm.launch(stream):
                    pass
                assert cuda.asked(copies)[0] == f"wait for {name}"
        for wrong in ("side", 1.5, True, -1, object()):
            with pytest.raises(RecordError, match="is not a stream: give one of torch or CuPy"):
                gemm.launch(wrong).__enter__()


def test_stamps_are_handed_on_as_memory_of_the_gpu(tmp_path: Path, cuda: Cuda) -> None:
    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(small_table(), BLOCKS)
        with gemm.launch() as stamps:
            interface = stamps.__cuda_array_interface__
            assert interface["data"] == (stamps.ptr, False)
            assert interface["shape"] == (stamps.size_bytes,)
            assert (interface["typestr"], interface["version"], interface["stream"]) == ("|u1", 3, None)
            assert stamps.__dlpack_device__() == (2, 0)
            given: list[dict[str, Any]] = []
            array = SimpleNamespace(__dlpack__=lambda **options: given.append(options))
            stamps._array = lambda: array
            stamps.__dlpack__(stream=7, max_version=(1, 0))
            assert given == [{"stream": -1, "max_version": (1, 0)}]


def test_an_error_of_the_device_reaches_the_run_and_not_the_program(
    tmp_path: Path, cuda: Cuda, capsys: pytest.CaptureFixture[str]
) -> None:
    gemm_kernel = kernel()
    with musetrace.record(tmp_path / "run") as rec:
        gemm = rec.attach(gemm_kernel.table, BLOCKS, name="gemm")
        with gemm.launch() as at:
            gemm_kernel.run(at.ptr, t0())
        wait_until(lambda: rec._drain.journals[0].launches == 1)
        cuda.error = RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")
        for _ in range(2):
            with gemm.launch() as at:
                gemm_kernel.run(at.ptr, t0())
    assert capsys.readouterr().err == (
        "musetrace: recording stopped: RuntimeError: CUDA error: an illegal memory access was encountered; "
        "the program goes on, later launches count as lost\n"
    )
    run = musetrace.open(tmp_path / "run")
    assert (run.launches(0).num_rows, run.losses["lost_launches"]) == (1, 2)


def refusal(tmp_path: Path) -> str:
    with musetrace.record(tmp_path / "run") as rec, pytest.raises(RecordError) as refused:
        rec.attach(small_table(), 132)
    assert not (tmp_path / "run").exists()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_missing_is_named_in_one_line(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(count: int) -> None:
        raise RuntimeError("no kernel image is available for execution on the device\nmore")

    monkeypatch.setattr(sys.modules["musetrace._cuda"], "clock_reads", failing)
    assert refusal(tmp_path) == (
        "cannot read the clock of NVIDIA H200: no kernel image is available for execution on the device; "
        "this build of musetrace is for compute capability 9.0 (H100, H200)"
    )
    monkeypatch.setitem(sys.modules, "musetrace._cuda", None)
    assert "the GPU's clock cannot be read: this build has no CUDA part" in refusal(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no CUDA device; check nvidia-smi, or attach with device='cpu'" in refusal(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert refusal(tmp_path) == "recording kernels on a GPU needs torch: pip install 'musetrace[record]'"


def test_regions_that_do_not_fit_the_gpu_are_named(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(rows: int, size: int, *more: object) -> None:
        raise MemoryError("no memory for stamps: CUDA out of memory")

    monkeypatch.setattr(fake_streams.cuda_kernel_device, "device_zeros", full)
    assert "no memory for 64 x" in refusal(tmp_path)
