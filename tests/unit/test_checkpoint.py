"""Checkpoints: parts of tensors as the format's own library reads them, ranks' shares, what is refused."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.checkpoint import safetensors
from musetrace.muse.checkpoint.contents import model_contents
from musetrace.muse.checkpoint.draft import read_draft
from musetrace.muse.checkpoint.safetensors import Safetensors, write_safetensors
from musetrace.muse.checkpoint.shares import CheckpointShares
from musetrace.muse.checkpoint.writing import write_draft, write_model
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.draft.weights import synthesize_draft
from musetrace.muse.engine import Engine
from musetrace.muse.sharding import WholeShares
from musetrace.muse.weights import ModelWeights, synthesize
from tests.unit.test_muse_oracle import public_model
from tests.unit.test_speculative_reference import DRAFT, TARGET

library: Any = importlib.import_module("safetensors.torch")

PREFIX = "model.language_model."

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def model(one_torch_thread: None) -> ModelWeights:
    return synthesize(TARGET, seed=6)


@pytest.fixture(scope="module")
def folder(model: ModelWeights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_model(folder, model)
    write_draft(folder / "draft", synthesize_draft(DRAFT, seed=6))
    return folder


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Callable[[dict[str, Tensor | None]], Path]:
    """A copy of the checkpoint with some tensors replaced, added, or left out (None)."""

    def change(tensors: dict[str, Tensor | None]) -> Path:
        kept = library.load_file(folder / "model.safetensors") | tensors
        write_safetensors(
            tmp_path / "model.safetensors", {name: one for name, one in kept.items() if one is not None}
        )
        return tmp_path

    return change


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_parts_are_those_of_the_whole(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("parts")
    shape = tuple(int(size) for size in rng.integers(1, 6, size=rng.integers(1, 4)))
    dtype = [torch.bfloat16, torch.float32, torch.uint8, torch.float8_e4m3fn][rng.integers(4)]
    tensor = torch.from_numpy(rng.integers(0, 100, size=shape)).to(dtype)
    library.save_file({"other": torch.zeros(3), "one": tensor}, folder / "model.safetensors")
    ranges = [tuple(sorted(rng.integers(0, size + 1, size=2).tolist())) for size in shape]
    ranges = [None if rng.random() < 0.3 else of for of in ranges][: rng.integers(0, len(shape) + 1)]
    got = Safetensors(folder).read("one", *ranges)
    want = tensor.view(torch.uint8)[tuple(slice(None) if of is None else slice(*of) for of in ranges)]
    if dtype.itemsize > 1:
        want = tensor[tuple(slice(None) if of is None else slice(*of) for of in ranges)]
    assert got.dtype == dtype
    assert torch.equal(got.view(want.dtype), want)


def test_what_is_written_is_read_by_the_formats_own_library(folder: Path) -> None:
    files = Safetensors(folder)
    theirs = library.load_file(folder / "model.safetensors")
    assert set(theirs) == set(files.tensors) == set(model_contents(TARGET))
    for name, tensor in theirs.items():
        assert torch.equal(files.read(name).view(torch.uint8), tensor.view(torch.uint8)), name


def test_names_and_shapes_are_those_of_transformers(model: ModelWeights) -> None:
    public = public_model(model).state_dict()
    quantised = ("_weight_scale", "_weight_scale_2")
    wanted = {name: of for name, of in model_contents(TARGET).items() if not name.endswith(quantised)}
    own = {name for name in public if name.startswith((PREFIX, "lm_head."))}
    assert set(wanted) == own
    for name, of in wanted.items():
        shape = of.shape if of.dtypes != ("U8",) else (*of.shape[:-1], 2 * of.shape[-1])
        assert shape == tuple(public[name].shape), name


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_rank_reads_its_share(folder: Path, model: ModelWeights, tp: int) -> None:
    read, whole = CheckpointShares(folder, TARGET), WholeShares(model)
    for rank in range(tp):
        pairs = [(read.layer(layer, rank, tp), whole.layer(layer, rank, tp)) for layer in range(4)]
        for got, want in [*pairs, (read.head(rank, tp), whole.head(rank, tp))]:
            for field in fields(want):
                one, other = getattr(got, field.name), getattr(want, field.name)
                assert (one is None) == (other is None), field.name
                assert one is None or (one.dtype == other.dtype and torch.equal(one, other)), field.name


def test_several_files_are_one_checkpoint(folder: Path, tmp_path: Path) -> None:
    tensors = library.load_file(folder / "model.safetensors")
    parts = {"a.safetensors": list(tensors)[::2], "b.safetensors": list(tensors)[1::2]}
    for name, names in parts.items():
        write_safetensors(tmp_path / name, {one: tensors[one] for one in names})
    index = {"weight_map": {one: name for name, names in parts.items() for one in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    got, want = (CheckpointShares(where, TARGET).layer(2, 1, 2) for where in (tmp_path, folder))
    assert torch.equal(got.qkvg, want.qkvg)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(UsageError, match=r"names 'b.safetensors', which is not a file of"):
        CheckpointShares(tmp_path, TARGET)


def test_a_rank_reads_no_more_than_its_share(
    folder: Path, model: ModelWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the whole is never in memory: what is not read cannot be."""
    pieces: list[int] = []
    read_into = safetensors._read_into

    def counted(file: BinaryIO, offset: int, buffer: memoryview) -> None:
        pieces.append(len(buffer))
        read_into(file, offset, buffer)

    monkeypatch.setattr(safetensors, "_read_into", counted)
    share = CheckpointShares(folder, TARGET).layer(1, 3, 4)
    tensors = {field.name: getattr(share, field.name) for field in fields(share)}
    held = {name: one.numel() * one.element_size() for name, one in tensors.items() if one is not None}
    # A residual gate is read once and held as alpha and beta.
    assert sum(pieces) == sum(held.values()) - held["attn_beta"] - held["ffn_beta"]


