"""Other people's kernels on a GPU: eager launches, streams, graphs, and what can go wrong with them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import musetrace
from musetrace.cli import main
from musetrace.step_output import output_of
from musetrace.store.run import Run
from tests.gpu.attach_kernels import MODES, Kernels, compile_kernels
from tests.host_device import wait_until

pytestmark = pytest.mark.gpu

BLOCKS, TILES = 132, 4
SPANS = BLOCKS * (2 * TILES + 1)


@pytest.fixture(scope="module", params=list(MODES))
def mode(request: pytest.FixtureRequest, cuda: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kernels(mode: str) -> Kernels:
    if not hasattr(torch.cuda, "_compile_kernel"):
        pytest.skip("this torch cannot compile kernels at run time")
    return compile_kernels(mode)


def sound(run: Run, lost: int = 0) -> None:
    """Nothing is odd about a run, and as many launches were lost as expected."""
    found = {name: count for name, count in run.losses.items() if count and name != "missing_ranks"}
    assert found == ({"lost_launches": lost} if lost else {}), (found, run.loss_reasons)
    assert run.verdict == "complete"
    assert not run.notes


def check_gemm(run: Run, step: int, launches: list[int]) -> None:
    """Each of a step's launches of gemm has every span of every block, each within its launch."""
    spans = run.spans(0, step)
    numbers = spans["launch"].to_numpy()
    jobs = [run.job_table.job_name(int(job)) for job in spans["job"].to_pylist()]
    for launch in launches:
        mine = [job.rpartition(".")[2] for job, number in zip(jobs, numbers, strict=True) if number == launch]
        assert Counter(mine) == {"load": BLOCKS * TILES, "multiply": BLOCKS * TILES, "life": BLOCKS}
    loads = np.array([job.endswith("load") for job in jobs]) & np.isin(numbers, launches)
    assert set(spans["payload"].to_numpy()[loads].tolist()) == {100 + tile for tile in range(TILES)}
    assert (spans["dur"].to_numpy()[loads] >= 1000).all()


def test_eager_launches_are_recorded_whole(
    tmp_path: Path, kernels: Kernels, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS)
        for _ in range(20):
            with rec.step(), gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS)
        torch.cuda.synchronize()
    result = rec.close()
    assert (result.steps, result.launches) == (20, 20)
    run = musetrace.open(tmp_path / "run")
    sound(run)
    for step in range(20):
        check_gemm(run, step, [0])
    launches = run.launches(0)
    assert launches["blocks"].to_pylist() == [BLOCKS] * 20
    assert (np.diff(launches["begin_ns"].to_numpy().astype(np.int64)) > 0).all()
    assert len(set(run.spans(0, 0)["sm"].to_pylist())) > 100
    capsys.readouterr()
    for verb in ("report", "info", "check"):
        assert main([verb, str(tmp_path / "run")]) == 0
    assert "gemm" in capsys.readouterr().out


def test_the_output_of_a_step_is_read_when_its_stream_is_done(
    tmp_path: Path, kernels: Kernels, mode: str
) -> None:
    side, made = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS)
        for step in range(3):
            with rec.step(stream=side) as of, torch.cuda.stream(side):
                with gemm.launch() as stamps:
                    kernels.gemm(stamps, BLOCKS)
                torch.cuda._sleep(20_000_000)  # about 10 ms
                made.fill_(step)
                of.keep_output(made)
    run = musetrace.open(tmp_path / "run")
    sound(run)
    expected = [output_of(np.full(1 << 20, step, dtype=np.float32)) for step in range(3)]
    assert run.steps(0)["output"].to_pylist() == [one.digest() for one in expected if one is not None]


def test_memory_is_handed_on_without_a_copy(tmp_path: Path, kernels: Kernels, mode: str) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS)
        with gemm.launch() as stamps:
            by_dlpack, by_interface = torch.from_dlpack(stamps), torch.as_tensor(stamps, device="cuda")
            assert by_dlpack.data_ptr() == by_interface.data_ptr() == stamps.ptr
            assert by_dlpack.numel() == stamps.size_bytes
            kernels.gemm(stamps, BLOCKS)
        lost = rec._kernels.no_stamps  # type: ignore[union-attr]
        assert torch.from_dlpack(lost).data_ptr() == 0
    sound(musetrace.open(tmp_path / "run"))


