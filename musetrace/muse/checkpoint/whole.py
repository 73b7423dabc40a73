"""A whole model's weights from a checkpoint, for the torch reference: a model that the host has room for."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from musetrace.muse.checkpoint.contents import GLOBAL_SUFFIX, SCALE_SUFFIX, layer_name
from musetrace.muse.checkpoint.safetensors import Safetensors
from musetrace.muse.checkpoint.shares import CheckpointShares
from musetrace.muse.config import MuseConfig
from musetrace.muse.nvfp4 import Nvfp4Tensor
from musetrace.muse.weights import DENSE_NAMES, EXPERT_NAMES, Experts, LayerWeights, ModelWeights


def read_model(folder: Path, config: MuseConfig) -> ModelWeights:
    """All layers and the head; what ``writing.write_model`` writes.

    Raises:
        UsageError: it is not a checkpoint of this model and quantisation; one line says what differs.
    """
    head = CheckpointShares(folder, config).host_head
    files = Safetensors(folder)
    layers = tuple(_layer(files, config, layer) for layer in range(config.num_hidden_layers))
    return ModelWeights(config, layers, head)


def _layer(files: Safetensors, config: MuseConfig, layer: int) -> LayerWeights:
    def dense(field: str) -> Tensor:
        tensor = files.read(layer_name(layer, DENSE_NAMES[field]))
        return tensor.float() if tensor.dim() == 1 or field == "router" else tensor

    def experts(field: str) -> Experts:
        name = layer_name(layer, EXPERT_NAMES[field])
        if config.expert_format(layer) == "bf16":
            return files.read(name)
        scales = files.read(name + SCALE_SUFFIX).view(torch.uint8)
        return Nvfp4Tensor(files.read(name), scales, files.read(name + GLOBAL_SUFFIX))

    return LayerWeights(
        layer=layer,
        **{field: dense(field) for field in DENSE_NAMES},
        gate_up=experts("gate_up"),
        down=experts("down"),
    )
