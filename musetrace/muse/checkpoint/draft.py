"""A draft's weights from a checkpoint, under the public names of DFlash drafts."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from musetrace.muse.checkpoint.contents import Wanted, check_contents
from musetrace.muse.checkpoint.safetensors import Safetensors
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.weights import (
    LAYER_NAMES,
    OUTER_NAMES,
    DraftLayerWeights,
    DraftWeights,
    layer_shapes,
)


def read_draft(folder: Path, config: DraftConfig) -> DraftWeights:
    """The whole draft; a draft is small beside its target.

    Raises:
        UsageError: it is not a checkpoint of this draft; one line says what differs.
    """
    files = Safetensors(folder)
    check_contents(files, draft_contents(config), config.name, ("",))

    def read(name: str) -> Tensor:
        tensor = files.read(name)
        return tensor.float() if tensor.dim() == 1 else tensor

    layers = tuple(
        DraftLayerWeights(**{field: read(f"layers.{number}.{name}") for field, name in LAYER_NAMES.items()})
        for number in range(config.num_hidden_layers)
    )
    return DraftWeights(config, layers=layers, **{field: read(name) for field, name in OUTER_NAMES.items()})


def draft_contents(config: DraftConfig) -> dict[str, Wanted]:
    """Every tensor of a draft."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, config.feature_width),
        "context_norm": (hidden,),
        "norm": (hidden,),
    }
    found = {name: _wanted(shapes[field]) for field, name in OUTER_NAMES.items()}
    for number in range(config.num_hidden_layers):
        for field, shape in layer_shapes(config).items():
            found[f"layers.{number}.{LAYER_NAMES[field]}"] = _wanted(shape)
    return found


def _wanted(shape: tuple[int, ...]) -> Wanted:
    return Wanted(shape, ("F32", "BF16") if len(shape) == 1 else ("BF16",))
