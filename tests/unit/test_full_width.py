"""Models too large for the host: random weights made on the GPU, steps that decode no text, fewer layers.

`mini` stands for them here, by a lower limit of what the host can hold.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import musetrace
from musetrace.cli import main
from musetrace.errors import DeviceError, UsageError
from musetrace.muse import opening
from musetrace.muse.config import PRESETS, preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.draft.config import draft_of
from musetrace.muse.engine import Engine
from musetrace.muse.peer_requirements import RankShare
from musetrace.muse.slice_steps import fill_cache, fill_draft_cache
from tests.unit import fake_cuda

pytestmark = pytest.mark.usefixtures("one_torch_thread")

FULL = "muse-spark-open"
MINI = preset("mini")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(opening, "LARGEST_HIDDEN_ON_CPU", MINI.hidden_size - 1)
    monkeypatch.setattr(opening, "FULL_WIDTH_TP", 4)
    return fake_cuda.install(monkeypatch, gpus=2)


def refusal(kind: type[Exception], model: str, **options: object) -> str:
    with pytest.raises(kind) as caught:
        Engine(model, device="cuda", **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_is_recorded_without_a_model_in_the_hosts_memory(
    tmp_path: Path,
    module: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def on_the_host(*_: object) -> None:
        raise AssertionError("a whole model was made on the host")

    monkeypatch.setattr(opening, "synthesize", on_the_host)
    monkeypatch.setattr(opening, "synthesize_draft", on_the_host)
    words = ["record", "-o", str(tmp_path / "run"), "--device", "cuda", "--model", "mini", "--steps", "2"]
    assert main([*words, "--layers", "2", "--context", "300"]) == 0
    assert "tokens" not in capsys.readouterr().out
    run = musetrace.open(tmp_path / "run")
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2, 3))
    assert run.launches(3)["kind"].to_pylist() == ["entry", "sliding", "sliding", "head"] * 2
    assert run.steps(0)["tokens"].to_pylist() == [0, 0]
    facts = run.manifest["model"]
    assert (facts["weights"], facts["input"], facts["expert_pool"]) == ("synthetic", "random residual", 53)
    assert "loopback" not in facts
    assert run.manifest["build"]["launches"] == "graph"
    assert run.manifest["build"]["guesses"] == "none"
    # A step behind 300 positions, in whole 32, and every step at the same place.
    assert module.made[0].shape["capacity"] == 320
    assert {entry[1] for entry in module.made[0].log if entry[0] == "state"} == {300}


def test_with_all_layers_its_steps_are_whole(tmp_path: Path, module: ModuleType) -> None:
    words = ["record", "-o", str(tmp_path / "run"), "--device", "cuda", "--model", "mini", "--steps", "2"]
    assert main(words) == 0
    run = musetrace.open(tmp_path / "run")
    assert (run.manifest["build"]["guesses"], run.job_table.name) == ("tree", "muse_gpu_step")
    assert "draft_target_layers" not in run.manifest["build"]
    assert run.manifest["model"]["input"] == "own tokens behind a random context"
    assert run.steps(0)["tokens"].to_pylist() == [0, 0]


def test_whole_steps_of_fewer_layers_have_a_draft_that_takes_these(
    tmp_path: Path, module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["record", "--device", "cuda", "--model", "mini", "--steps", "1", "--guesses", "chain"]
    run_path = str(tmp_path / "run")
    assert main([*words, "-o", run_path, "--layers", "6"]) == 0
    run = musetrace.open(run_path)
    kinds = run.launches(0)["kind"].to_pylist()
    assert kinds[:6] == ["draft_context", *["draft_layer"] * 5]
    assert kinds[8:] == [
        "embed",
        "entry",
        *["sliding"] * 3,
        "global",
        *["sliding"] * 2,
        "head",
        "accept",
        "keep_kv",
    ]
    assert run.manifest["build"]["draft_target_layers"] == [0, 1, 2, 3, 4]
    assert module.made[0].draft["targets"] == [0, 1, 2, 3, 4]
    capsys.readouterr()
    assert main([*words, "-o", str(tmp_path / "few"), "--layers", "4"]) == 2
    assert "whole steps need at least 5 layers" in capsys.readouterr().err


def test_weights_that_were_trained_keep_the_layers_of_their_draft(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"layers": 6, "guesses": "tree", "tp": 2}
    assert "whole steps need all 8 layers" in refusal(UsageError, "mini", checkpoint="weights", **options)
    monkeypatch.setattr(opening, "LARGEST_HIDDEN_ON_CPU", MINI.hidden_size)
    assert "whole steps need all 8 layers" in refusal(UsageError, "mini", **options)


@pytest.mark.parametrize(("layers", "expected"), [(5, (0, 1, 2, 3, 4)), (30, (0, 6, 12, 18, 24))])
def test_the_layers_that_a_draft_takes_are_spread(layers: int, expected: tuple[int, ...]) -> None:
    draft = draft_of(preset(FULL))
    cut = draft.within(layers)
    assert cut.target_layer_ids == expected
    assert replace(cut, target_layer_ids=draft.target_layer_ids) == draft


def test_what_one_gpu_cannot_hold_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = fake_cuda.install(monkeypatch, gpus=2)
    words = ["record", "-o", str(tmp_path / "run"), "--device", "cuda", "--model", FULL]
    assert main([*words, "--guesses", "none"]) == 1
    line = capsys.readouterr().err
    # Eight times the 65.7 GB of a rank.
    assert f"model {FULL} needs 531.1 GB of GPU memory (525.7 GB weights of 62 layers" in line
    assert line.count("\n") == 1
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    line = refusal(DeviceError, FULL, guesses="none")
    assert "267.7 GB of GPU memory (262.9 GB weights of 62 layers" in line
    assert module.made == []


def test_a_rank_has_the_same_past_in_whichever_process_it_is(module: ModuleType) -> None:
    numbers = {"tp": 4, "blocks": 2, "capacity": 64, "layers": 2, "draft": draft_of(MINI)}
    together = CudaDevice(module, MINI, **numbers)
    apart = CudaDevice(module, MINI, **numbers, share=RankShare(first_rank=2, held=2))
    for device in (together, apart):
        fill_cache(device, 7)
        fill_draft_cache(device, 7)
    whole, part = (made.stored for made in module.made)
    assert part.keys() == {key for key in whole if key[1] < 2}
    for (name, rank, layer), values in part.items():
        assert np.array_equal(values, whole[name, rank + 2, layer]), name
        assert not np.array_equal(values, whole[name, rank, layer]), name


def test_a_checkpoint_of_such_a_model_decodes() -> None:
    full, mini = PRESETS[FULL], MINI
    assert opening.decodes_text(full, "weights")
    assert not opening.decodes_text(full, None)
    assert not opening.decodes_text(PRESETS[f"{FULL}-tp8-slice"], "weights")
    assert opening.decodes_text(mini, None)


def test_the_cpu_device_still_refuses_it(module: ModuleType) -> None:
    with pytest.raises(UsageError, match="too large for the CPU device"):
        Engine(FULL, device="cpu", tp=8)
