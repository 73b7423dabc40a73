"""Weights as the layer kernel is given them, made on the CPU: names, sizes, and that nothing is lost."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from musetrace.muse import slice_weights
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_draft import MATRICES, VECTORS, RandomDraft
from musetrace.muse.cuda_model import RandomRanks
from musetrace.muse.cuda_weights import addresses, rope_table, upload_head, upload_layer
from musetrace.muse.draft.config import draft_of
from musetrace.muse.packing import gate_up_rows, unpack_bf16, unpack_nvfp4
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.sharding import RankLayer, shard_head, shard_layer
from musetrace.muse.slice_weights import random_head, random_layer
from musetrace.muse.weights import synthesize_head, synthesize_layer

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
MINI = preset("mini")
# As `mini`, with a vocabulary that leaves a rank of four a row block half full.
CONFIG = replace(MINI, vocab_size=1000)
BF16_LAYER, NVFP4_LAYER = 0, 1
UNDO = 2.0**51

every_format = pytest.mark.parametrize("layer", [BF16_LAYER, NVFP4_LAYER])
every_tp = pytest.mark.parametrize("tp", [1, 2, 4])


def bytes_expected(config: MuseConfig, layer: int, tp: int) -> dict[str, int]:
    """From the shapes alone: a weight is 2 bytes in bf16, 9/16 in NVFP4 with its scales, 4 in fp32."""
    hidden, moe, inner = config.hidden_size, config.moe_hidden_size, config.moe_intermediate_size
    experts, head = config.num_local_experts, config.head_dim
    heads = (config.num_attention_heads + config.num_key_value_heads) // tp
    of_expert = 2 if layer == BF16_LAYER else 9 / 16
    return {
        "qkvg": 2 * heads * head * hidden * 2,
        "o": hidden * config.num_attention_heads // tp * head * 2,
        "pooler": moe // tp * hidden * 2,
        "unpooler": hidden * moe // tp * 2,
        "router": experts // tp * hidden * 4,
        "gate_up": int(experts * 2 * inner // tp * moe * of_expert),
        "down": int(experts * moe // tp * inner * of_expert),
        "gate_up_factor": experts * 4,
        "down_factor": experts * 4,
        "router_bias": experts * 4,
        **dict.fromkeys(("input_norm", "pre_ffn_norm", "post_ffn_norm"), hidden * 4),
        **dict.fromkeys(("pre_expert_norm", "post_expert_norm"), moe * 4),
        **dict.fromkeys(("attn_alpha", "attn_beta", "ffn_alpha", "ffn_beta"), hidden * 4),
    }


def sizes(tensors: dict[str, Tensor]) -> dict[str, int]:
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    return {name: tensor.nbytes for name, tensor in tensors.items()}


def rank_layer(layer: int, tp: int, rank: int = 0) -> RankLayer:
    return shard_layer(synthesize_layer(CONFIG, 4, layer), CONFIG, rank, tp)


@every_format
@every_tp
def test_an_uploaded_layer_has_the_names_and_sizes_of_its_shapes(layer: int, tp: int) -> None:
    assert sizes(upload_layer(rank_layer(layer, tp), CPU)) == bytes_expected(CONFIG, layer, tp)


@every_format
@every_tp
def test_a_random_layer_has_the_names_and_sizes_of_an_uploaded_one(layer: int, tp: int) -> None:
    assert sizes(random_layer(CONFIG, tp, layer, 1, CPU)) == bytes_expected(CONFIG, layer, tp)


@every_tp
def test_a_head_fills_its_last_row_block(tp: int) -> None:
    rows = -(-CONFIG.vocab_size // tp // 16) * 16
    expected = {"lm_head": rows * CONFIG.hidden_size * 2, "final_norm": CONFIG.hidden_size * 4}
    assert sizes(random_head(CONFIG, tp, 1, CPU)) == expected
    assert sizes(upload_head(shard_head(synthesize_head(CONFIG, 4), CONFIG, 0, tp), CPU)) == expected


def test_the_binding_asks_for_these_names_and_no_others(repository: Path) -> None:
    bindings = repository / "csrc" / "bindings"
    own = (bindings / "bind_megakernel.cpp").read_text(encoding="utf-8")
    shared = (bindings / "layer_weights.h").read_text(encoding="utf-8")
    asked = set(re.findall(r'address\(a, "(\w+)"\)', own))
    asked |= set(re.findall(r'(?:bytes|floats|address)\("(\w+)"\)', shared))
    head = {"lm_head", "final_norm"}
    draft = {*MATRICES, *VECTORS, "fc", "context_norm", "norm", "embedding"}
    assert asked == bytes_expected(CONFIG, BF16_LAYER, 1).keys() | head | draft


def test_addresses_are_those_of_the_tensors() -> None:
    tensors = upload_layer(rank_layer(NVFP4_LAYER, 2), CPU)
    assert addresses(tensors) == {name: tensor.data_ptr() for name, tensor in tensors.items()}
    assert all(address % 16 == 0 for address in addresses(tensors).values())  # of a bulk copy


# Round trips


def bf16_bits(tensor: Tensor) -> np.ndarray:  # type: ignore[type-arg]
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)


@every_format
@pytest.mark.parametrize(("tp", "rank"), [(1, 0), (4, 0), (4, 3)])
def test_dense_matrices_and_vectors_come_back(layer: int, tp: int, rank: int) -> None:
    share = rank_layer(layer, tp, rank)
    tensors = upload_layer(share, CPU)
    for name in ("qkvg", "o", "pooler", "unpooler"):
        bits = bf16_bits(getattr(share, name))
        assert (unpack_bf16(tensors[name].numpy(), *bits.shape) == bits).all(), name
    vectors = tensors.keys() - {"qkvg", "o", "pooler", "unpooler", "gate_up", "down"}
    for name in vectors - {"gate_up_factor", "down_factor"}:
        assert tensors[name].dtype == torch.float32
        assert tensors[name].equal(getattr(share, name)), name


@pytest.mark.parametrize("name", ["gate_up", "down"])
@pytest.mark.parametrize(("tp", "rank"), [(1, 0), (4, 3)])
def test_experts_come_back(name: str, tp: int, rank: int) -> None:
    order = gate_up_rows if name == "gate_up" else np.asarray
    for layer in (BF16_LAYER, NVFP4_LAYER):
        share = rank_layer(layer, tp, rank)
        tensors = upload_layer(share, CPU)
        for expert in range(CONFIG.num_local_experts):
            packed, factor = tensors[name][expert].numpy(), float(tensors[f"{name}_factor"][expert])
            if layer == BF16_LAYER:
                bits = bf16_bits(getattr(share, name)[expert])
                assert (order(unpack_bf16(packed, *bits.shape)) == bits).all()
                assert factor == 1
                continue
            codes, scales = (getattr(share, f"{name}_{part}")[expert].numpy() for part in ("codes", "scales"))
            got_codes, got_scales = unpack_nvfp4(packed, codes.shape[0], codes.shape[1] * 2)
            assert (order(got_codes) == codes).all()
            assert (order(got_scales) == scales).all()
            assert factor == float(getattr(share, f"{name}_global")[expert]) * UNDO


def test_the_rope_table_turns_as_the_reference_does() -> None:
    """Element i of a head goes with element i + 32; a row of the table is a position."""
    table = rope_table(CONFIG, 64, CPU)
    assert table.shape == (64, CONFIG.head_dim // 2, 2)
    assert table.dtype == torch.float32
    assert table[0].equal(torch.tensor([1.0, 0.0]).expand(32, 2))
    positions = torch.tensor([0, 1, 17, 63])
    heads = torch.randn(4, 3, CONFIG.head_dim, generator=torch.Generator().manual_seed(1))
    cosine, sine = table[positions, None, :, 0], table[positions, None, :, 1]
    low, high = heads[..., :32], heads[..., 32:]
    turned = torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)
    assert turned.equal(apply_rope(heads, rope_tables(CONFIG, positions)))
    angle = 17 * CONFIG.rope_theta ** (-2 * 5 / CONFIG.head_dim)
    assert table[17, 5].tolist() == pytest.approx([np.cos(angle), np.sin(angle)], abs=1e-5)


# Random weights of ranks


def test_random_nvfp4_experts_are_sane() -> None:
    """Scales of 1 to 1.875, all codes, and products that keep a unit input at unit size."""
    tensors = random_layer(CONFIG, 1, NVFP4_LAYER, 1, CPU)
    for name, rows, k in (("gate_up", 512, 256), ("down", 256, 256)):
        codes, scales = unpack_nvfp4(tensors[name][3].numpy(), rows, k)
        assert set(scales.ravel().tolist()) == set(range(0x38, 0x40))  # exponent 0, any mantissa
        assert set((codes & 15).ravel().tolist()) == set((codes >> 4).ravel().tolist()) == set(range(16))
        e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        nibbles = np.stack((codes & 15, codes >> 4), axis=-1).reshape(rows, k)
        values = e2m1[nibbles & 7] * np.repeat(1 + (scales & 7) / 8, 16, axis=1)
        factor = float(tensors[f"{name}_factor"][3]) / UNDO
        assert np.sqrt((values**2).sum(axis=1).mean()) * factor == pytest.approx(1, rel=0.05)


def test_random_dense_matrices_keep_unit_inputs_at_unit_size() -> None:
    tensors = random_layer(CONFIG, 2, BF16_LAYER, 1, CPU)
    for name in ("qkvg", "o", "pooler", "unpooler", "router", "gate_up", "down"):
        matrix = tensors[name].float()
        assert float(matrix.square().sum(dim=1).mean()) == pytest.approx(1, rel=0.1), name
    for name in ("gate_up_factor", "down_factor"):
        assert tensors[name].equal(torch.ones(CONFIG.num_local_experts))
    for branch in ("attn", "ffn"):
        alpha, beta = tensors[f"{branch}_alpha"], tensors[f"{branch}_beta"]
        assert torch.allclose(alpha**2 + beta**2, torch.ones(CONFIG.hidden_size), atol=1e-5)
        assert 0.05 < float(beta.mean()) < 0.3


@pytest.mark.parametrize("pool", [1, 5, 16])
def test_the_bias_favours_a_pool(pool: int) -> None:
    bias = random_layer(CONFIG, 1, NVFP4_LAYER, 2, CPU, pool)["router_bias"]
    assert sorted(bias.tolist()) == [0.0] * (16 - pool) + [1.0] * pool


def test_random_weights_follow_their_seed_and_layer() -> None:
    first, again = (random_layer(CONFIG, 2, NVFP4_LAYER, 3, CPU, pool=5) for _ in range(2))
    assert all(first[name].equal(again[name]) for name in first)
    for layer, seed in ((NVFP4_LAYER, 4), (2, 3)):
        other = random_layer(CONFIG, 2, layer, seed, CPU, pool=5)
        same = {name for name in first if first[name].equal(other[name])}
        assert same == {"gate_up_factor", "down_factor"}


@every_format
def test_ranks_have_the_same_vectors_and_matrices_of_their_own(layer: int) -> None:
    """What every rank needs alike, by the names of ``RankLayer``; the rest is dealt out."""
    first, second = (random_layer(CONFIG, 2, layer, 3, CPU, pool=5, rank=rank) for rank in (0, 1))
    same = {name for name in first if first[name].equal(second[name])}
    assert first.keys() - same == {"qkvg", "o", "pooler", "unpooler", "router", "gate_up", "down"}
    again = random_layer(CONFIG, 2, layer, 3, CPU, pool=5, rank=1)
    assert all(second[name].equal(again[name]) for name in second)


def test_a_rank_makes_its_part_of_the_head_and_the_norm_of_all() -> None:
    ranks = RandomRanks(CONFIG, 2, 3, CPU)
    first, second = ranks.head(0), ranks.head(1)
    assert first["final_norm"].equal(second["final_norm"])
    assert not first["lm_head"].equal(second["lm_head"])
    assert ranks.embedding().equal(RandomRanks(CONFIG, 4, 3, CPU).embedding())


def test_ranks_of_a_draft_differ_in_its_matrices_alone() -> None:
    draft = draft_of(MINI)
    source = RandomDraft(draft, 2, 3, RandomRanks(MINI, 2, 3, CPU).embedding())
    for made, own in ((partial(source.layer, layer=1), set(MATRICES)), (source.outer, {"fc"})):
        first, second = made(rank=0), made(rank=1)
        assert {name for name in first if not first[name].equal(second[name])} == own
        assert all(made(rank=1)[name].equal(second[name]) for name in second)


def test_a_large_matrix_is_made_in_parts_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_weights, "_FP32_NUMBERS", 3 * CONFIG.hidden_size)
    matrix = random_head(CONFIG, 4, 1, CPU)["lm_head"]
    assert len(matrix.unique(dim=0)) == len(matrix)
    assert float(matrix.float().square().sum(dim=1).mean()) == pytest.approx(1, rel=0.05)
