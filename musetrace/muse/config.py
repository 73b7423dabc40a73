"""Dimensions and constants of a Muse Spark Open model. Needs no torch.

Field names are those of the public ``MuseSparkTextConfig`` (``transformers`` >= 5.24, ``models/muse_spark``),
except ``rope_theta``, which stands there inside ``rope_parameters``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from musetrace.errors import UsageError

LayerKind = Literal["sliding", "global"]
ExpertFormat = Literal["bf16", "nvfp4"]

# Every fourth layer, counted backwards from the last, sees the whole context and has no rotary embedding.
GLOBAL_LAYER_PERIOD = 4

# K of one NVFP4 scale and of one m16n8k16 matrix instruction; a rank's share of a width is a multiple of it.
WIDTH_MULTIPLE = 16

# Positions in front of those that a slice's step verifies, where nobody says.
DEFAULT_CONTEXT = 4096

# Above any real dimension, and small enough that a product of two of them fits 64 bits.
MAX_DIMENSION = 2**31 - 1
MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class MuseConfig:
    """A Muse Spark Open decoder; the defaults are the numbers of the public 816B-A42B checkpoint.

    ``slice_tp``: None for a model that is held whole (all ranks of any tensor-parallel degree). A number says
    that only one rank of that degree is held; what its peers would send is played back by the rank itself, so
    times of such a run have no real cross-GPU skew, and its outputs are not those of the whole model.

    Raises:
        UsageError: a dimension is not a positive number, or two of them do not fit each other.
    """

    name: str = "muse-spark-open"
    vocab_size: int = 202_048
    hidden_size: int = 8192
    num_hidden_layers: int = 62
    num_attention_heads: int = 128
    num_key_value_heads: int = 16
    head_dim: int = 64
    moe_hidden_size: int = 4096
    moe_intermediate_size: int = 4096
    num_local_experts: int = 256
    num_experts_per_tok: int = 8
    max_position_embeddings: int = 1_048_576
    sliding_window: int = 2048
    rms_norm_eps: float = 1e-5
    post_norm_eps: float = 1e-8
    qk_scale_factor: float = 5.4730064863875
    output_multiplier: float = 0.1767766952966369
    final_logit_softcapping: float = 20.0
    rope_theta: float = 500_000.0
    residual_gate_temperature: float = 0.3
    routed_scaling_factor: float = 1.0
    slice_tp: int | None = None

    def __post_init__(self) -> None:
        """Refuse dimensions that no model can have."""
        for field, value in asdict(self).items():
            self._check_field(field, value)
        self._require_multiple("num_attention_heads", self.num_attention_heads, self.num_key_value_heads)
        self._require_multiple("head_dim", self.head_dim, 2)
        self._require_multiple("moe_hidden_size", self.moe_hidden_size, WIDTH_MULTIPLE)
        self._require_multiple("moe_intermediate_size", self.moe_intermediate_size, WIDTH_MULTIPLE)
        if self.num_experts_per_tok > self.num_local_experts:
            raise UsageError(
                f"model {self.name}: num_experts_per_tok {self.num_experts_per_tok} is more than its "
                f"{self.num_local_experts} experts; lower it"
            )

    def is_global(self, layer: int) -> bool:
        """Whether the layer attends to the whole context (and has no rotary embedding)."""
        self._check_layer(layer)
        return (self.num_hidden_layers - 1 - layer) % GLOBAL_LAYER_PERIOD == 0

    def layer_kind(self, layer: int) -> LayerKind:
        """``global``, or ``sliding``: attention within ``sliding_window``, with rotary embedding."""
        return "global" if self.is_global(layer) else "sliding"

    def expert_format(self, layer: int) -> ExpertFormat:
        """How the experts of a layer are kept: the first and the last layer stay in bf16."""
        self._check_layer(layer)
        return "bf16" if layer in (0, self.num_hidden_layers - 1) else "nvfp4"

    def validate(self, tp: int) -> None:
        """Check that ``tp`` ranks can share the model evenly.

        Raises:
            UsageError: they cannot; the message names the dimension.
        """
        if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
            raise UsageError(f"tensor-parallel degree {tp!r} is not a positive whole number")
        if self.slice_tp is not None and tp != self.slice_tp:
            raise UsageError(
                f"model {self.name} is one rank of tensor-parallel degree {self.slice_tp}, not of {tp}; "
                f"use --tp {self.slice_tp} or a whole model"
            )
        shared = ("num_attention_heads", "num_key_value_heads", "num_local_experts", "vocab_size")
        for field in shared:
            self._require_share(field, tp, 1)
        for field in ("moe_hidden_size", "moe_intermediate_size"):
            self._require_share(field, tp, WIDTH_MULTIPLE)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MuseConfig:
        """Inverse of :meth:`to_json`.

        Raises:
            UsageError: a field is missing or unknown, or has a value that no model can have.
        """
        if not isinstance(data, Mapping):
            raise UsageError(f"a model configuration must be a JSON object, not {type(data).__name__}")
        known = {field.name for field in fields(cls)}
        wrong = sorted({str(key) for key in data} ^ known)
        if wrong:
            raise UsageError(f"model configuration has missing or unknown fields: {', '.join(wrong)[:200]}")
        return cls(**data)

    def _check_field(self, field: str, value: object) -> None:
        if field == "name":
            if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
                raise UsageError(f"a model needs a name of 1 to {MAX_NAME_LENGTH} characters")
        elif field in _FLOAT_FIELDS:
            if not _is_positive_number(value):
                raise UsageError(f"model configuration: {field} = {_shown(value)} is not a positive number")
        elif not (field == "slice_tp" and value is None) and not _is_dimension(value):
            raise UsageError(
                f"model configuration: {field} = {_shown(value)} is not a whole number "
                f"of 1 to {MAX_DIMENSION}"
            )

    def _check_layer(self, layer: int) -> None:
        if not 0 <= layer < self.num_hidden_layers:
            raise UsageError(
                f"model {self.name} has layers 0 to {self.num_hidden_layers - 1}; there is no {layer}"
            )

    def _require_multiple(self, field: str, value: int, divisor: int) -> None:
        if value % divisor:
            raise UsageError(f"model {self.name}: {field} {value} is not a multiple of {divisor}")

    def _require_share(self, field: str, tp: int, multiple: int) -> None:
        value = int(getattr(self, field))
        if value % tp or value // tp % multiple:
            suffix = f" into multiples of {multiple}" if multiple > 1 else ""
            raise UsageError(
                f"model {self.name}: {field} {value} cannot be shared by {tp} ranks{suffix}; use another --tp"
            )


_FLOAT_FIELDS = frozenset(field.name for field in fields(MuseConfig) if field.type == "float")


def _is_positive_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_dimension(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DIMENSION


def _shown(value: object) -> str:
    return repr(value)[:60]


PRESETS: dict[str, MuseConfig] = {
    # Every feature of the model at a size for a CPU. The public rule of output_multiplier holds:
    # 1 / sqrt(hidden_size / 256).
    "mini": MuseConfig(
        name="mini",
        vocab_size=1024,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        moe_hidden_size=256,
        moe_intermediate_size=256,
        num_local_experts=16,
        num_experts_per_tok=4,
        max_position_embeddings=512,
        sliding_window=64,
        output_multiplier=math.sqrt(0.5),
    ),
    "muse-spark-open": MuseConfig(),
    # The same model, of which one rank of eight is held (65.7 GB: fits one H200). See MuseConfig.slice_tp.
    "muse-spark-open-tp8-slice": MuseConfig(name="muse-spark-open-tp8-slice", slice_tp=8),
}


def preset(name: str) -> MuseConfig:
    """The configuration of a known name.

    Raises:
        UsageError: there is none; the message lists the names.
    """
    if name not in PRESETS:
        raise UsageError(f"no model is called {name!r}; choose one of: {', '.join(PRESETS)}")
    return PRESETS[name]
