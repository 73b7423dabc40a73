"""How many bytes the jobs of a draft pass move. Needs no torch.

Counted as in ``musetrace.muse.job_bytes``: each matrix of a rank once, as the device has it packed, and
messages to all ranks. What the blocks of a rank give each other through L2 on a GPU, heads and features, is
left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.job_bytes import JobBytes, LaunchBytes
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DRAFT_ROWS, DraftConfig
from musetrace.muse.packing_layout import StageLayout, padded_width

_BF16 = 2
# Of weights that an SM has on their way at most, and a stage more: 48 KB give a stream on an H200 all its
# bandwidth, but with less the hops between blocks are shorter.
IN_FLIGHT_BYTES = 32_768
_MOVING = "the context grows from step to step, and is not recorded"
_NOT_COUNTED = "what a draft's attention reads of its cache is not counted"
# Jobs whose names are the target's too, in a table that has both (``cuda_tables``).
_SHARED_NAMES = ("qkv_load", "o_proj_load", "o_proj_send", "attention_compute")


@dataclass(frozen=True)
class DraftBytes:
    """A draft of ``target``, shared by ``tp`` ranks.

    Attributes:
        blocks: of a rank, on a GPU, which packs weights; None for the CPU, where they are plain rows.
        head_late: bytes of the target's lm_head that may be on their way when its load's span ends.
    """

    draft: DraftConfig
    target: MuseConfig
    tp: int
    blocks: int | None = None
    head_late: int = 0

    def launches(self) -> tuple[LaunchBytes, ...]:
        """Those of ``draft_context``, ``draft_layer`` and ``draft_head``."""
        draft, tp = self.draft, self.tp
        last = draft.num_hidden_layers - 1
        keys = 2 * draft.num_key_value_heads // tp * draft.head_dim
        context = {
            "fc_load": self._matrix(draft.hidden_size, self._fc_width),
            "fc_send": self._sums,
            "context_load": self._matrix(draft.num_hidden_layers * keys, draft.hidden_size),
            "qkv_load": self._qkv,
        }
        layer = self._layer()
        found = [self._launch("draft_context", None, context)]
        if last:
            projecting = layer | {"qkv_load": self._qkv}
            found.append(self._launch("draft_layer", tuple(range(last)), projecting))
        lm_head = self._nbytes(self.target.vocab_size // tp, draft.hidden_size)
        head = {"lm_head_load": JobBytes.exact(lm_head, self.head_late)}
        return (
            *found,
            self._launch("draft_layer", (last,), layer),
            LaunchBytes("draft_head", None, head),
        )

    def _launch(self, kind: str, layers: tuple[int, ...] | None, jobs: dict[str, JobBytes]) -> LaunchBytes:
        """A launch of the draft's own kernel, its jobs by their names in the device's table."""
        unknown = {"attention_load_window": _MOVING} if kind == "draft_layer" else {}
        if self.blocks is None:
            return LaunchBytes(kind, layers, jobs, unknown)
        unknown = {_in_table("attention_compute"): _NOT_COUNTED} if unknown else {}
        return LaunchBytes(kind, layers, {_in_table(name): of for name, of in jobs.items()}, unknown)

    def _layer(self) -> dict[str, JobBytes]:
        draft, tp = self.draft, self.tp
        columns, inner = draft.num_attention_heads // tp * draft.head_dim, draft.intermediate_size // tp
        jobs = {
            "o_proj_load": self._matrix(draft.hidden_size, columns),
            "o_proj_send": self._sums,
            "gate_up_load": self._matrix(2 * inner, draft.hidden_size),
            "down_load": self._matrix(draft.hidden_size, inner),
            "down_send": self._sums,
        }
        if self.blocks is None:
            jobs["attention_send"] = JobBytes.exact(DRAFT_ROWS * columns * _BF16)
            jobs["gate_up_send"] = JobBytes.exact(DRAFT_ROWS * inner * _BF16)
        return jobs

    @property
    def _fc_width(self) -> int:
        columns = self.draft.feature_width // self.tp
        return columns if self.blocks is None else padded_width(columns)

    @property
    def _qkv(self) -> JobBytes:
        heads = (self.draft.num_attention_heads + 2 * self.draft.num_key_value_heads) // self.tp
        return self._matrix(heads * self.draft.head_dim, self.draft.hidden_size)

    @property
    def _sums(self) -> JobBytes:
        number = self.tp * DRAFT_ROWS * self.draft.hidden_size * _BF16
        return JobBytes.exact(number, 0 if self.blocks is None else number)

    def _matrix(self, rows: int, k: int) -> JobBytes:
        late = 0
        if self.blocks is not None:
            late = self.blocks * (IN_FLIGHT_BYTES + StageLayout("bf16", rows, k).stage_bytes)
        return JobBytes.exact(self._nbytes(rows, k), late)

    def _nbytes(self, rows: int, k: int) -> int:
        return rows * k * _BF16 if self.blocks is None else StageLayout("bf16", rows, k).nbytes


def _in_table(job: str) -> str:
    """The name of a draft's job in the table of a GPU's step."""
    return f"draft.{job}" if job in _SHARED_NAMES else job
