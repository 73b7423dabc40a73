"""The sizes of a simulated model, dealt to the blocks by the kernel's own functions, and its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from musetrace import _core

native: Any = _core.megakernel

TOKENS: int = native.TOKENS
GROUP_WARPS: int = native.GROUP_WARPS
FIRST_GROUP_WARP: int = native.FIRST_GROUP_WARP
BLOCK_WARPS = FIRST_GROUP_WARP + GROUP_WARPS
SENDER = 3

Shape = dict[str, Any]
Span = tuple[int, int]  # begin, end


def make_shape(ranks: int, blocks: int, **sizes: int) -> Shape:
    """The kernel's shape dict of a model of these whole sizes, shared by ranks.

    Raises:
        ValueError: the kernel does not run it.
    """
    fixed = {"layers": 4, "head_dim": 64, "vocab": 256, "capacity": 64, "window": 64}
    numbers = dict.fromkeys(
        ("rms_eps", "post_eps", "qk_scale", "output_multiplier", "softcap", "routed_scale", "rope_theta"), 1.0
    )
    shape = {"ranks": ranks, "blocks": blocks, **fixed, **sizes, **numbers}
    for heads in ("q_heads", "kv_heads"):
        shape[heads] = sizes[heads] // ranks
    wrong = native.unsupported(shape)
    if wrong is not None:
        raise ValueError(wrong)
    return shape


def mini(ranks: int, blocks: int) -> Shape:
    """The model that the kernel's own tests run."""
    return make_shape(
        ranks,
        blocks,
        hidden=512,
        q_heads=8,
        kv_heads=4,
        moe_hidden=256,
        intermediate=256,
        experts=16,
        top_k=4,
    )


@cache
def runs(starts: tuple[int, ...], length: int) -> NDArray[np.int64]:
    """The indices of runs of one length."""
    return (np.array(starts)[:, None] + np.arange(length)).ravel()


class WorkItem(NamedTuple):
    """An expert and up to eight of its pairs (pair = token * top_k + place).

    ``first``: the place of its first pair among all, which are sorted by expert, then token.
    """

    expert: int
    first: int
    pairs: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One launch. ``routing``: each token's experts, ascending; for an entry launch it is not used."""

    routing: tuple[tuple[int, ...], ...] = ()
    entry: bool = False
    projects: bool = True  # there is a next layer
    bf16_experts: bool = False

    def items(self) -> list[WorkItem]:
        """The work that follows from the routing: by expert, then token, in parts of up to eight pairs."""
        pairs: dict[int, list[int]] = {}
        for token, chosen in enumerate(self.routing):
            for place, expert in enumerate(chosen):
                pairs.setdefault(expert, []).append(token * len(chosen) + place)
        most, items, place = native.EXPERT_TOKENS, [], 0
        for expert in sorted(pairs):
            for first in range(0, len(pairs[expert]), most):
                items.append(WorkItem(expert, place, tuple(pairs[expert][first : first + most])))
                place += len(items[-1].pairs)
        return items


class Geometry:
    """A shape's plan, shares and exchange. Offsets of the exchange in words of 4 bytes.

    ``loopback``: one rank stands for all, and sends to all places of its own exchange.
    """

    def __init__(self, shape: Shape, stop4: str, loopback: bool = False) -> None:
        plan = native.plan(shape)
        self.shape = shape
        self.gather = stop4 == "gather"
        self.loopback = loopback
        self.places: int = shape["ranks"]
        self.ranks = 1 if loopback else self.places
        self.blocks: int = shape["blocks"]
        self.hidden: int = shape["hidden"]
        self.q_heads: int = shape["q_heads"]
        self.moe_hidden: int = shape["moe_hidden"]
        self.intermediate: int = shape["intermediate"]
        self.experts: int = shape["experts"]
        self.top_k: int = shape["top_k"]
        self.head_columns = self.q_heads * shape["head_dim"]
        self.pooled_rows = self.moe_hidden // self.places
        self.router_rows = self.experts // self.places
        self.features = self.intermediate // self.places
        self.qkv_units = 2 * (self.q_heads + shape["kv_heads"])
        self.dense_blocks: int = plan["dense_blocks"]
        self.pool_slices: int = plan["pool_slices"]
        self.qkv_slices: int = plan["qkv_slices"]
        self.splits: int = plan["splits"]
        self.norm_parts: int = plan["norm_parts"]
        self.shares: list[Any] = [native.shares(shape, block) for block in range(self.blocks)]
        tiles = native.expert_tiles(shape)
        self.tiles: tuple[int, int] = (tiles["gemm1"], tiles["gemm2"])
        offsets = native.exchange(shape, stop4)
        self.words: int = offsets.pop("bytes") // 4
        self.ones_words: int = offsets.pop("ones_bytes") // 4
        self.at: dict[str, int] = {name: offset // 4 for name, offset in offsets.items()}
        self.regions = sorted((offset, name) for name, offset in self.at.items())
        self.reset_lines = lru_cache(maxsize=None)(self._reset_lines)

    def peers(self, rank: int) -> Sequence[tuple[int, int]]:
        """(rank to send to, the sender's place there), in the kernel's order."""
        return [(0, p) if self.loopback else (p, rank) for p in range(self.places)]

    def own_place(self, rank: int) -> int:
        """Whose columns of moe_hidden the rank's are."""
        return 0 if self.loopback else rank

    def _reset_lines(self, block: int) -> NDArray[np.int64]:
        """The block's part of a copy: of those that own columns, which alone make it empty."""
        words = np.arange(self.words)
        ones = words < self.ones_words
        line = np.where(ones, words, words - self.ones_words) // 128
        mine: NDArray[np.int64] = words[line % self.dense_blocks == block]
        return mine
