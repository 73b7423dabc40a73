"""The draft at full size: one rank of eight in loopback against plain torch.

What its peers would send it sends itself, so a sum over ranks is its own bf16 partial, added eight times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.config import preset
from musetrace.muse.cuda_draft import RandomDraft, add_draft, padded_width, random_embedding
from musetrace.muse.cuda_weights import addresses
from musetrace.muse.device import shape_of
from musetrace.muse.draft.config import draft_of
from musetrace.muse.norms import rms_norm
from musetrace.muse.rope import apply_rope, rope_tables
from musetrace.muse.rounding import Rounding, linear, ordered_sum
from musetrace.muse.slice_weights import random_head
from tests.gpu.draft_case import filled, from_columns
from tests.gpu.layer_case import TOKENS, assert_close
from tests.gpu.slice_reference import dense

pytestmark = pytest.mark.gpu

CONFIG = preset("muse-spark-open-tp8-slice")
TP, D = 8, 128
DRAFT = replace(draft_of(CONFIG), num_hidden_layers=2)
HIDDEN, HEADS, KV_HEADS, INNER = 8192, 64 // TP, 8 // TP, 16384 // TP
POSITION, CAPACITY = 4096, 4096 + 32
PATH = [0, 1, 3, 4, 8, 15]
ROUNDED = Rounding.BF16
TOLERANCE = 1.5e-3
# Of the residual stream, which is branch but for a fiftieth: eight equal partial sums, rounded alike.
# Weights of attention have 16 bits, so heads are off by 1e-5, and five roundings to bf16 (heads, o's sums,
# the MLP's input and features, down's sums) put more and more values on the other side of an edge: the
# reference in fp32 with heads off by 1e-5 differs from the one in fp64 by 1.8e-3 to 2.0e-3. Once all values
# may fall on either side, a rounding makes sqrt(2) x 2**-7 / sqrt(12 x 7 / 3) = 2.1e-3, and the one before
# adds to it.
RESIDUAL_TOLERANCE = 2.4e-3


class Weights:
    """Of the slice, packed and as matrices, on the GPU."""

    def __init__(self) -> None:
        gpu = torch.device("cuda")
        self.random = RandomDraft(DRAFT, TP, 7, random_embedding(CONFIG, 7, gpu))
        self.head = random_head(CONFIG, TP, 7, gpu)
        self.lm_head = dense(self.head["lm_head"], CONFIG.vocab_size // TP, HIDDEN)
        self.outer = self.random.outer(0)
        self.fc = dense(self.outer["fc"], HIDDEN, padded_width(DRAFT.feature_width // TP))
        rows = {
            "qkv": ((HEADS + 2 * KV_HEADS) * D, HIDDEN),
            "o": (HIDDEN, HEADS * D),
            "gate_up": (2 * INNER, HIDDEN),
            "down": (HIDDEN, INNER),
        }
        self.layers = []
        for number in range(DRAFT.num_hidden_layers):
            tensors = self.random.layer(0, number)
            self.layers.append(tensors | {name: dense(tensors[name], *shape) for name, shape in rows.items()})


@dataclass(frozen=True)
class Slice:
    device: Any
    weights: Weights
    kept: list[Tensor]


@pytest.fixture(scope="module")
def weights(cuda: ModuleType) -> Weights:
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device for the weights")
    return Weights()


@pytest.fixture(params=[132, 128, 66], ids=str)
def slice_(cuda: ModuleType, weights: Weights, request: pytest.FixtureRequest) -> Slice:
    shape = shape_of(CONFIG, TP, request.param, CAPACITY, 1)
    device = cuda.MuseDevice(shape, loopback=True, budget_ns=500_000_000)
    device.set_head(0, addresses(weights.head))
    return Slice(device, weights, add_draft(device, DRAFT, TP, CAPACITY, weights.random))


def reduced(inputs: Tensor, weight: Tensor) -> Tensor:
    return ordered_sum([ROUNDED.to_bf16(linear(inputs, weight))] * TP)


def heads_of(rows: Tensor, layer: dict[str, Tensor], positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [rows, heads, d] of normed rows."""
    heads = linear(rows, layer["qkv"]).reshape(len(rows), -1, D)
    q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    tables = rope_tables(DRAFT, positions)
    q, k = (
        apply_rope(rms_norm(part, DRAFT.rms_norm_eps) * layer[f"{name}_norm"], tables)
        for name, part in (("q", q), ("k", k))
    )
    return tuple(ROUNDED.to_bf16(part) for part in (q, k, v))  # type: ignore[return-value]


