"""Dimensions of the draft models. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from musetrace.errors import UsageError
from musetrace.muse.config import MAX_DIMENSION, WIDTH_MULTIPLE, MuseConfig

# Rows of a draft pass: the last known token and 15 masks in its wake.
DRAFT_ROWS = 16


@dataclass(frozen=True)
class DraftConfig:
    """A draft for one target model; the defaults are the numbers of the public drafts of Muse Spark Open.

    Names are those of ``Qwen3Config`` and of the public ``dflash_config``. ``hidden_size``, the vocabulary
    and the number of positions are the target's.

    Attributes:
        target_layer_ids: the residual stream behind each of these target layers is a part of the context, in
            this order.
        mask_token_id: the token that stands for a position to be guessed.
        sliding_window: a query at position p sees keys at positions above ``p - sliding_window``.

    Raises:
        UsageError: a dimension is not a positive number, or two of them do not fit each other.
    """

    name: str = "muse-spark-open-draft"
    hidden_size: int = 8192
    num_hidden_layers: int = 5
    num_attention_heads: int = 64
    num_key_value_heads: int = 8
    head_dim: int = 128
    intermediate_size: int = 16_384
    sliding_window: int = 2048
    max_position_embeddings: int = 1_048_576
    rms_norm_eps: float = 1e-6
    rope_theta: float = 500_000.0
    target_layer_ids: tuple[int, ...] = (1, 16, 30, 44, 59)
    mask_token_id: int = 202_047

    def __post_init__(self) -> None:
        """Refuse dimensions that no draft can have."""
        for field in _DIMENSIONS:
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_DIMENSION:
                raise UsageError(
                    f"draft {self.name}: {field} = {value!r} is not a whole number of 1 to {MAX_DIMENSION}"
                )
        self._require_multiple("num_attention_heads", self.num_attention_heads, self.num_key_value_heads)
        for field in ("head_dim", "hidden_size", "intermediate_size"):
            self._require_multiple(field, getattr(self, field), WIDTH_MULTIPLE)
        if self.sliding_window < DRAFT_ROWS:
            raise UsageError(
                f"draft {self.name}: sliding_window {self.sliding_window} is less than the {DRAFT_ROWS} rows "
                "of a pass; raise it"
            )

    @property
    def feature_width(self) -> int:
        """Columns of the context's input: all chosen layers side by side."""
        return len(self.target_layer_ids) * self.hidden_size

    def validate(self, target: MuseConfig, tp: int) -> None:
        """Check that the draft belongs to a target, and that ``tp`` ranks can share it evenly.

        Raises:
            UsageError: it does not, or they cannot; the message names the dimension.
        """
        layers = self.target_layer_ids
        if not layers or list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1]:
            raise UsageError(f"draft {self.name}: target_layer_ids {layers} do not ascend from 0 on")
        if layers[-1] >= target.num_hidden_layers:
            raise UsageError(
                f"draft {self.name} wants layer {layers[-1]} of model {target.name}, which has layers 0 to "
                f"{target.num_hidden_layers - 1}"
            )
        if self.hidden_size != target.hidden_size:
            raise UsageError(
                f"draft {self.name} has hidden_size {self.hidden_size}, model {target.name} "
                f"{target.hidden_size}: they do not belong together"
            )
        if not 0 <= self.mask_token_id < target.vocab_size:
            raise UsageError(
                f"draft {self.name}: mask_token_id {self.mask_token_id} is outside the vocabulary of model "
                f"{target.name}, 0 to {target.vocab_size - 1}"
            )
        for field, multiple in (
            ("num_attention_heads", 1),
            ("num_key_value_heads", 1),
            ("intermediate_size", WIDTH_MULTIPLE),
            ("feature_width", WIDTH_MULTIPLE),
        ):
            value = int(getattr(self, field))
            if value % tp or value // tp % multiple:
                raise UsageError(
                    f"draft {self.name}: {field} {value} cannot be shared by {tp} ranks; use another --tp"
                )

    def within(self, layers: int) -> DraftConfig:
        """The same draft with a context from the first ``layers`` layers of its target alone, spread evenly.

        Raises:
            UsageError: there are fewer layers than the draft takes.
        """
        wanted = len(self.target_layer_ids)
        if layers < wanted:
            raise UsageError(
                f"whole steps need at least {wanted} layers, for draft {self.name} takes what is behind so "
                f"many: use --layers {wanted} or more, or leave guesses out"
            )
        return replace(self, target_layer_ids=tuple(at * layers // wanted for at in range(wanted)))

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return asdict(self) | {"target_layer_ids": list(self.target_layer_ids)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DraftConfig:
        """Inverse of :meth:`to_json`.

        Raises:
            UsageError: a field is missing or unknown, or has a value that no draft can have.
        """
        known = {field.name for field in fields(cls)}
        wrong = sorted({str(key) for key in data} ^ known)
        if wrong:
            raise UsageError(f"draft configuration has missing or unknown fields: {', '.join(wrong)[:200]}")
        return cls(**{**data, "target_layer_ids": tuple(data["target_layer_ids"])})

    def _require_multiple(self, field: str, value: int, divisor: int) -> None:
        if value % divisor:
            raise UsageError(f"draft {self.name}: {field} {value} is not a multiple of {divisor}")


_DIMENSIONS = tuple(
    field.name for field in fields(DraftConfig) if field.type == "int" and field.name != "mask_token_id"
)

# By the target's name. Mini's draft has the heads' width of the public drafts.
DRAFTS: dict[str, DraftConfig] = {
    "mini": DraftConfig(
        name="mini-draft",
        hidden_size=512,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=512,
        sliding_window=64,
        max_position_embeddings=512,
        target_layer_ids=(1, 2, 4, 5, 6),
        mask_token_id=1023,
    ),
    "muse-spark-open": DraftConfig(),
    "muse-spark-open-tp8-slice": DraftConfig(),
}


def draft_of(target: MuseConfig) -> DraftConfig:
    """The draft of a target model.

    Raises:
        UsageError: there is none.
    """
    if target.name not in DRAFTS:
        raise UsageError(f"there is no draft for model {target.name}; models with one: {', '.join(DRAFTS)}")
    return DRAFTS[target.name]
