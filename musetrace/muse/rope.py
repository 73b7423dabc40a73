"""Rotary embedding: of the sliding layers, and of the draft.

Element ``i`` of a head is rotated with element ``i + head_dim / 2``, as ``transformers`` does it
(descriptions of the model that pair neighbours assume a checkpoint with permuted rows).
"""

from __future__ import annotations

import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DraftConfig


def rope_tables(config: MuseConfig | DraftConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, fp32 [tokens, head_dim / 2], of integer positions [tokens]."""
    exponents = (
        torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=positions.device) / config.head_dim
    )
    angles = positions.float()[:, None] * (1.0 / config.rope_theta**exponents)
    return angles.cos(), angles.sin()


def apply_rope(heads: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate fp32 [tokens, heads, head_dim] by tables of the same tokens."""
    cos, sin = (table[:, None, :] for table in tables)
    low, high = heads.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