def own_heads(x: Tensor, layer: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    normed = ROUNDED.to_bf16(rms_norm(x, DRAFT.rms_norm_eps) * layer["input_norm"])
    return heads_of(normed, layer, torch.arange(POSITION, POSITION + TOKENS, device=x.device))


def values(slice_: Slice, name: str, layer: int = 0) -> Tensor:
    raw = slice_.device.draft_values(name, 0, layer)
    return torch.from_numpy(raw if raw.dtype.kind == "f" else from_bf16_bits(raw)).cuda()


def rows(slice_: Slice, name: str) -> Tensor:
    return from_columns(slice_.device.draft_values(name, 0).view("uint16"), HIDDEN).cuda()


def launch(slice_: Slice, kind: str, layer: int = 0) -> None:
    slice_.device.launch((kind, layer, 0, 0), "off")
    slice_.device.synchronize()


def test_a_context_launch_at_full_size(slice_: Slice) -> None:
    device, weights = slice_.device, slice_.weights
    normal = partial(torch.randn, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    features = [normal(TOKENS, HIDDEN) for _ in DRAFT.target_layer_ids]
    device.poison()
    for which, of_layer in enumerate(features):
        device.set_draft_values("features", 0, which, of_layer.cpu().numpy())
    device.set_step(
        {"position": POSITION, "tokens": filled([12_345]), "kept": len(PATH), "path": filled(PATH)}
    )
    launch(slice_, "draft_context")
    own = ROUNDED.to_bf16(torch.cat([part[PATH] for part in features], 1)[:, : DRAFT.feature_width // TP])
    c = ROUNDED.to_bf16(
        rms_norm(reduced(own, weights.fc), DRAFT.rms_norm_eps) * weights.outer["context_norm"]
    )
    assert_close(rows(slice_, "context")[: len(PATH)], c, "the context", TOLERANCE)
    start = POSITION - len(PATH)
    for number, layer in enumerate(weights.layers):
        _, k, v = heads_of(c, layer, torch.arange(start, POSITION, device="cuda"))
        assert_close(values(slice_, "k", number)[:, start:POSITION], k.transpose(0, 1), "k", TOLERANCE)
        got = values(slice_, "v", number)[..., start:POSITION].transpose(1, 2)
        assert_close(got, v.transpose(0, 1), "v", TOLERANCE)
    ids = torch.full((TOKENS,), DRAFT.mask_token_id, device="cuda")
    ids[0] = 12_345
    x = rms_norm(weights.random.embedding[ids].float(), CONFIG.rms_norm_eps)
    assert_close(values(slice_, "residual"), x, "the embedded rows", 1e-6)
    check_next(slice_, x, 0)


def check_next(slice_: Slice, x: Tensor, layer: int) -> None:
    """q, k, v that the layer gets of the residual stream x."""
    q, k, v = own_heads(x, slice_.weights.layers[layer])
    assert_close(values(slice_, "q").reshape(TOKENS, HEADS, D), q, "q", TOLERANCE)
    own = slice(POSITION, POSITION + TOKENS)
    assert_close(values(slice_, "k", layer)[:, own], k.transpose(0, 1), "k", TOLERANCE)
    assert_close(values(slice_, "v", layer)[..., own].transpose(1, 2), v.transpose(0, 1), "v", TOLERANCE)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_at_full_size(slice_: Slice, layer: int) -> None:
    device, weights = slice_.device, slice_.weights
    tensors = weights.layers[layer]
    normal = partial(torch.randn, generator=torch.Generator("cuda").manual_seed(2 + layer), device="cuda")
    x = normal(TOKENS, HIDDEN)
    k, v = (normal(KV_HEADS, CAPACITY, D).bfloat16().float() for _ in range(2))
    q, own_k, own_v = own_heads(x, tensors)
    end = POSITION + TOKENS
    k[:, POSITION:end], v[:, POSITION:end] = own_k.transpose(0, 1), own_v.transpose(0, 1)
    device.poison()
    device.set_state(POSITION)
    device.set_draft_values("residual", 0, 0, x.cpu().numpy())
    device.set_draft_values("q", 0, 0, to_bf16_bits(q.flatten(1).cpu().numpy()))
    device.set_draft_values("k", 0, layer, to_bf16_bits(k.cpu().numpy()))
    device.set_draft_values("v", 0, layer, to_bf16_bits(v.transpose(1, 2).contiguous().cpu().numpy()))
    launch(slice_, "draft_layer", layer)
    expected = layer_output(tensors, x, q, k[:, :end], v[:, :end])
    got = values(slice_, "residual")
    assert_close(got, expected, "the residual stream", RESIDUAL_TOLERANCE)
    if layer + 1 < DRAFT.num_hidden_layers:
        check_next(slice_, got, layer + 1)
    else:
        check_end(slice_, got)


def check_end(slice_: Slice, x: Tensor) -> None:
    """The rows behind the last layer's residual stream x, and their logits."""
    weights = slice_.weights
    normed = ROUNDED.to_bf16(rms_norm(x, DRAFT.rms_norm_eps) * weights.outer["norm"])
    assert_close(rows(slice_, "normed"), normed, "the normed rows", TOLERANCE)
    launch(slice_, "draft_head")
    logits = torch.from_numpy(slice_.device.values("logits", 0)).cuda()
    sums = linear(rows(slice_, "normed"), weights.lm_head) * CONFIG.output_multiplier
    cap = CONFIG.final_logit_softcapping
    assert_close(logits, torch.tanh(sums / cap) * cap, "logits", TOLERANCE)


def layer_output(layer: dict[str, Tensor], x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention to MLP; k and v [kv heads, positions, d]."""
    positions = k.shape[1]
    queries = torch.arange(positions - TOKENS, positions, device=x.device)
    seen = queries[:, None] - torch.arange(positions, device=x.device) < DRAFT.sliding_window
    scores = torch.einsum("thd,gpd->htp", q.double(), k.double()) * D**-0.5
    attention = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1)
    heads = torch.einsum("htp,gpd->thd", attention, v.double()).float().flatten(1)
    x = x + reduced(ROUNDED.to_bf16(heads), layer["o"])
    b = ROUNDED.to_bf16(rms_norm(x, DRAFT.rms_norm_eps) * layer["mlp_norm"])
    gate, up = linear(b, layer["gate_up"]).unflatten(1, (-1, 2)).unbind(-1)
    return x + reduced(ROUNDED.to_bf16(functional.silu(gate) * up), layer["down"])