def test_tokens_of_a_checkpoint_are_those_of_its_weights(folder: Path) -> None:
    options: dict[str, Any] = {"draft": DRAFT, "blocks": 1, "capacity": 64, "seed": 6}
    want = Engine(TARGET, tp=1, **options).generate([3, 9, 27], 6)
    assert Engine(TARGET, tp=2, **{**options, "seed": 1}, checkpoint=folder).generate([3, 9, 27], 6) == want
    ids = np.arange(16)
    logits = [Engine(TARGET, tp=1, **options, **more).verify(ids, 0) for more in ({}, {"checkpoint": folder})]
    np.testing.assert_array_equal(*logits)


LAYER = f"{PREFIX}layers.1."
GATE_UP = f"{LAYER}mlp.experts.gate_up_proj"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({f"{LAYER}mlp.gate.weight": None}, "lacks model.language_model.layers.1.mlp.gate.weight$"),
        ({f"{LAYER}mlp.gate.weight": None, "lm_head.weight": None}, "lacks .* and 1 more"),
        (
            {f"{LAYER}mlp.extra": torch.zeros(2)},
            "has a tensor that model small has no place for: .*mlp.extra",
        ),
        ({f"{PREFIX}layers.4.x": torch.zeros(2)}, "no place for: .*layers.4.x"),
        (
            {f"{LAYER}self_attn.q_proj.weight": torch.zeros(8, 4).bfloat16()},
            r"is \[8, 4\], and in model small",
        ),
        (
            {f"{LAYER}self_attn.q_proj.weight": torch.zeros(512, 128)},
            "is F32, and model small has it in BF16",
        ),
        (
            {GATE_UP: torch.zeros(4, 128, 64).bfloat16()},
            "is BF16, and .* in U8; this is another quantisation",
        ),
        ({GATE_UP: torch.zeros(4, 128, 64).to(torch.float8_e4m3fn)}, "is F8_E4M3, .* another quantisation"),
        ({f"{GATE_UP}_weight_scale_2": None}, "lacks .*gate_up_proj_weight_scale_2"),
        ({f"{PREFIX}layers.0.mlp.experts.down_proj": torch.zeros(4, 64, 32).byte()}, "is U8, .* in BF16"),
    ],
)
def test_another_checkpoint_is_refused_in_one_line(
    changed: Callable[[dict[str, Tensor | None]], Path], tensors: dict[str, Tensor | None], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        CheckpointShares(changed(tensors), TARGET)
    assert "\n" not in str(caught.value)


def test_tensors_of_other_towers_are_passed_over(changed: Callable[[dict[str, Tensor | None]], Path]) -> None:
    CheckpointShares(changed({"model.vision_tower.x": torch.zeros(3)}), TARGET)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            replace(TARGET, hidden_size=256),
            "of another model: its hidden_size is 128, that of model small 256",
        ),
        (replace(TARGET, rope_theta=7.0), "its rope_theta is 500000.0, that of model small 7.0"),
        (preset("mini"), "is of another model: its vocab_size is 64, that of model mini 1024"),
    ],
)
def test_the_configuration_beside_the_weights_is_compared(
    folder: Path, config: MuseConfig, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CheckpointShares(folder, config)


def test_another_draft_is_refused(folder: Path) -> None:
    assert torch.equal(read_draft(folder / "draft", DRAFT).fc, synthesize_draft(DRAFT, seed=6).fc)
    with pytest.raises(UsageError, match=r"fc.weight is \[128, 256\], and in model small-draft \[128, 384\]"):
        read_draft(folder / "draft", replace(DRAFT, target_layer_ids=(0, 1, 3)))
    with pytest.raises(UsageError, match=r"no place for: layers.1"):
        read_draft(folder / "draft", replace(DRAFT, num_hidden_layers=1))
    with pytest.raises(UsageError, match="is no checkpoint"):
        read_draft(folder / "nowhere", DRAFT)


@given(damage=st.data())
@settings(max_examples=60)
def test_a_damaged_file_is_one_line(tmp_path_factory: pytest.TempPathFactory, damage: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    write_safetensors(folder / "model.safetensors", {"a": torch.arange(6.0), "b": torch.zeros(2, 3).byte()})
    good = (folder / "model.safetensors").read_bytes()
    at = damage.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + damage.draw(st.binary(max_size=4)) + good[at + damage.draw(st.integers(0, 4)) :]
    (folder / "model.safetensors").write_bytes(bad)
    said = ""
    try:
        files = Safetensors(folder)
        for name, tensor in files.tensors.items():
            if tensor.dtype in ("F32", "U8"):
                files.read(name)
    except UsageError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    "index",
    ["", "[]", "{}", '{"weight_map": {"a": "../b"}}', '{"weight_map": {"a": 3}}', '{"weight_map": 3}'],
)
def test_an_index_that_is_none_is_one_line(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UsageError, match=r"model.safetensors.index.json"):
        Safetensors(tmp_path)
