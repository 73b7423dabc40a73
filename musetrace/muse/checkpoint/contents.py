"""Which tensors a model needs, and whether a checkpoint has them: these, of these shapes and types.

Names are those of ``MuseSparkForConditionalGeneration``. A layer whose experts are quantised has, as ModelOpt
writes NVFP4, ``<name>`` (uint8, two codes a byte, the low nibble first), ``<name>_weight_scale`` (e4m3, one
for each 16) and ``<name>_weight_scale_2`` (fp32, one for each expert). Tensors of other towers are passed
over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from musetrace.errors import UsageError
from musetrace.muse.checkpoint.safetensors import Safetensors
from musetrace.muse.config import MuseConfig
from musetrace.muse.nvfp4 import BLOCK_SIZE
from musetrace.muse.weights import DENSE_NAMES, EXPERT_NAMES

TEXT_PREFIX, HEAD_NAME = "model.language_model.", "lm_head.weight"
SCALE_SUFFIX, GLOBAL_SUFFIX = "_weight_scale", "_weight_scale_2"
_VECTOR = ("F32", "BF16")
_FP32_MATRICES = ("router",)
_OWN_FIELDS = {"name", "slice_tp", "rope_theta"}


@dataclass(frozen=True)
class Wanted:
    """What a tensor must be."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]


def layer_name(layer: int, name: str) -> str:
    """The public name of a layer's parameter."""
    return f"{TEXT_PREFIX}layers.{layer}.{name}"


def model_contents(config: MuseConfig) -> dict[str, Wanted]:
    """Every tensor of the text model."""
    vocab, hidden = config.vocab_size, config.hidden_size
    found = {
        f"{TEXT_PREFIX}embed_tokens.weight": Wanted((vocab, hidden), ("BF16",)),
        f"{TEXT_PREFIX}norm.weight": Wanted((hidden,), _VECTOR),
        HEAD_NAME: Wanted((vocab, hidden), ("BF16",)),
    }
    for layer in range(config.num_hidden_layers):
        for field, shape in _dense_shapes(config).items():
            is_fp32 = len(shape) == 1 or field in _FP32_MATRICES
            found[layer_name(layer, DENSE_NAMES[field])] = Wanted(shape, _VECTOR if is_fp32 else ("BF16",))
        found |= _experts(config, layer)
    return found


def _dense_shapes(config: MuseConfig) -> dict[str, tuple[int, ...]]:
    hidden, moe, experts = config.hidden_size, config.moe_hidden_size, config.num_local_experts
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    return {
        "input_norm": (hidden,),
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "gate_proj": (queries, hidden),
        "o_proj": (hidden, queries),
        "attn_gate": (hidden,),
        "pre_ffn_norm": (hidden,),
        "router": (experts, hidden),
        "router_bias": (experts,),
        "pooler": (moe, hidden),
        "pre_expert_norm": (moe,),
        "post_expert_norm": (moe,),
        "unpooler": (hidden, moe),
        "post_ffn_norm": (hidden,),
        "ffn_gate": (hidden,),
    }


def _experts(config: MuseConfig, layer: int) -> dict[str, Wanted]:
    experts, moe, inner = config.num_local_experts, config.moe_hidden_size, config.moe_intermediate_size
    found = {}
    for field, rows, k in (("gate_up", 2 * inner, moe), ("down", moe, inner)):
        name = layer_name(layer, EXPERT_NAMES[field])
        if config.expert_format(layer) == "bf16":
            found[name] = Wanted((experts, rows, k), ("BF16",))
            continue
        found[name] = Wanted((experts, rows, k // 2), ("U8",))
        found[name + SCALE_SUFFIX] = Wanted((experts, rows, k // BLOCK_SIZE), ("F8_E4M3",))
        found[name + GLOBAL_SUFFIX] = Wanted((experts,), ("F32",))
    return found


def check_contents(
    checkpoint: Safetensors, wanted: Mapping[str, Wanted], model: str, own: tuple[str, ...]
) -> None:
    """Refuse a checkpoint that does not have just these tensors.

    Args:
        model: its name, for the message.
        own: beginnings of the names that are the model's; a tensor of such a name must be wanted.

    Raises:
        UsageError: a tensor is missing, has another shape or type, or has no place in the model.
    """
    tensors, where = checkpoint.tensors, f"checkpoint {checkpoint.folder}"
    for name, want in wanted.items():
        if name in tensors and tensors[name].dtype not in want.dtypes:
            raise UsageError(
                f"{where}: {name} is {tensors[name].dtype}, and model {model} has it in "
                f"{' or '.join(want.dtypes)}; this is another quantisation's checkpoint"
            )
        if name in tensors and tensors[name].shape != want.shape:
            raise UsageError(
                f"{where}: {name} is {_shape(tensors[name].shape)}, and in model {model} "
                f"{_shape(want.shape)}; this is another model's checkpoint"
            )
    missing = [name for name in wanted if name not in tensors]
    extra = [name for name in tensors if name not in wanted and name.startswith(own)]
    for names, what in ((missing, "lacks"), (extra, f"has a tensor that model {model} has no place for:")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UsageError(f"{where} {what} {repr(names[0][:200])[1:-1]}{more}")


def check_config(folder: Path, config: MuseConfig) -> None:
    """Refuse a checkpoint whose ``config.json`` says that it is another model; without one, nothing is known.

    Raises:
        UsageError: a number differs, or the file is no JSON.
    """
    path = folder / "config.json"
    if not path.exists():
        return
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        said = said.get("text_config", said)
        theta = said.get("rope_parameters", {}).get("rope_theta", config.rope_theta)
    except (OSError, ValueError, AttributeError, RecursionError):
        raise UsageError(f"{path} cannot be read: it is no JSON object") from None
    ours = {
        field.name: getattr(config, field.name) for field in fields(config) if field.name not in _OWN_FIELDS
    }
    differs = next((name for name, value in ours.items() if said.get(name, value) != value), None)
    if differs is None and theta != config.rope_theta:
        differs, ours["rope_theta"], said = "rope_theta", config.rope_theta, {"rope_theta": theta}
    if differs is not None:
        raise UsageError(
            f"checkpoint {folder} is of another model: its {differs} is {str(said[differs])[:40]}, that of "
            f"model {config.name} {ours[differs]}"
        )


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
