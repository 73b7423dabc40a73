"""The weights of the ranks that one GPU holds, layer by layer, in the kernel's layout."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_draft import random_embedding
from musetrace.muse.cuda_weights import upload_head, upload_layer
from musetrace.muse.sharding import RankShares
from musetrace.muse.slice_weights import random_head, random_layer


class RankWeights(Protocol):
    """Makes tensors in GPU memory by the kernel's names (``cuda_weights.upload_layer``)."""

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """A rank's layer."""

    def head(self, rank: int) -> dict[str, Tensor]:
        """A rank's head."""

    def embedding(self) -> Tensor:
        """The embedding table, bf16 [V, H], which all ranks share."""


class UploadedShares:
    """Shares that the host has, or reads."""

    def __init__(self, shares: RankShares, tp: int, gpu: torch.device) -> None:
        self._shares, self._tp, self._gpu = shares, tp, gpu

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """See :class:`RankWeights`."""
        return upload_layer(self._shares.layer(layer, rank, self._tp), self._gpu)

    def head(self, rank: int) -> dict[str, Tensor]:
        """See :class:`RankWeights`."""
        return upload_head(self._shares.head(rank, self._tp), self._gpu)

    def embedding(self) -> Tensor:
        """See :class:`RankWeights`."""
        return self._shares.host_head.embed_tokens.to(self._gpu).contiguous()


class RandomRanks:
    """Ranks of a model that is too large for the host, random and seeded, made on the GPU.

    Any process makes any rank, and the same one: what a rank holds depends on the seed and its number alone.
    """

    def __init__(self, config: MuseConfig, tp: int, seed: int, gpu: torch.device) -> None:
        self._config, self._tp, self._seed, self._gpu = config, tp, seed, gpu

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """See :class:`RankWeights`."""
        return random_layer(self._config, self._tp, layer, self._seed, self._gpu, rank=rank)

    def head(self, rank: int) -> dict[str, Tensor]:
        """See :class:`RankWeights`."""
        return random_head(self._config, self._tp, self._seed, self._gpu, rank)

    def embedding(self) -> Tensor:
        """See :class:`RankWeights`."""
        return random_embedding(self._config, self._seed, self._gpu)
