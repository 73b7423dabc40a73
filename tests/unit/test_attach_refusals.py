"""attach() and what comes after it: misuse is one line, and the program goes on whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import musetrace
from musetrace.errors import RecordError
from musetrace.record.recorder import Recorder
from tests.builders import small_table
from tests.host_device import HostDevice
from tests.host_kernel import HostKernel

BLOCKS = 3


def attach(rec: Recorder, kernel: HostKernel, name: str = "gemm", **more: Any) -> Any:
    return rec.attach(kernel.table, more.pop("grid", kernel.grid), name=name, device="cpu", **more)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_recorder_that_is_off_costs_nothing_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSETRACE_OUTPUT", raising=False)
    monkeypatch.chdir(tmp_path)
    with musetrace.record() as rec:
        for device in ("cpu", "cuda"):
            gemm = rec.attach(small_table(), 132, device=device)
            with rec.step(stream=7, tokens=1), gemm.launch(stream="any", layer=3) as stamps:
                assert stamps.ptr == 0
            assert gemm.launch() is gemm.launch()
            assert not hasattr(stamps, "nothing")
        assert len(np.from_dlpack(rec.attach(None, 0, device="cpu").launch().__enter__())) == 0  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == []


def bad(rec: Recorder, *args: Any, **more: Any) -> str:
    with pytest.raises(RecordError) as refusal:
        rec.attach(*args, **{"device": "cpu", **more})
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_what_cannot_be_attached_is_refused_in_one_line(tmp_path: Path) -> None:
    table = small_table()
    with musetrace.record(tmp_path / "run") as rec:
        for grid in (0, -1, 2.5, None, "132", (1, 2, 3, 4), (), (2, 0), True):
            assert f"the grid of kernel small is {grid!r}; give the number" in bad(rec, table, grid)
        assert "has 65536 blocks; at most 65535" in bad(rec, table, (256, 256))
        assert "is no name for a kernel" in bad(rec, table, 1, name="")
        assert "buffers is 0; it must be 1 to 1024" in bad(rec, table, 1, buffers=0)
        assert "on 'cuda' or 'cpu', not on 'tpu'" in bad(rec, table, 1, device="tpu")
        assert "not 'gemm'" in bad(rec, "gemm", 1)
        rec.attach(table, 1, device="cpu")
        assert "two kernels small: give attach() another name" in bad(rec, table, 1)
        assert "is for 'cuda', the kernels before it for 'cpu'" in bad(rec, table, 1, name="b", device="cuda")
        with pytest.raises(RecordError, match="has kernels of other people"):
            rec.attach(HostDevice(stamps="register").source())
        with pytest.raises(RecordError, match="a recorder is open since .*test_attach_refusals.py"):
            musetrace.record(tmp_path / "other")
    assert "was closed or has a device already" in bad(rec, table, 1)


@pytest.mark.parametrize("what", ["launch", "step"])
def test_attaching_after_the_first_launch_or_step_is_refused(tmp_path: Path, what: str) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel)
        with gemm.launch() if what == "launch" else rec.step():
            pass
        assert "kernel late is attached after the first launch or step: attach all before" in bad(
            rec, kernel.table, 1, name="late"
        )
        with rec.step():
            with pytest.raises(RecordError, match="steps do not lie in each other"), rec.step():
                pass
            with pytest.raises(RecordError, match="layer 40000 cannot be recorded"), gemm.launch(layer=40000):
                pass
        with pytest.raises(RecordError, match="70000 tokens cannot be recorded"), rec.step(tokens=70000):
            pass
    assert musetrace.open(tmp_path / "run").verdict == "complete"


def test_a_device_with_a_clock_of_its_own_has_no_steps_here(tmp_path: Path) -> None:
    device = HostDevice()
    with musetrace.record(tmp_path / "run", stamps="store") as rec:
        rec.attach(device.source())
        with pytest.raises(RecordError, match="step\\(\\) is for kernels given to attach"), rec.step():
            pass
        assert "has a device already" in bad(rec, small_table(), 1)


def test_what_the_program_raises_goes_on(tmp_path: Path) -> None:
    kernel = HostKernel(small_table(), BLOCKS)

    def program() -> None:
        with musetrace.record(tmp_path / "run") as rec:
            gemm = attach(rec, kernel)
            with gemm.launch() as stamps:
                kernel.run(stamps.ptr)
            with rec.step(), gemm.launch():
                raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        program()
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows, run.losses["lost_launches"]) == ("complete", 1, 0)
    assert run.manifest["ranks"][0]["end_reason"] == "ended by ZeroDivisionError"


def test_a_run_that_cannot_begin_is_said_once_and_the_program_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel)
        (tmp_path / "run" / "rank-0000.mtj").write_text("in the way")
        for _ in range(3):
            with gemm.launch() as stamps:
                kernel.run(stamps.ptr)
        assert rec.state.startswith("failed: cannot create")
    (line,) = said(capsys)
    assert line.startswith("musetrace: nothing is recorded: cannot create ")
    assert rec.close().verdict == "off"


def test_a_launch_that_is_open_at_the_close_counts_as_lost(tmp_path: Path) -> None:
    kernel = HostKernel(small_table(), BLOCKS)
    with musetrace.record(tmp_path / "run") as rec:
        gemm = attach(rec, kernel)
        launch = gemm.launch()
        stamps = launch.__enter__()
        rec.close()
        kernel.run(stamps.ptr)  # its memory is still there
        launch.__exit__(None, None, None)
        with gemm.launch() as late:
            assert late.ptr == 0
    assert musetrace.open(tmp_path / "run").losses["lost_launches"] == 1
