"""A rank's share of the draft in GPU memory, as the draft kernel reads it (``csrc/megakernel/draft``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_weights import addresses, rope_table
from musetrace.muse.device import draft_shape_of
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.job_bytes import IN_FLIGHT_BYTES
from musetrace.muse.draft.sharding import RankDraftLayer, shard_draft
from musetrace.muse.draft.weights import DraftWeights
from musetrace.muse.packing import pack_bf16
from musetrace.muse.packing_layout import StageLayout, padded_width
from musetrace.muse.seeded_generator import seeded_generator

MATRICES = ("qkv", "o", "gate_up", "down")
VECTORS = ("input_norm", "mlp_norm", "q_norm", "k_norm")
GPU = torch.device("cuda")


class RankDrafts(Protocol):
    """Makes tensors in GPU memory by the kernel's names."""

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """A rank's layer: packed matrices uint8, or bf16 in place of them, and fp32 vectors."""

    def outer(self, rank: int) -> dict[str, Tensor]:
        """A rank's packed ``fc``, ``context_norm``, ``norm``, and the target's ``embedding`` bf16 [V, H]."""


@dataclass(frozen=True)
class WholeDraft:
    """Shares of weights that the host has whole.

    Attributes:
        embedding: bf16 [V, H] of the target, on the GPU; all ranks share it.
    """

    weights: DraftWeights
    target: MuseConfig
    tp: int
    embedding: Tensor

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """See :class:`RankDrafts`."""
        return upload_layer(shard_draft(self.weights, self.target, rank, self.tp).layers[layer], self._gpu)

    def outer(self, rank: int) -> dict[str, Tensor]:
        """See :class:`RankDrafts`."""
        share = shard_draft(self.weights, self.target, rank, self.tp)
        return {
            "fc": pack_matrix(padded_columns(share.fc), self._gpu),
            "context_norm": share.context_norm.to(self._gpu),
            "norm": share.norm.to(self._gpu),
            "embedding": self.embedding,
        }

    @property
    def _gpu(self) -> torch.device:
        return self.embedding.device


