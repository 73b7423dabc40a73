"""Recording on a GPU that runs nothing: eager and graph file the same launches, under their own epochs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import musetrace
from musetrace.cli import main
from musetrace.errors import UsageError
from musetrace.muse.config import PRESETS, preset
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.device import LaunchTimeoutError
from musetrace.muse.engine import Engine
from musetrace.muse.generation import Generation
from tests.unit import fake_cuda

pytestmark = pytest.mark.usefixtures("one_torch_thread")

LAYER_OPS = {"attention", "o_proj", "pooler", "router", "gemm1", "gemm2", "unpooler", "qkv"}
OPS = LAYER_OPS | {"exchange", "stop1", "stop2", "stop3", "stop4", "stop5", "entry", "lm_head"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    slice_of_two = replace(preset("mini"), name="slice", slice_tp=2, max_position_embeddings=8192)
    monkeypatch.setitem(PRESETS, "slice", slice_of_two)
    return fake_cuda.install(monkeypatch)


def record(path: Path, stamps: str = "register", **options: object) -> musetrace.RecordingResult:
    told = DecodeOptions(**{"device": "cuda", "steps": 3, "layers": 2, **options})  # type: ignore[arg-type]
    with musetrace.record(path, stamps=stamps) as recorder:
        record_decode(recorder, told, lambda done, of: None)
        return recorder.close()


@pytest.mark.parametrize("stamps", ["register", "store"])
@pytest.mark.parametrize("launches", ["eager", "graph"])
@pytest.mark.parametrize(("model", "ranks", "blocks"), [("mini", 2, 66), ("slice", 1, 132)])
def test_every_launch_is_filed_and_no_header_is_stale(
    tmp_path: Path, module: ModuleType, model: str, ranks: int, blocks: int, launches: str, stamps: str
) -> None:
    result = record(tmp_path / "run", stamps, model=model, launches=launches)
    assert (result.verdict, result.ranks, result.steps) == ("complete", ranks, 3)
    assert result.launches == 3 * 4 * ranks
    assert not any(result.losses.values())
    run = musetrace.open(tmp_path / "run")
    assert (run.job_table.name, run.blocks) == ("muse_hopper", blocks)
    for rank in run.ranks:
        filed = run.launches(rank)
        assert filed["kind"].to_pylist() == ["entry", "sliding", "sliding", "head"] * 3
        assert filed["layer"].to_pylist() == [-1, 0, 1, 2] * 3
        assert filed["epoch"].to_pylist() == list(range(1, 13))
        assert filed["blocks"].to_pylist() == [blocks] * 12
        for step in run.step_ids(rank):
            jobs = np.unique(run.spans(rank, step)["job"].to_numpy())
            assert {run.job_table.op_name(int(job)) for job in jobs} == OPS
    assert run.manifest["build"]["launches"] == launches
    assert ("replay" in module.made[0].log) == (launches == "graph")


@pytest.mark.parametrize("launches", [[], ["--eager"], ["--graph"]])
def test_whole_steps_are_what_is_recorded_when_nothing_is_said(
    tmp_path: Path, module: ModuleType, capsys: pytest.CaptureFixture[str], launches: list[str]
) -> None:
    path = tmp_path / "run"
    assert main(["record", "-o", str(path), "--device", "cuda", "--steps", "3", *launches]) == 0
    run = musetrace.open(path)
    assert run.manifest["build"]["guesses"] == "tree"
    assert run.job_table.name == "muse_gpu_step"
    kinds = ["draft_context", *["draft_layer"] * 5, "draft_head", "draft_tree", "embed", "entry"]
    kinds += [preset("mini").layer_kind(layer) for layer in range(8)] + ["head", "accept", "keep_kv"]
    for rank in run.ranks:
        assert run.launches(rank)["kind"].to_pylist() == kinds * 3
        assert run.launches(rank)["epoch"].to_pylist() == list(range(1, 3 * len(kinds) + 1))
        assert run.steps(rank)["tokens"].to_pylist() == [1, 1, 1]
        spans = run.spans(rank, 1)
        for number, op in (
            (2, "gate_up"),
            (6, "lm_head"),
            (7, "tree"),
            (8, "embed"),
            (len(kinds) - 1, "accept"),
        ):
            jobs = spans["job"].to_numpy()[spans["launch"].to_numpy() == number]
            assert op in {run.job_table.op_name(int(job)) for job in jobs}
    known = {one["kind"] for one in run.manifest["job_bytes"]}
    assert {"draft_context", "draft_layer", "draft_head", "sliding"} <= known
    assert module.made[0].log.count("replay") == (0 if launches == ["--eager"] else 3)
    assert module.made[0].log.count("capture") == (launches != ["--eager"])
    assert run.manifest["build"]["launches"] == ("eager" if launches == ["--eager"] else "graph")
    capsys.readouterr()
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    for word in ("draft", "verify", "accept", "tokens"):
        assert word in out


def test_without_guesses_a_step_is_a_verify_pass(tmp_path: Path, module: ModuleType) -> None:
    record(tmp_path / "run", layers=None, guesses="none", steps=1)
    run = musetrace.open(tmp_path / "run")
    assert run.manifest["build"]["guesses"] == "none"
    assert run.job_table.name == "muse_hopper"
    assert run.launches(0).num_rows == 8 + 2
    assert module.made[0].draft is None
    with pytest.raises(UsageError, match="whole steps need all 8 layers"):
        record(tmp_path / "fewer", guesses="tree")
    with pytest.raises(UsageError, match="--temperature is for whole steps"):
        record(tmp_path / "drawn", temperature=0.5)


def test_the_choice_of_launches_follows_the_model(tmp_path: Path, module: ModuleType) -> None:
    for model, expected, tokens in (("mini", "eager", 1), ("slice", "graph", 0)):
        record(tmp_path / model, model=model)
        run = musetrace.open(tmp_path / model)
        assert run.manifest["build"]["launches"] == expected
        assert all((count > 0) == (tokens > 0) for count in run.steps(0)["tokens"].to_pylist())
    facts = run.manifest["model"]
    assert (facts["input"], facts["loopback"], facts["layers_run"]) == ("random residual", True, 2)
    assert run.manifest["device"]["virtual_ranks"] == "loopback"


def test_a_slice_verifies_other_rows_at_the_same_place(tmp_path: Path, module: ModuleType) -> None:
    record(tmp_path / "run", model="slice", context=4000, steps=2)
    made = module.made[0]
    assert made.shape["capacity"] == 4032  # 4000 + 16, in whole 32
    # Two passes to warm up, then the steps, each with the epoch of its first launch.
    assert [entry for entry in made.log if entry[0] == "state"] == [
        ("state", 4000, 0),
        ("state", 4000, 1),
        ("state", 4000, 5),
    ]
    rms = np.sqrt((made.stored["residual", 0, 0].astype(np.float64) ** 2).mean(axis=1))
    assert np.allclose(rms, 1, atol=1e-6)
    assert len({made.stored["k", 0, layer].tobytes() for layer in (0, 1)}) == 2


def test_a_graph_waits_for_the_copies_of_the_step_before(tmp_path: Path, module: ModuleType) -> None:
    with musetrace.record(tmp_path / "run") as recorder:
        engine = Engine("mini", device="cuda", layers=1, launches="graph", blocks=2)
        engine.attach(recorder)
        ids = np.arange(16)
        for step in range(3):
            engine.wait_for_room()
            engine.verify(ids, 0, step)
            engine.finish_step(step, 1, 2, 1)
        assert engine.device.copies.log == ["hold", "fetch"] * 3  # type: ignore[attr-defined]
    assert module.made[0].log.count("capture") == 1


@pytest.mark.parametrize("launches", ["eager", "graph"])
def test_steps_that_find_no_buffers_are_lost_and_never_misfiled(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch, launches: str
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(fake_cuda.FakeCopies, "synchronize", lambda self: gate.wait(20))
    with musetrace.record(tmp_path / "run") as recorder:
        engine = Engine("mini", device="cuda", layers=1, launches=launches, blocks=2, tp=2)
        engine.attach(recorder)
        # 64 buffers, three launches a step, and a drain that stands still.
        for step in range(30):
            engine.verify(np.arange(16), 0, step)
            engine.finish_step(step, 1, 2, 1)
        gate.set()
        engine.wait_for_room()
        engine.verify(np.arange(16), 0, 30)
        engine.finish_step(30, 1, 2, 1)
        result = recorder.close()
    taken = 64 if launches == "eager" else 63
    assert result.launches == 2 * (taken + 3)
    assert result.lost_launches == 2 * (90 - taken)
    assert result.losses["stale"] == 0
    run = musetrace.open(tmp_path / "run")
    whole = {(step, launch) for step in (*range(21), 30) for launch in range(3)}
    filed = set(zip(*(run.launches(0)[name].to_pylist() for name in ("step", "launch")), strict=True))
    assert filed - {(21, 0)} == whole


def test_what_is_recorded_later_is_captured_before_its_first_step(tmp_path: Path, module: ModuleType) -> None:
    """A generation that was there before the recorder, and a verify pass beside whole steps."""
    engine = Engine("mini", device="cuda")
    generation = Generation(engine, [1, 2, 3])
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        assert module.made[0].log.count("capture") == 1
        generation.step(0)
        engine.finish_step(0, 1, 2, 1)
        assert module.made[0].log.count("capture") == 1
        engine.wait_for_room()
        engine.verify(np.arange(16), 0, 1)
        engine.finish_step(1, 2, 3, 1)
        # On two ranks: a step with draft, tree and what is behind the pass, and a pass alone.
        assert recorder.close().launches == 2 * (21 + 10)


def test_a_whole_step_that_is_given_up_leaves_its_report_in_the_run(
    tmp_path: Path, module: ModuleType
) -> None:
    engine = Engine("mini", device="cuda")
    generation = Generation(engine, [1, 2, 3])
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        generation.step(0)
        engine.device.set_lost_block(3)  # type: ignore[attr-defined]
        with pytest.raises(LaunchTimeoutError, match="stop1_wait_ranks for o_proj_send"):
            generation.step(1)
        engine.device.set_lost_block(None)  # type: ignore[attr-defined]
        engine.wait_for_room()
        generation.step(2)
        assert recorder.close().lost_launches == 0
    run = musetrace.open(tmp_path / "run")
    assert [report["site"] for report in run.manifest["reports"]] == [fake_cuda.REPORT["site"]]
    assert set(run.launches(0)["step"].to_pylist()) == {0, 1, 2}


def test_a_launch_that_is_given_up_leaves_its_report_in_the_run(
    tmp_path: Path, module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine("mini", device="cuda", layers=2, blocks=2)
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        engine.verify(np.arange(16), 0, 0)
        engine.device.set_lost_block(3)  # type: ignore[attr-defined]
        with pytest.raises(LaunchTimeoutError, match="stop1_wait_ranks for o_proj_send"):
            engine.verify(np.arange(16), 0, 1)
        engine.device.set_lost_block(None)  # type: ignore[attr-defined]
        engine.verify(np.arange(16), 0, 2)
        assert recorder.close().lost_launches == 0
    run = musetrace.open(tmp_path / "run")
    assert [report["site"] for report in run.manifest["reports"]] == [fake_cuda.REPORT["site"]]
    main(["info", str(tmp_path / "run")])
    assert "waited 0.2 s in stop1_wait_ranks" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("launches", ["--eager", "--graph"])
def test_the_command_line_records_and_reports(
    tmp_path: Path, module: ModuleType, capsys: pytest.CaptureFixture[str], launches: str
) -> None:
    run = str(tmp_path / "run")
    words = ["--device", "cuda", "--steps", "2", "--layers", "2", "--stop4", "gather", launches]
    assert main(["record", "-o", run, *words]) == 0
    assert module.made[0].stop4 == "gather"
    assert main(["check", run]) == 0
    capsys.readouterr()
    assert main(["report", run]) == 0
    out = capsys.readouterr().out
    for word in ("NVIDIA H200", "stop4", "gemm1", "lm_head"):
        assert word in out


def test_without_stamps_launches_and_steps_are_filed(tmp_path: Path, module: ModuleType) -> None:
    for launches in ("eager", "graph"):
        result = record(tmp_path / launches, "off", launches=launches)
        assert (result.verdict, result.launches, result.stamps) == ("complete", 3 * 4 * 2, 0)


def test_progress_counts_the_steps(tmp_path: Path, module: ModuleType) -> None:
    seen: list[tuple[int, int]] = []
    note: Callable[[int, int], None] = lambda done, of: seen.append((done, of))  # noqa: E731
    with musetrace.record(tmp_path / "run") as recorder:
        record_decode(recorder, DecodeOptions(device="cuda", steps=2, layers=1), note)
    assert seen == [(0, 2), (1, 2), (2, 2)]