def test_launches_of_two_kernels_in_two_streams(tmp_path: Path, kernels: Kernels, mode: str) -> None:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]  # type: ignore[no-untyped-call]
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS)
        reduce = rec.attach(kernels.reduce_table, (8, 8))
        for _ in range(10):
            with rec.step():
                # The second stream is named, the first is torch's current one.
                with torch.cuda.stream(streams[0]), gemm.launch() as stamps:
                    kernels.gemm(stamps, BLOCKS, ns=20_000)
                with torch.cuda.stream(streams[1]), reduce.launch(streams[1].cuda_stream) as stamps:
                    kernels.reduce(stamps, 64)
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run)
    assert run.launches(0)["kind"].to_pylist() == ["gemm", "reduce"] * 10
    assert run.launches(0)["blocks"].to_pylist() == [BLOCKS, 64] * 10
    names = {run.job_table.job_name(job) for job in set(run.spans(0, 3)["job"].to_pylist())}
    assert names == {"gemm.load", "multiply", "life", "reduce.load", "add"}


def test_launches_of_several_threads(tmp_path: Path, kernels: Kernels, mode: str) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS, buffers=200)

        def work() -> None:
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                for _ in range(30):
                    with gemm.launch() as stamps:
                        kernels.gemm(stamps, BLOCKS)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run)
    assert run.launches(0)["spans"].to_pylist() == [SPANS] * 90


def captured(kernels: Kernels, gemm: Any, reduce: Any, launches: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            with gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS)
            with reduce.launch() as stamps:
                kernels.reduce(stamps, 64)
    return graph


@pytest.mark.parametrize("warm", [True, False])
def test_each_replay_of_a_graph_is_a_step(tmp_path: Path, kernels: Kernels, mode: str, warm: bool) -> None:
    """20 launches of each kernel, so that memory for some is had while the stream is captured."""
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm, reduce = rec.attach(kernels.gemm_table, BLOCKS), rec.attach(kernels.reduce_table, 64)
        if warm:
            with rec.step(), gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS)
        graph = captured(kernels, gemm, reduce, 20)
        for _ in range(10):
            with rec.step():
                graph.replay()
            assert rec.wait_for_room()
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run)
    first = int(warm)
    for step in range(first, first + 10):
        assert run.spans(0, step).num_rows == 20 * (SPANS + 64 * 2)
    check_gemm(run, first + 9, list(range(0, 40, 2)))
    launches = run.launches(0).slice(first)
    assert launches["kind"].to_pylist() == ["gemm", "reduce"] * 200
    assert launches["launch"].to_pylist() == list(range(40)) * 10
    assert launches["epoch"].to_pylist() == [step for step in range(1, 11) for _ in range(40)]
    begins = launches["begin_ns"].to_numpy().astype(np.int64)
    assert (np.diff(begins) > 0).all()


def test_a_capture_survives_a_drain_that_waits(tmp_path: Path, kernels: Kernels, mode: str) -> None:
    """The drain thread waits for long launches while another stream is captured in the global mode."""
    busy = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm, reduce = rec.attach(kernels.gemm_table, BLOCKS), rec.attach(kernels.reduce_table, 64)
        for _ in range(4):
            with torch.cuda.stream(busy), gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS, ns=20_000_000)
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            graph.capture_begin()  # torch.cuda.graph() would wait for the device first
            for _ in range(12):
                with reduce.launch() as stamps:
                    kernels.reduce(stamps, 64)
            wait_until(lambda: rec._drain.journals[0].launches >= 2)  # type: ignore[union-attr]
            with reduce.launch() as stamps:
                kernels.reduce(stamps, 64)
            graph.capture_end()
            with rec.step(stream=side):
                graph.replay()
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run)
    assert run.launches(0)["kind"].to_pylist() == ["gemm"] * 4 + ["reduce"] * 13


def test_two_graphs_and_eager_launches_in_one_run(tmp_path: Path, kernels: Kernels, mode: str) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm, reduce = rec.attach(kernels.gemm_table, BLOCKS), rec.attach(kernels.reduce_table, 64)
        prefill, decode = (captured(kernels, gemm, reduce, launches) for launches in (1, 3))
        for graph in (prefill, decode, decode):
            with rec.step():
                graph.replay()
                with gemm.launch() as stamps:
                    kernels.gemm(stamps, BLOCKS)
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run)
    numbers = [
        run.launches(0)["launch"].to_numpy()[run.launches(0)["step"].to_numpy() == s] for s in range(3)
    ]
    assert [found.tolist() for found in numbers] == [[0, 1, 2], [0, *range(3, 9)], [0, *range(3, 9)]]