@dataclass(frozen=True)
class RandomDraft:
    """Ranks of a draft, random and seeded, made on the GPU in the kernel's order.

    Matrices are a rank's own part of the draft's, norms are the same on all ranks.

    Attributes:
        embedding: bf16 [V, H] of the target, on the GPU.
    """

    draft: DraftConfig
    tp: int
    seed: int
    embedding: Tensor

    def layer(self, rank: int, layer: int) -> dict[str, Tensor]:
        """See :class:`RankDrafts`."""
        draft = self.draft
        queries = draft.num_attention_heads // self.tp * draft.head_dim
        keys = draft.num_key_value_heads // self.tp * draft.head_dim
        hidden, inner = draft.hidden_size, draft.intermediate_size // self.tp
        shapes = {
            "qkv": (queries + 2 * keys, hidden),
            "o": (hidden, queries),
            "gate_up": (2 * inner, hidden),
            "down": (hidden, inner),
        }
        own, shared = self._generator("layer", layer, rank), self._generator("layer", layer)
        tensors = {name: self._bf16(own, *shape) for name, shape in shapes.items()}
        widths = {
            "input_norm": hidden,
            "mlp_norm": hidden,
            "q_norm": draft.head_dim,
            "k_norm": draft.head_dim,
        }
        return tensors | {name: self._norm(shared, width) for name, width in widths.items()}

    def outer(self, rank: int) -> dict[str, Tensor]:
        """See :class:`RankDrafts`."""
        draft, shared = self.draft, self._generator("outer")
        columns = padded_width(draft.feature_width // self.tp)
        return {
            "fc": self._bf16(self._generator("outer", rank), draft.hidden_size, columns),
            "context_norm": self._norm(shared, draft.hidden_size),
            "norm": self._norm(shared, draft.hidden_size),
            "embedding": self.embedding,
        }

    def _generator(self, *thing: int | str) -> torch.Generator:
        return seeded_generator(self.embedding.device, self.seed, "draft", *thing)

    def _normal(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=self.embedding.device)

    def _bf16(self, generator: torch.Generator, rows: int, k: int) -> Tensor:
        """Numbers of one distribution: in which place of the packed matrix they stand is all one."""
        values: Tensor = (self._normal(generator, rows, k) * k**-0.5).bfloat16()
        return values

    def _norm(self, generator: torch.Generator, width: int) -> Tensor:
        return 1 + 0.1 * self._normal(generator, width)


def random_embedding(target: MuseConfig, seed: int, gpu: torch.device) -> Tensor:
    """A target's embedding table, bf16 [V, H]: random and seeded."""
    generator = seeded_generator(gpu, seed, "embedding")
    table = torch.empty(target.vocab_size, target.hidden_size, dtype=torch.bfloat16, device=gpu)
    return table.normal_(generator=generator)


def add_draft(
    device: Any,
    draft: DraftConfig,
    tp: int,
    capacity: int,
    weights: RankDrafts,
    in_flight_bytes: int = IN_FLIGHT_BYTES,
    gpu: torch.device = GPU,
    first_rank: int = 0,
) -> list[Tensor]:
    """Give the compiled device (``MuseDevice``) a draft with all of its weights.

    Args:
        tp: ranks that share the model.
        capacity: of the caches, as the device has it.
        in_flight_bytes: of weights that an SM has on their way at most, and a stage more.
        first_rank: of the ranks that the device holds, among all of the model.

    Returns:
        All that must live as long as the device.

    Raises:
        ValueError: the device cannot run a draft of these sizes; the message says why.
    """
    device.add_draft(draft_shape_of(draft, tp), in_flight_bytes)
    kept = [rope_table(draft, capacity, gpu)]
    device.set_draft_rope(kept[0].data_ptr())
    for rank in range(device.ranks):
        outer = weights.outer(first_rank + rank)
        device.set_draft(rank, addresses(outer))
        kept += outer.values()
        for layer in range(draft.num_hidden_layers):
            tensors = weights.layer(first_rank + rank, layer)
            device.set_draft_layer(rank, layer, addresses(tensors))
            kept += tensors.values()
    # They were made in torch's stream and are read in another.
    torch.cuda.synchronize()
    return kept


def upload_layer(layer: RankDraftLayer, gpu: torch.device) -> dict[str, Tensor]:
    """Pack a layer and copy it to the GPU: matrices uint8 by the kernel's names, vectors fp32.

    Raises:
        UsageError: a size does not fit the tiles.
    """
    tensors = {name: pack_matrix(getattr(layer, name), gpu) for name in MATRICES}
    return tensors | {name: getattr(layer, name).to(gpu).contiguous() for name in VECTORS}


def pack_matrix(matrix: Tensor, gpu: torch.device) -> Tensor:
    """Pack a bf16 matrix [rows, K] and copy it to the GPU, uint8."""
    bits = matrix.contiguous().view(torch.int16).numpy().view(np.uint16)
    return torch.from_numpy(pack_bf16(bits)).to(gpu)


def padded_columns(matrix: Tensor) -> Tensor:
    """Bf16 [rows, K] with zero columns behind its own, as ``fc`` is packed."""
    missing = padded_width(matrix.shape[1]) - matrix.shape[1]
    return torch.nn.functional.pad(matrix, (0, missing)) if missing else matrix


def draft_bytes(draft: DraftConfig, target: MuseConfig, tp: int) -> int:
    """Bytes of a rank's draft with the target's embedding, packed."""
    hidden, inner = draft.hidden_size, draft.intermediate_size // tp
    queries = draft.num_attention_heads // tp * draft.head_dim
    keys = draft.num_key_value_heads // tp * draft.head_dim
    shapes = ((queries + 2 * keys, hidden), (hidden, queries), (2 * inner, hidden), (hidden, inner))
    layer = sum(StageLayout("bf16", rows, k).nbytes for rows, k in shapes)
    fc = StageLayout("bf16", hidden, padded_width(draft.feature_width // tp)).nbytes
    vectors = 4 * (draft.num_hidden_layers * (2 * hidden + 2 * draft.head_dim) + 2 * hidden)
    return draft.num_hidden_layers * layer + fc + vectors + 2 * target.vocab_size * hidden
