"""How many bytes of GPU memory a model takes, by arithmetic, before any is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_draft import draft_bytes
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.packing_layout import StageLayout

_FP32, _BF16 = 4, 2
# Exchange buffers, activations, stamps, and what packing or random numbers need while weights are made.
_WORKING_BYTES = 4 << 30


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of all ranks held on one GPU, with ``layers`` layers of weights each; ``drafts``: and a draft.

    Above 1, ``sequences`` have a cache each.
    """

    layers: int
    weight_bytes: int
    kv_bytes: int
    working_bytes: int = _WORKING_BYTES
    drafts: bool = False
    sequences: int = 1

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.weight_bytes + self.kv_bytes + self.working_bytes


def memory_need(
    config: MuseConfig, tp: int, ranks: int, layers: int, capacity: int, draft: DraftConfig | None = None
) -> MemoryNeed:
    """What ``ranks`` of ``tp`` ranks take with the first ``layers`` layers and ``capacity`` positions.

    A draft comes with the embedding table of its target, which all ranks share.

    Raises:
        UsageError: a size does not fit the tiles.
    """
    weights = sum(layer_bytes(config, tp, layer) for layer in range(layers)) + head_bytes(config, tp)
    rope = capacity * config.head_dim * _FP32
    kv_width = layers * (config.num_key_value_heads // tp) * config.head_dim
    weight_bytes = ranks * weights + rope
    if draft is not None:
        embedding = config.vocab_size * config.hidden_size * _BF16
        weight_bytes += ranks * (draft_bytes(draft, config, tp) - embedding) + embedding
        weight_bytes += capacity * draft.head_dim * _FP32
        kv_width += draft.num_hidden_layers * (draft.num_key_value_heads // tp) * draft.head_dim
    return MemoryNeed(
        layers=layers,
        weight_bytes=weight_bytes,
        kv_bytes=ranks * 2 * kv_width * capacity * _BF16,
        drafts=draft is not None,
    )


def layer_bytes(config: MuseConfig, tp: int, layer: int) -> int:
    """Bytes of a rank's layer, packed (``cuda_weights.upload_layer``)."""
    hidden, moe, experts = config.hidden_size, config.moe_hidden_size, config.num_local_experts
    heads = (config.num_attention_heads + config.num_key_value_heads) // tp
    columns = config.num_attention_heads // tp * config.head_dim
    dense = (
        (2 * heads * config.head_dim, hidden),
        (hidden, columns),
        (moe // tp, hidden),
        (hidden, moe // tp),
    )
    inner = config.moe_intermediate_size
    form = config.expert_format(layer)
    stacks = StageLayout(form, 2 * inner // tp, moe).nbytes + StageLayout(form, moe // tp, inner).nbytes
    # Norms and gates of the residual stream, norms of the experts, and per expert a bias and two factors.
    vectors = 7 * hidden + 2 * moe + 3 * experts
    return (
        sum(StageLayout("bf16", rows, k).nbytes for rows, k in dense)
        + experts * stacks
        + _FP32 * (experts // tp * hidden + vectors)
    )


def head_bytes(config: MuseConfig, tp: int) -> int:
    """Bytes of a rank's head, packed (``cuda_weights.upload_head``)."""
    lm_head = StageLayout("bf16", config.vocab_size // tp, config.hidden_size).nbytes
    return lm_head + _FP32 * config.hidden_size
