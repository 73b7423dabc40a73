"""What one rank of a model holds, read from a checkpoint by itself: one rank's layer at a time."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from musetrace.muse.checkpoint.contents import (
    GLOBAL_SUFFIX,
    HEAD_NAME,
    SCALE_SUFFIX,
    TEXT_PREFIX,
    check_config,
    check_contents,
    layer_name,
    model_contents,
)
from musetrace.muse.checkpoint.safetensors import Range, Safetensors
from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import residual_gate
from musetrace.muse.sharding import RankHead, RankLayer, check_rank
from musetrace.muse.weights import DENSE_NAMES, EXPERT_NAMES, HeadWeights


class CheckpointShares:
    """The ranks' shares of a model (``sharding.RankShares``) from a checkpoint.

    Args:
        folder: with the safetensors files; ``config.json`` is looked at where there is one.
        config: the model that it must be.

    Raises:
        UsageError: it is not a checkpoint of this model and quantisation; one line says what differs.
    """

    def __init__(self, folder: Path, config: MuseConfig) -> None:
        self.config = config
        check_config(folder, config)
        self._files = Safetensors(folder)
        check_contents(self._files, model_contents(config), config.name, (TEXT_PREFIX, "lm_head."))

    @cached_property
    def host_head(self) -> HeadWeights:
        """What stands outside the layers, whole: embedding, final norm, output projection."""
        norm = self._files.read(f"{TEXT_PREFIX}norm.weight").float()
        return HeadWeights(self._embed, norm, self._files.read(HEAD_NAME))

    @cached_property
    def _embed(self) -> Tensor:
        return self._files.read(f"{TEXT_PREFIX}embed_tokens.weight")

    def head(self, rank: int, tp: int) -> RankHead:
        """See ``sharding.RankShares``; the embedding is whole, and read once for all ranks."""
        check_rank(self.config, rank, tp)
        return RankHead(
            embed=self._embed,
            final_norm=self._files.read(f"{TEXT_PREFIX}norm.weight").float(),
            lm_head=self._files.read(HEAD_NAME, _share(self.config.vocab_size, rank, tp)),
        )

    def layer(self, layer: int, rank: int, tp: int) -> RankLayer:
        """See ``sharding.RankShares``."""
        config = self.config
        check_rank(config, rank, tp)

        def whole(field: str) -> Tensor:
            return self._files.read(layer_name(layer, DENSE_NAMES[field])).float()

        def rows(field: str, size: int) -> Tensor:
            return self._files.read(layer_name(layer, DENSE_NAMES[field]), _share(size, rank, tp))

        def columns(field: str, size: int) -> Tensor:
            return self._files.read(layer_name(layer, DENSE_NAMES[field]), None, _share(size, rank, tp))

        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        heads = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys), ("gate_proj", queries))
        attn_alpha, attn_beta = residual_gate(whole("attn_gate"), config.residual_gate_temperature)
        ffn_alpha, ffn_beta = residual_gate(whole("ffn_gate"), config.residual_gate_temperature)
        norms = ("input_norm", "pre_ffn_norm", "post_ffn_norm", "pre_expert_norm", "post_expert_norm")
        return RankLayer(
            qkvg=torch.cat([rows(field, size) for field, size in heads]),
            o=columns("o_proj", queries),
            pooler=rows("pooler", config.moe_hidden_size),
            router=rows("router", config.num_local_experts).float(),
            router_bias=whole("router_bias"),
            unpooler=columns("unpooler", config.moe_hidden_size),
            attn_alpha=attn_alpha,
            attn_beta=attn_beta,
            ffn_alpha=ffn_alpha,
            ffn_beta=ffn_beta,
            **{name: 1 + whole(name) for name in norms},
            **self._experts(layer, rank, tp),
        )

    def _experts(self, layer: int, rank: int, tp: int) -> dict[str, Any]:
        """The expert fields of a RankLayer; gate and up rows of the rank's features in turn."""
        inner, moe = self.config.moe_intermediate_size, self.config.moe_hidden_size
        features = _share(inner, rank, tp)
        up = (inner + features[0], inner + features[1])
        gate_up = layer_name(layer, EXPERT_NAMES["gate_up"])
        down = layer_name(layer, EXPERT_NAMES["down"])

        def interleaved(name: str) -> Tensor:
            parts = [_plain(self._files.read(name, None, part)) for part in (features, up)]
            return torch.stack(parts, dim=2).flatten(1, 2)

        def rows(name: str) -> Tensor:
            return _plain(self._files.read(name, None, _share(moe, rank, tp)))

        quantised = self.config.expert_format(layer) == "nvfp4"
        found: dict[str, Any] = {
            "gate_up": None if quantised else interleaved(gate_up),
            "down": None if quantised else rows(down),
        }
        for field, name, read in (("gate_up", gate_up, interleaved), ("down", down, rows)):
            found[f"{field}_codes"] = read(name) if quantised else None
            found[f"{field}_scales"] = read(name + SCALE_SUFFIX) if quantised else None
            found[f"{field}_global"] = self._files.read(name + GLOBAL_SUFFIX) if quantised else None
        return found


def _share(size: int, rank: int, tp: int) -> Range:
    return size * rank // tp, size * (rank + 1) // tp


def _plain(tensor: Tensor) -> Tensor:
    """Scales as their bits."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
