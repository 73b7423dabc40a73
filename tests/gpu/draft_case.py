"""The draft of `mini` on virtual ranks of one GPU: set-up, random input, what came out, what is expected.

Every launch is compared on input of its own, so that no error is carried on. Tolerances are those of
``layer_case``: kernel and reference round to bf16 at the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.abi import StampLayout
from musetrace.job_table import JobTable
from musetrace.muse.bf16_bits import from_bf16_bits, to_bf16_bits
from musetrace.muse.cache import KvCache
from musetrace.muse.cuda_draft import WholeDraft, add_draft
from musetrace.muse.draft import reference
from musetrace.muse.draft.config import DraftConfig, draft_of
from musetrace.muse.draft.weights import DraftWeights, synthesize_draft
from musetrace.muse.norms import rms_norm
from musetrace.muse.reference import embed
from musetrace.muse.rounding import Rounding
from tests.gpu import layer_case
from tests.gpu.layer_case import ABSENT_KEY, ABSENT_VALUE, CAPACITY, GPU, TOKENS, assert_close

ROUNDED = Rounding.BF16
HEAD_DIM = 128
CHUNK = 32
# Of the rms. Inputs of a product that fall on the other side of a bf16 edge show in its sums.
TOLERANCE = 1e-3


@cache
def draft_weights() -> DraftWeights:
    return synthesize_draft(draft_of(layer_case.model().config), seed=5)


@dataclass(frozen=True)
class DraftSetup:
    """A target's device with its draft, and what keeps the weights alive."""

    target: layer_case.Setup
    weights: DraftWeights
    kept: list[Tensor]

    @property
    def device(self) -> Any:
        return self.target.device

    @property
    def config(self) -> DraftConfig:
        return self.weights.config

    @property
    def tp(self) -> int:
        return self.target.tp

    def run(self, *requests: layer_case.Request, build: str = "off") -> None:
        layer_case.run(self.target, requests, build)


# Of (tp, blocks).
DraftSetups = Callable[[int, int], DraftSetup]


def make_draft_setup(cuda: ModuleType, tp: int, blocks: int, **options: Any) -> DraftSetup:
    target = layer_case.make_setup(cuda, tp, blocks, **options)
    embedding = target.weights.head.embed_tokens.to(GPU).contiguous()
    drafts = WholeDraft(draft_weights(), target.config, tp, embedding)
    kept = add_draft(target.device, draft_weights().config, tp, CAPACITY, drafts)
    return DraftSetup(target, draft_weights(), kept)


@dataclass(frozen=True)
class DraftStep:
    """What a draft pass finds.

    Attributes:
        position, root: of the first row.
        path: rows of the features that become context, for the positions right in front of ``position``.
        features: fp32 [16, H] for each target layer.
        cache: context below ``position - len(path)``; NaN elsewhere.
        x: a residual stream [16, H] for a layer launch.
    """

    position: int
    root: int
    path: list[int]
    features: list[Tensor]
    cache: KvCache
    x: Tensor

    @property
    def context_start(self) -> int:
        return self.position - len(self.path)


def random_draft_step(setup: DraftSetup, position: int, path: list[int], seed: int) -> DraftStep:
    config = setup.config
    generator = torch.Generator().manual_seed(seed * 1000 + position)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    past = KvCache.empty(config, CAPACITY)
    shape = (position - len(path), config.num_key_value_heads, HEAD_DIM)
    for layer in range(config.num_hidden_layers):
        past.write(layer, 0, *(normal(*shape).bfloat16().float() for _ in range(2)))
    root = int(torch.randint(setup.target.config.vocab_size, (1,), generator=generator))
    features = [normal(TOKENS, config.hidden_size) for _ in config.target_layer_ids]
    return DraftStep(position, root, path, features, past, normal(TOKENS, config.hidden_size))


def copy_of(kv: KvCache) -> KvCache:
    return KvCache([k.clone() for k in kv.k], [v.clone() for v in kv.v])


# Into the device


def put_step(setup: DraftSetup, step: DraftStep) -> None:
    """Everything that a context launch finds; all that it writes is poisoned."""
    setup.device.poison()
    put_state(setup, step)
    for rank in range(setup.tp):
        for which, values in enumerate(step.features):
            setup.device.set_draft_values("features", rank, which, values.numpy())
        for layer in range(setup.config.num_hidden_layers):
            put_cache(setup, rank, layer, step.cache)