def test_replays_that_share_a_step_or_have_none_are_counted(
    tmp_path: Path, kernels: Kernels, mode: str
) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm, reduce = rec.attach(kernels.gemm_table, BLOCKS), rec.attach(kernels.reduce_table, 64)
        graph = captured(kernels, gemm, reduce, 1)
        with rec.step():
            for _ in range(3):
                graph.replay()
        with rec.step():
            graph.replay()
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
    run = musetrace.open(tmp_path / "run")
    sound(run, lost=2 * 2 + 2 * 4)
    assert run.loss_reasons == {"replayed 3 times in one step": 4, "replayed 5 times outside of a step": 8}
    assert run.launches(0).num_rows == 6
    for step in range(3):
        check_gemm(run, step, [0])
    # The graph goes on when the recording is over.
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()


def test_a_kernel_of_another_build_is_left_alone(
    tmp_path: Path, kernels: Kernels, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "store" if mode == "register" else "register"
    with musetrace.record(tmp_path / "run", stamps=other) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS)
        for _ in range(3):
            with gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS)
        torch.cuda.synchronize()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("musetrace: kernel gemm was built for ")
    run = musetrace.open(tmp_path / "run")
    sound(run, lost=3)
    assert run.loss_reasons == {"kernel_and_job_table_do_not_match": 3}


def test_a_grid_that_is_larger_than_told_loses_what_has_no_room(
    tmp_path: Path, kernels: Kernels, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, 100)
        for _ in range(3):
            with gemm.launch() as stamps:
                kernels.gemm(stamps, BLOCKS)
        torch.cuda.synchronize()
    assert capsys.readouterr().err == (
        "musetrace: kernel gemm ran 132 blocks, attach() was told 100: the stamps of 32 are lost; attach it "
        "with grid=132\n"
    )
    run = musetrace.open(tmp_path / "run")
    assert run.losses["dropped_blocks"] == 3 * 32
    assert run.launches(0)["spans"].to_pylist() == [100 * (2 * TILES + 1)] * 3


def test_without_a_free_buffer_the_kernel_runs_and_is_counted(
    tmp_path: Path, kernels: Kernels, mode: str
) -> None:
    with musetrace.record(tmp_path / "run", stamps=mode) as rec:
        gemm = rec.attach(kernels.gemm_table, BLOCKS, buffers=2)
        pointers = []
        for _ in range(6):
            with gemm.launch() as stamps:
                pointers.append(stamps.ptr)
                kernels.gemm(stamps, BLOCKS, ns=10_000_000)
        torch.cuda.synchronize()
    lost = pointers.count(0)
    assert pointers[:2].count(0) == 0
    assert lost >= 1
    run = musetrace.open(tmp_path / "run")
    sound(run, lost)
    assert run.launches(0).num_rows == 6 - lost


CRASH = """
import sys, torch, musetrace
from tests.gpu.attach_kernels import compile_kernels
from tests.host_device import wait_until
kernels = compile_kernels("register")
with musetrace.record(sys.argv[1]) as rec:
    gemm = rec.attach(kernels.gemm_table, 132)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), gemm.launch() as stamps:
        kernels.gemm(stamps, 132)
    for _ in range(5):
        with rec.step():
            graph.replay()
            with gemm.launch() as stamps:
                kernels.gemm(stamps, 132)
        rec.wait_for_room()
    wait_until(lambda: rec._drain.journals[0].launches == 10)
    for _ in range(3):
        with rec.step(), gemm.launch() as stamps:
            kernels.gemm(stamps, 132, crash=True)
            torch.cuda.synchronize()
"""


def test_a_crash_inside_of_a_kernel_leaves_a_readable_run(
    tmp_path: Path, repository: Path, cuda: Any
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path / "run")],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "illegal memory access" in done.stderr.splitlines()[-1] or "AcceleratorError" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("musetrace: ")]
    assert "recording stopped: " in line
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0).num_rows == 10
    assert run.losses["lost_launches"] >= 1
    for step in range(5):
        assert run.spans(0, step).num_rows == 2 * SPANS
    assert run.manifest["ranks"][0]["end_reason"].startswith("failed: ")
