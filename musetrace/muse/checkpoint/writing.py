"""Weights to checkpoints, as ``shares`` and ``draft`` read them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from musetrace.muse.checkpoint.contents import (
    GLOBAL_SUFFIX,
    HEAD_NAME,
    SCALE_SUFFIX,
    TEXT_PREFIX,
    layer_name,
)
from musetrace.muse.checkpoint.safetensors import write_safetensors
from musetrace.muse.draft.weights import DraftWeights
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.weights import DENSE_NAMES, EXPERT_NAMES, LayerWeights, ModelWeights


def write_model(folder: Path, model: ModelWeights) -> None:
    """``model.safetensors`` and ``config.json`` of a whole model."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{TEXT_PREFIX}embed_tokens.weight": model.head.embed_tokens,
        f"{TEXT_PREFIX}norm.weight": model.head.norm,
        HEAD_NAME: model.head.lm_head,
    }
    for layer in model.layers:
        tensors |= _layer(layer)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {
        name: value for name, value in model.config.to_json().items() if name not in ("name", "slice_tp")
    }
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    document = {"model_type": "muse_spark", "text_config": config}
    (folder / "config.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def write_draft(folder: Path, draft: DraftWeights) -> None:
    """``model.safetensors`` of a draft."""
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", draft.state_dict())


def _layer(layer: LayerWeights) -> dict[str, Tensor]:
    found = {layer_name(layer.layer, name): getattr(layer, field) for field, name in DENSE_NAMES.items()}
    for field, name in EXPERT_NAMES.items():
        experts, public = getattr(layer, field), layer_name(layer.layer, name)
        if not isinstance(experts, Nvfp4Tensor):
            found[public] = experts
            continue
        found[public] = experts.codes
        found[public + SCALE_SUFFIX] = experts.scales.view(torch.float8_e4m3fn)
        found[public + GLOBAL_SUFFIX] = experts.global_scale
    return found
