"""The draft as torch trains it: many blocks of a text at once.

The same function as ``musetrace.muse.draft.reference``; ``tests/unit/test_train_mini.py`` compares them.
"""

from __future__ import annotations

import math

import torch
from target import Target, rms, rotated
from torch import Tensor, nn
from torch.nn import functional

from musetrace.muse.draft.config import DRAFT_ROWS, DraftConfig
from musetrace.muse.draft.weights import DraftLayerWeights, DraftWeights, layer_shapes
from musetrace.muse.rope import rope_tables


class DraftLayer(nn.Module):
    """One layer; parameters as in ``DraftLayerWeights``."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        for name, shape in layer_shapes(config).items():
            made = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) / math.sqrt(shape[-1])
            if name in ("o_proj", "down_proj"):
                made *= 0.3
            setattr(self, name, nn.Parameter(made))

    def forward(self, x: Tensor, context: Tensor, positions: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Rows x [batch, rows, H] over context [batch, n, H]; ``positions`` are those of both."""
        config = self.config
        normed = rms(x, config.rms_norm_eps) * self.input_norm
        both = torch.cat((context, normed), dim=1)
        of_rows, of_all = (rope_tables(config, at) for at in (positions[1], torch.cat(positions)))

        def heads(rows: Tensor, weight: Tensor) -> Tensor:
            return functional.linear(rows, weight).unflatten(-1, (-1, config.head_dim)).transpose(1, 2)

        q = rotated(rms(heads(normed, self.q_proj), config.rms_norm_eps) * self.q_norm, of_rows)
        k = rotated(rms(heads(both, self.k_proj), config.rms_norm_eps) * self.k_norm, of_all)
        v = heads(both, self.v_proj)
        mixed = functional.scaled_dot_product_attention(
            q.to(v.dtype), k.to(v.dtype), v, attn_mask=mask, enable_gqa=True
        )
        x = x + functional.linear(mixed.transpose(1, 2).flatten(2), self.o_proj)
        normed = rms(x, config.rms_norm_eps) * self.mlp_norm
        gated = functional.silu(functional.linear(normed, self.gate_proj)) * functional.linear(
            normed, self.up_proj
        )
        return x + functional.linear(gated, self.down_proj)


class Draft(nn.Module):
    """The whole draft; embedding and output projection are the target's."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        std = 1 / math.sqrt(config.feature_width)
        self.fc = nn.Parameter(torch.randn(config.hidden_size, config.feature_width) * std)
        self.context_norm = nn.Parameter(torch.ones(config.hidden_size))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, target: Target, ids: Tensor, features: Tensor, roots: Tensor) -> Tensor:
        """Guesses of all blocks that begin at some positions of a text.

        Args:
            ids: int64 [batch, positions].
            features: [batch, positions, F H], of the target.
            roots: int64 [blocks], the position of each block's root; 15 more fit behind each.

        Returns:
            Logits fp32 [batch, blocks, 15, V] of the tokens behind each root.
        """
        config = self.config
        context = rms(functional.linear(features, self.fc), config.rms_norm_eps) * self.context_norm
        rows = torch.full((len(ids), len(roots), DRAFT_ROWS), config.mask_token_id, device=ids.device)
        rows[:, :, 0] = ids[:, roots]
        x = target.embedded(rows.flatten(1))
        places = torch.arange(ids.shape[1], device=ids.device)
        of_rows = (roots[:, None] + torch.arange(DRAFT_ROWS, device=ids.device)).flatten()
        mask = self._mask(places, of_rows)
        for layer in self.layers:
            x = layer(x, context, (places, of_rows), mask)
        normed = rms(x, config.rms_norm_eps) * self.norm
        return target.logits(normed.unflatten(1, (len(roots), DRAFT_ROWS))[:, :, 1:])

    def _mask(self, places: Tensor, of_rows: Tensor) -> Tensor:
        """bool [rows, positions + rows]: context before the block's root within the window, and the block."""
        block = torch.arange(len(of_rows), device=of_rows.device) // DRAFT_ROWS
        roots = of_rows[block * DRAFT_ROWS]
        near = of_rows[:, None] - places < self.config.sliding_window
        return torch.cat(((places < roots[:, None]) & near, block[:, None] == block), dim=1)

    def exported(self) -> DraftWeights:
        """The weights as the engine takes them."""
        layers = tuple(
            DraftLayerWeights(**{name: _kept(value) for name, value in layer.state_dict().items()})
            for layer in self.layers
        )
        outer = {name: _kept(getattr(self, name)) for name in ("fc", "context_norm", "norm")}
        return DraftWeights(self.config, layers=layers, **outer)


def _kept(value: Tensor) -> Tensor:
    kept = value.detach().cpu().float()
    return kept if kept.dim() == 1 else kept.bfloat16()