def put_state(setup: DraftSetup, step: DraftStep) -> None:
    root, path = [step.root], step.path
    setup.device.set_step(
        {"position": step.position, "tokens": filled(root), "kept": len(path), "path": filled(path)}
    )


def filled(values: list[int]) -> list[int]:
    """With zeros behind them, as many as a pass has rows."""
    return values + [0] * (TOKENS - len(values))


def put_cache(setup: DraftSetup, rank: int, layer: int, kv: KvCache) -> None:
    mine = setup.target.share(setup.config.num_key_value_heads, rank)
    k, v = kv.k[layer][mine], kv.v[layer][mine]
    keys = to_bf16_bits(k.numpy())
    keys[np.isnan(k.numpy())] = ABSENT_KEY
    setup.device.set_draft_values("k", rank, layer, keys)
    values = v.nan_to_num(nan=ABSENT_VALUE).transpose(1, 2).contiguous()
    setup.device.set_draft_values("v", rank, layer, to_bf16_bits(values.numpy()))


def put_layer_input(setup: DraftSetup, layer: int, x: Tensor, q: Tensor, kv: KvCache) -> None:
    """What the launch in front of a layer's would have left: residual stream, q [16, heads, d], k and v."""
    for rank in range(setup.tp):
        setup.device.set_draft_values("residual", rank, 0, x.numpy())
        heads = q[:, setup.target.share(setup.config.num_attention_heads, rank)]
        setup.device.set_draft_values("q", rank, 0, to_bf16_bits(heads.flatten(1).contiguous().numpy()))
        put_cache(setup, rank, layer, kv)


# Out of the device


def residual_of(setup: DraftSetup) -> Tensor:
    first, *others = (setup.device.draft_values("residual", rank) for rank in range(setup.tp))
    assert all(other.tobytes() == first.tobytes() for other in others), "ranks differ"
    return torch.from_numpy(first)


def rows_of(setup: DraftSetup, name: str) -> Tensor:
    """``context`` or ``normed`` [16, H]."""
    first, *others = (setup.device.draft_values(name, rank) for rank in range(setup.tp))
    assert all(other.tobytes() == first.tobytes() for other in others), "ranks differ"
    return from_columns(first.view(np.uint16), setup.config.hidden_size)


