"""How many bytes the jobs of a draft pass move on the CPU, where weights are plain rows. Needs no torch.

Counted as in ``musetrace.muse.job_bytes``: each matrix of a rank once, and messages to all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.job_bytes import JobBytes, LaunchBytes
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DRAFT_ROWS, DraftConfig

_BF16 = 2
_MOVING = "the context grows from step to step, and is not recorded"


@dataclass(frozen=True)
class DraftBytes:
    """A draft of ``target``, shared by ``tp`` ranks."""

    draft: DraftConfig
    target: MuseConfig
    tp: int

    def launches(self) -> tuple[LaunchBytes, ...]:
        """Those of ``draft_context``, ``draft_layer`` and ``draft_head``."""
        draft, tp = self.draft, self.tp
        last = draft.num_hidden_layers - 1
        keys = 2 * draft.num_key_value_heads // tp * draft.head_dim
        context = {
            "fc_load": self._matrix(draft.hidden_size, draft.feature_width // tp),
            "fc_send": self._sums,
            "context_load": self._matrix(draft.num_hidden_layers * keys, draft.hidden_size),
            "qkv_load": self._qkv,
        }
        layer = self._layer()
        found = [LaunchBytes("draft_context", None, context)]
        unknown = {"attention_load_window": _MOVING}
        if last:
            projecting = layer | {"qkv_load": self._qkv}
            found.append(LaunchBytes("draft_layer", tuple(range(last)), projecting, unknown))
        head = {"lm_head_load": self._matrix(self.target.vocab_size // tp, draft.hidden_size)}
        return (
            *found,
            LaunchBytes("draft_layer", (last,), layer, unknown),
            LaunchBytes("draft_head", None, head),
        )

    def _layer(self) -> dict[str, JobBytes]:
        draft, tp = self.draft, self.tp
        columns, inner = draft.num_attention_heads // tp * draft.head_dim, draft.intermediate_size // tp
        return {
            "attention_send": JobBytes.exact(DRAFT_ROWS * columns * _BF16),
            "o_proj_load": self._matrix(draft.hidden_size, columns),
            "o_proj_send": self._sums,
            "gate_up_load": self._matrix(2 * inner, draft.hidden_size),
            "gate_up_send": JobBytes.exact(DRAFT_ROWS * inner * _BF16),
            "down_load": self._matrix(draft.hidden_size, inner),
            "down_send": self._sums,
        }

    @property
    def _qkv(self) -> JobBytes:
        heads = (self.draft.num_attention_heads + 2 * self.draft.num_key_value_heads) // self.tp
        return self._matrix(heads * self.draft.head_dim, self.draft.hidden_size)

    @property
    def _sums(self) -> JobBytes:
        return JobBytes.exact(self.tp * DRAFT_ROWS * self.draft.hidden_size * _BF16)

    @staticmethod
    def _matrix(rows: int, k: int) -> JobBytes:
        return JobBytes.exact(rows * k * _BF16)
