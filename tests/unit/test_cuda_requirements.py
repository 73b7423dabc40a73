"""What stands in the way of a GPU is one line with the numbers, before anything is launched."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from musetrace.cli import main
from musetrace.errors import DeviceError, MusetraceError, UsageError
from musetrace.muse.config import PRESETS, preset
from musetrace.muse.cuda_draft import RandomDraft, random_embedding
from musetrace.muse.cuda_memory import head_bytes, layer_bytes, memory_need
from musetrace.muse.cuda_requirements import gpu_is_usable
from musetrace.muse.cuda_weights import upload_head, upload_layer
from musetrace.muse.draft.config import draft_of
from musetrace.muse.engine import Engine
from musetrace.muse.opening import chosen_device
from musetrace.muse.sharding import shard_head, shard_layer
from musetrace.muse.slice_weights import random_head, random_layer
from musetrace.muse.weights import synthesize
from tests.unit import fake_cuda

CPU = torch.device("cpu")
SLICE = "muse-spark-open-tp8-slice"


def refusal(kind: type[MusetraceError], model: object = "mini", **options: object) -> str:
    """The line with which an engine on a GPU is refused."""
    with pytest.raises(kind) as caught:
        Engine(model, device="cuda", **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_build_without_the_cuda_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "musetrace._cuda", None)
    assert "this build has no CUDA part" in refusal(DeviceError)
    assert not gpu_is_usable()


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert f"torch {torch.__version__} is built without CUDA" in refusal(DeviceError)


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_cuda.install(monkeypatch)
    monkeypatch.setattr(module, "device_count", lambda: 0)
    assert "no CUDA device can be used" in refusal(DeviceError)


@pytest.mark.parametrize(("found", "shown"), [((8, 0), "8.0"), ((9, 1), "9.1"), ((10, 0), "10.0")])
def test_another_architecture(monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], shown: str) -> None:
    fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: found)
    line = refusal(DeviceError)
    assert f"NVIDIA H200 has compute capability {shown}, and the kernel runs on 9.0 (Hopper) only" in line


def test_too_little_memory_names_what_is_needed_and_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (39_500_000_000, 42_000_000_000))
    line = refusal(DeviceError, SLICE, guesses="none")
    # 65.7 GB of weights (the size of the slice in DESIGN), 2 x 128 x 4128 bf16 numbers in each of 62 layers,
    # 4 GiB to work in.
    assert f"model {SLICE} needs 70.1 GB of GPU memory (65.7 GB weights of 62 layers, 0.1 GB KV" in line
    assert "39.5 GB of 42.0 GB are free; use fewer --layers" in line
    # The draft: 202,048 x 8,192 of the embedding, fc, and five layers; in bf16 that is 4.1 GB more.
    layer = (8 + 2) * 128 * 8192 + 8192 * 8 * 128 + 3 * 2048 * 8192
    assert round((2 * (202_048 * 8192 + 8192 * 5120 + 5 * layer)) / 1e9, 1) == 4.1
    line = refusal(DeviceError, SLICE)
    assert (
        f"model {SLICE} needs 74.2 GB of GPU memory (69.8 GB weights of 62 layers and a draft, 0.1 GB" in line
    )
    assert "use fewer --layers, no draft (--guesses none) or another --model" in line
    line = refusal(DeviceError, "muse-spark-open", tp=8, guesses="none")
    assert "525.7 GB weights of 62 layers" in line
    assert module.made == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": replace(preset("mini"), hidden_size=768)},
            "768 cannot be packed; K must be a multiple of",
        ),
        ({"tp": 3}, "use another --tp"),
        ({"tp": 2, "blocks": 67}, "134 blocks do not fit this GPU, which holds 132 at once"),
        ({"layers": 9}, "has 8 layers; it cannot run 9"),
        ({"layers": 0}, "has 8 layers; it cannot run 0"),
        ({"launches": "both"}, "launches is eager or graph, not 'both'"),
        ({"model": SLICE, "tp": 2}, "use --tp 8 or a whole model"),
        (
            {"model": replace(preset("mini"), head_dim=32)},
            "the GPU cannot run model mini so: head_dim must be 64",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_weights_are_made(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], message: str
) -> None:
    module = fake_cuda.install(monkeypatch)
    assert message in refusal(UsageError, **options)
    assert module.made == []


def test_the_command_line_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 9))
    words = ["record", "-o", str(tmp_path / "run"), "--device", "cuda", "--model", SLICE]
    assert main(words) == 1
    err = capsys.readouterr().err
    assert err.startswith("musetrace: NVIDIA H200 has compute capability 8.9")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_auto_is_a_usable_gpu_and_for_a_slice_always_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert chosen_device(preset("mini"), "auto") == "cpu"
    assert chosen_device(preset(SLICE), "auto") == "cuda"
    fake_cuda.install(monkeypatch)
    assert chosen_device(preset("mini"), "auto") == "cuda"
    assert chosen_device(preset("mini"), "cpu") == "cpu"


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("layer", [0, 3])  # bf16 experts, NVFP4 experts
def test_bytes_by_arithmetic_are_those_of_the_tensors(tp: int, layer: int) -> None:
    config = preset("mini")
    made = random_layer(config, tp, layer, 0, CPU)
    assert layer_bytes(config, tp, layer) == sum(tensor.nbytes for tensor in made.values())
    head = random_head(config, tp, 0, CPU)
    assert head_bytes(config, tp) == sum(tensor.nbytes for tensor in head.values())


def test_bytes_by_arithmetic_are_those_of_packed_weights(one_torch_thread: None) -> None:
    config = replace(PRESETS["mini"], num_hidden_layers=2)
    weights = synthesize(config, 0)
    packed = [
        tensors
        for rank in range(2)
        for tensors in (
            *(upload_layer(shard_layer(layer, config, rank, 2), CPU) for layer in weights.layers),
            upload_head(shard_head(weights.head, config, rank, 2), CPU),
        )
    ]
    need = memory_need(config, 2, 2, 2, 512)
    rope_bytes = 512 * 64 * 4
    assert need.weight_bytes - rope_bytes == sum(
        tensor.nbytes for tensors in packed for tensor in tensors.values()
    )
    # Keys and values, two ranks, two layers: heads of the rank x positions x 64 x 2 bytes.
    assert need.kv_bytes == 2 * 2 * 2 * (config.num_key_value_heads // 2) * 512 * 64 * 2


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_draft_comes_with_its_caches_and_one_embedding_for_all_ranks(tp: int) -> None:
    config, draft = preset("mini"), draft_of(preset("mini"))
    source = RandomDraft(draft, tp, 0, random_embedding(config, 0, CPU))
    outer = source.outer(0)
    embedding = outer.pop("embedding")
    own = sum(
        tensor.nbytes for of in (outer, *map(partial(source.layer, 0), range(5))) for tensor in of.values()
    )
    without, need = (memory_need(config, tp, tp, 8, 512, of) for of in (None, draft))
    rope_bytes = 512 * 128 * 4
    assert need.weight_bytes - without.weight_bytes == tp * own + embedding.nbytes + rope_bytes
    # Keys and values of five layers on all ranks: 4 heads x 512 positions x 128 x 2 bytes.
    assert need.kv_bytes - without.kv_bytes == 2 * 5 * 4 * 512 * 128 * 2
