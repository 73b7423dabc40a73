"""The keys and values of the tokens so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DraftConfig


@dataclass(frozen=True)
class KvCache:
    """Keys and values of every layer, by position; what lies beyond the tokens so far is never read.

    Attributes:
        k: per layer, fp32 storage [kv heads, capacity, head_dim] (bf16 values under ``Rounding.BF16``);
            behind norm and rope.
        v: the same for values.
    """

    k: list[Tensor]
    v: list[Tensor]

    @classmethod
    def empty(cls, config: MuseConfig | DraftConfig, capacity: int) -> KvCache:
        """A cache for ``capacity`` positions, full of NaN: a read of what was never written shows."""
        if not 1 <= capacity <= config.max_position_embeddings:
            raise UsageError(
                f"model {config.name} has positions for 1 to {config.max_position_embeddings} tokens, "
                f"not for a cache of {capacity}"
            )
        shape = (config.num_key_value_heads, capacity, config.head_dim)
        layers = range(config.num_hidden_layers)
        return cls(
            [torch.full(shape, torch.nan) for _ in layers], [torch.full(shape, torch.nan) for _ in layers]
        )

    @property
    def capacity(self) -> int:
        """How many positions there is room for."""
        return self.k[0].shape[1]

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> None:
        """Store k and v [tokens, kv heads, head_dim] of the positions from ``start`` on.

        Raises:
            UsageError: they reach beyond the capacity.
        """
        end = start + k.shape[0]
        if start < 0 or end > self.capacity:
            raise UsageError(
                f"positions {start} to {end - 1} do not fit a cache of {self.capacity}; make it larger"
            )
        self.k[layer][:, start:end] = k.transpose(0, 1)
        self.v[layer][:, start:end] = v.transpose(0, 1)

    def keep(self, start: int, path: Tensor) -> None:
        """Move rows ``start + path[i]`` to ``start + i`` in every layer; int64 ``path`` ascends."""
        for rows in (*self.k, *self.v):
            rows[:, start : start + len(path)] = rows[:, start + path]

    def read(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """Views of k and v [kv heads, length, head_dim] of the first positions."""
        return self.k[layer][:, :length], self.v[layer][:, :length]