def from_columns(bits: NDArray[np.uint16], columns: int) -> Tensor:
    """Fp32 [16, columns] of chunks of 32 columns."""
    # [chunk, token, t, i] holds the columns 8 i + 2 t and the one behind it.
    pairs = bits.reshape(columns // CHUNK, TOKENS, 4, 4, 2).transpose(1, 0, 3, 2, 4)
    return torch.from_numpy(from_bf16_bits(np.ascontiguousarray(pairs).reshape(TOKENS, columns)))


def q_of(setup: DraftSetup) -> Tensor:
    parts = [from_bf16_bits(setup.device.draft_values("q", rank)) for rank in range(setup.tp)]
    return torch.from_numpy(np.concatenate(parts, axis=1)).reshape(TOKENS, -1, HEAD_DIM)


def cache_of(setup: DraftSetup, layer: int) -> tuple[Tensor, Tensor]:
    def gathered(name: str) -> Tensor:
        parts = [from_bf16_bits(setup.device.draft_values(name, rank, layer)) for rank in range(setup.tp)]
        return torch.from_numpy(np.concatenate(parts))

    return gathered("k"), gathered("v").transpose(1, 2)


def digests(setup: DraftSetup) -> dict[str, str]:
    """All that a launch may have written."""
    layers = range(setup.config.num_hidden_layers)
    names = [("residual", 0), ("q", 0), ("context", 0), ("normed", 0)]
    names += [(name, layer) for name in ("k", "v") for layer in layers]
    return {
        f"{name} of rank {rank}, layer {layer}": sha256(
            np.ascontiguousarray(setup.device.draft_values(name, rank, layer))
        ).hexdigest()
        for rank in range(setup.tp)
        for name, layer in names
    }


def stamped_jobs(setup: DraftSetup, table: JobTable, kind: str, slot_bytes: int) -> set[str]:
    """The jobs that a launch stamps on any rank: every block has the launch's epoch, every job both ends."""
    layout, epoch = StampLayout(setup.target.blocks, table.slots, slot_bytes), 7
    region = torch.zeros(setup.tp * layout.region_bytes, dtype=torch.uint8, device=GPU)
    torch.cuda.synchronize()
    setup.run((kind, 0, region.data_ptr(), epoch), build="register" if slot_bytes == 4 else "store")
    seen = set()
    for of_rank in region.cpu().numpy().reshape(setup.tp, -1):
        headers = layout.headers(of_rank)
        assert (headers["epoch"] == epoch).all()
        assert (headers["overflow"] == 0).all()
        slots = layout.stamps(of_rank).reshape(layout.blocks, -1, 2)
        assert ((slots[..., 0] != 0) == (slots[..., 1] != 0)).all()
        done = (slots != 0).all(axis=-1).any(axis=0)
        seen |= {table.job_name(int(job)) for job in table.pair_jobs[done]}
    return seen


# What is expected


def check_projection(setup: DraftSetup, layer: int, x: Tensor, position: int) -> None:
    """q, k and v of a layer, of the residual stream x; the rest of the layer's cache is another test's."""
    states = layer_states(setup, layer, x, KvCache.empty(setup.config, CAPACITY), position, alone=True)
    assert_close(q_of(setup), states.q, f"q of layer {layer}", TOLERANCE)
    k, v = cache_of(setup, layer)
    written = slice(position, position + TOKENS)
    assert_close(k[:, written], states.k.transpose(0, 1), f"k of layer {layer}", TOLERANCE)
    assert_close(v[:, written], states.v.transpose(0, 1), f"v of layer {layer}", TOLERANCE)


def layer_states(
    setup: DraftSetup, layer: int, x: Tensor, kv: KvCache, position: int, alone: bool = False
) -> reference.DraftLayerStates:
    """The reference of a layer; writes its k and v. ``alone``: as if nothing were in the cache."""
    if alone:
        for values in (*kv.k, *kv.v):
            values[:] = 0
    weights = setup.weights.layers[layer]
    return reference._layer(setup.config, weights, layer, x, position, kv, ROUNDED, setup.tp)


def check_context(setup: DraftSetup, step: DraftStep) -> None:
    """What a context launch leaves."""
    config = setup.config
    features = ROUNDED.to_bf16(torch.cat([values[step.path] for values in step.features], dim=-1))
    expected = copy_of(step.cache)
    count = len(step.path)
    if count:
        c = reference.add_context(setup.weights, features, step.context_start, expected, ROUNDED, setup.tp)
        assert_close(rows_of(setup, "context")[:count], c, "the context", TOLERANCE)
    ids = torch.full((TOKENS,), config.mask_token_id)
    ids[0] = step.root
    x = embed(setup.target.config, setup.target.weights.head, ids)
    got = residual_of(setup)
    assert_close(got, x, "the embedded rows", 1e-6)
    check_projection(setup, 0, x, step.position)
    for layer in range(config.num_hidden_layers):
        check_cache(setup, layer, step, expected)


def check_cache(setup: DraftSetup, layer: int, step: DraftStep, expected: KvCache) -> None:
    """Old rows untouched, context rows as the reference has them, and nothing behind the pass's own rows."""
    k, v = cache_of(setup, layer)
    start, position = step.context_start, step.position
    for name, got, want in (("k", k, expected.k[layer]), ("v", v, expected.v[layer])):
        assert got[:, :start].equal(want[:, :start]), f"an old row of {name} was written"
        if start < position:
            new = slice(start, position)
            assert_close(got[:, new], want[:, new], f"context {name} of layer {layer}", 1.5 * TOLERANCE)
    own = position + (TOKENS if layer == 0 else 0)
    assert bool(k[:, own:].isnan().all()), "a key of another position was written"
    assert bool((v[:, own:] == torch.tensor(ABSENT_VALUE).bfloat16().float()).all()), "a value was"


def check_normed(setup: DraftSetup, x: Tensor) -> None:
    """The input of lm_head behind the last layer."""
    expected = ROUNDED.to_bf16(rms_norm(x, setup.config.rms_norm_eps) * setup.weights.norm)
    assert_close(rows_of(setup, "normed"), expected, "the normed rows", TOLERANCE)
