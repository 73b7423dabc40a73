"""The samples on a GPU, as their READMEs say: every command is typed, and what it leaves is looked at."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import musetrace
from musetrace.store.decode import Flag
from tests.sample_commands import commands

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BLOCKS, STEPS, ITERATIONS = 132, 20, 32
SERVER = "musetrace view"
Typed = Callable[[str], Path]


@pytest.fixture(scope="module")
def typed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """``typed("your_own_kernel")`` types the commands of its README in a copy of its folder, once."""
    place = tmp_path_factory.mktemp("samples")
    programs = place / "bin"
    programs.mkdir()
    for name, command in (("python", [sys.executable]), ("musetrace", [sys.executable, "-m", "musetrace"])):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    modules = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PATH": path, "PYTHONPATH": modules}
    done: set[str] = set()

    def type_all(sample: str) -> Path:
        folder = place / sample
        if sample not in done:
            done.add(sample)
            ignored = shutil.ignore_patterns("*.so", "*-run", "__pycache__")
            for one in ("your_own_kernel", sample):
                shutil.copytree(repository / "samples" / one, place / one, ignore=ignored, dirs_exist_ok=True)
            for line in commands(folder / "README.md"):
                if not line.startswith(SERVER):
                    print(f"$ {line}", flush=True)
                    subprocess.run(["bash", "-c", line], cwd=folder, env=environment, check=True, timeout=300)
        return folder

    return type_all


def spans_of(run: musetrace.Run, step: int) -> dict[str, np.ndarray]:
    batch = run.spans(0, step)
    return {name: np.asarray(batch[name]) for name in batch.schema.names}


def times(spans: dict[str, np.ndarray], job: int, warp: int) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of a job, ns, [block, iteration]."""
    rows = np.flatnonzero((spans["job"] == job) & (spans["warp"] == warp))
    rows = rows[np.lexsort((spans["iteration"][rows], spans["block"][rows]))]
    begin = spans["begin"][rows].astype(np.int64).reshape(BLOCKS, -1)
    return begin, begin + spans["dur"][rows].reshape(BLOCKS, -1)


@pytest.mark.parametrize("name", ["gemm-run", "gemm-torch", "gemm-graph", "gemm-store", "gemm-traced"])
def test_each_iteration_of_the_gemm_is_stamped_in_the_order_of_the_ring(typed: Typed, name: str) -> None:
    run = musetrace.open(typed("your_own_kernel") / name)
    assert run.verdict == "complete"
    assert run.step_ids(0) == list(range(STEPS))
    assert {kind for kind in run.launches(0).column("kind").to_pylist()} == {"gemm"}
    jobs = {job.name: number for number, job in enumerate(run.job_table.jobs)}
    for step in (0, STEPS - 1):
        spans = spans_of(run, step)
        assert set(spans["flag"].tolist()) == {Flag.OK}
        assert len(spans["flag"]) == BLOCKS * (2 * ITERATIONS + 4 * (2 * ITERATIONS + 1))
        loads = spans["job"] == jobs["load"]
        assert set(spans["payload"][loads].tolist()) == {2 * 128 * 64 * 2}
        assert not spans["has_payload"][~loads].any()
        stage_begin, stage_end = times(spans, jobs["wait_for_stage"], 0)
        load_begin, load_end = times(spans, jobs["load"], 0)
        assert load_begin.shape == (BLOCKS, ITERATIONS)
        assert (stage_begin <= stage_end).all()
        assert (stage_end <= load_begin).all()
        assert (load_end[:, :-1] <= stage_begin[:, 1:]).all()
        for warp in range(1, 5):
            wait_begin, wait_end = times(spans, jobs["wait_for_tiles"], warp)
            multiply_begin, multiply_end = times(spans, jobs["multiply"], warp)
            store_begin, store_end = times(spans, jobs["store"], warp)
            assert (wait_begin <= wait_end).all()
            assert (load_begin <= wait_end).all()
            assert (wait_end <= multiply_begin).all()
            assert (multiply_end[:, :-1] <= wait_begin[:, 1:]).all()
            assert (multiply_end[:, -1] <= store_begin[:, 0]).all()
            assert (store_begin <= store_end).all()
            # A stage is free again only when the four warps are through with what it held, four loads ago.
            assert (multiply_begin[:, :-4] <= stage_end[:, 4:]).all()


def test_iterations_without_slots_are_counted(typed: Typed) -> None:
    run = musetrace.open(typed("your_own_kernel") / "long")
    # 32 iterations too many, of two jobs of five warps.
    assert run.losses["overflow_stamps"] == STEPS * BLOCKS * 32 * 2 * 5
    assert len(spans_of(run, 0)["flag"]) == BLOCKS * (2 * ITERATIONS + 4 * (2 * ITERATIONS + 1))


def test_the_library_of_the_command_line_has_the_table(typed: Typed) -> None:
    table = musetrace.JobTable.from_library(typed("your_own_kernel") / "libgemm.so", "GemmJobs")
    assert table.slots == 832


@pytest.mark.parametrize("name", ["triton-run", "triton-pipelined", "triton-store"])
def test_each_iteration_of_the_triton_kernel_is_stamped_in_order(typed: Typed, name: str) -> None:
    pytest.importorskip("triton")
    run = musetrace.open(typed("triton_kernel") / name)
    assert run.verdict == "complete"
    assert run.step_ids(0) == list(range(STEPS))
    jobs = {job.name: number for number, job in enumerate(run.job_table.jobs)}
    spans = spans_of(run, STEPS - 1)
    assert set(spans["flag"].tolist()) == {Flag.OK}
    assert len(spans["flag"]) == BLOCKS * (2 * ITERATIONS + 1)
    load_begin, load_end = times(spans, jobs["load"], 255)
    dot_begin, dot_end = times(spans, jobs["dot"], 255)
    store_begin, store_end = times(spans, jobs["store"], 255)
    assert load_begin.shape == (BLOCKS, ITERATIONS)
    for earlier, later in (
        (load_begin, load_end),
        (load_end, dot_begin),
        (dot_begin, dot_end),
        (dot_end[:, :-1], load_begin[:, 1:]),
        (dot_end[:, -1:], store_begin),
        (store_begin, store_end),
    ):
        assert (earlier <= later).all()
    assert set(spans["payload"][spans["job"] == jobs["load"]].tolist()) == {2 * 128 * 64 * 2}


@pytest.mark.parametrize(
    ("name", "shown_blocks", "steps"), [("opened.json", 16, STEPS), ("all-blocks.json", BLOCKS, 5)]
)
def test_the_spans_lie_in_the_bars_of_the_profiler(
    typed: Typed, name: str, shown_blocks: int, steps: int
) -> None:
    events = json.loads((typed("torch_profiler") / name).read_text())["traceEvents"]
    bars = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "kernel" and event["name"].startswith("gemm(")
    )
    assert len(bars) == steps
    process = {event["args"].get("name"): event["pid"] for event in events if event["name"] == "process_name"}
    spans = [event for event in events if event["pid"] == process["inside gemm"] and event["ph"] == "X"]
    assert len(spans) == steps * shown_blocks * (2 * ITERATIONS + 4 * (2 * ITERATIONS + 1))
    tick_us = 0.064
    for span in spans:
        begin, end = bars[span["args"]["step"]]
        assert begin - tick_us <= span["ts"] <= span["ts"] + span["dur"] <= end + tick_us
