"""How many bytes the built-in model's jobs move, worked out from its shapes. Needs no torch.

Counted is what a rank has to move through its memory, or to its peers, in one launch:

* weights as the device has them packed (``packing_layout``; on the CPU plain rows), each matrix once;
* of the KV cache the rows that attention takes, keys and values, whole runs of 32 on the GPU. Each row counts
  once, although every query head of a group reads it: the others' reads are served by L2;
* messages: what all blocks send to all ranks, the rank itself included (it has slots of its own);
* an expert counts for each of its work items: an expert with more than eight of the sixteen tokens is two.

On the GPU a load's span ends when its last copy is issued, and a send's when its last store is: so much as
the loader may have on its way in each block, or all that is sent, may arrive later (``JobBytes.late``).

What blocks of a rank give each other through L2 (rows of tokens, partial sums) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from musetrace.errors import UsageError
from musetrace.job_bytes import JobBytes, LaunchBytes, RunBytes
from musetrace.muse.config import DEFAULT_CONTEXT, ExpertFormat, MuseConfig
from musetrace.muse.device import TOKENS
from musetrace.muse.draft.config import DraftConfig
from musetrace.muse.draft.job_bytes import DraftBytes
from musetrace.muse.expert_draws import Draws
from musetrace.muse.packing_layout import MAX_STAGE_K, StageLayout

_BF16, _FP32 = 2, 4
_KEY_RUN = 32  # keys that a warp of the GPU takes at a time
_EXPERT_TILE_ROWS = 64
# What a block's loader may have on its way: a stage beyond this limit, of muse_device.h; for bf16 experts and
# lm_head of gpu_ring.cuh.
IN_FLIGHT_BYTES, STREAM_IN_FLIGHT_BYTES = 18_432, 48 * 1024
_CODES_OF_BYTE, _CODES_OF_SCALE = 2, 16
_NOT_KNOWN = "which experts the router chose is not recorded"
_MOVING = "the context grows from step to step, and is not recorded"

Bytes = dict[str, JobBytes]


@dataclass(frozen=True)
class ModelBytes:
    """A model as it runs.

    Attributes:
        config: the model.
        tp: ranks that share it.
        layers: how many of its layers run, from the first.
        blocks: of a rank.
        packed: whether weights are packed for the GPU; else plain rows, as on the CPU.
        stop4: ``sumsq`` or ``gather``, see ``CudaDevice``; the CPU gathers.
        position: of the first token in every step; None where steps differ.
        pool: experts that the router draws from as if at random; None for a router that is not like that.
        draft: of whole steps; None for verify passes alone.
        head_in_flight_bytes: what a block of lm_head may have on its way.
    """

    config: MuseConfig
    tp: int
    layers: int
    blocks: int
    packed: bool
    stop4: str = "sumsq"
    position: int | None = None
    pool: int | None = None
    draft: DraftConfig | None = None
    head_in_flight_bytes: int = STREAM_IN_FLIGHT_BYTES

    def launches(self) -> tuple[LaunchBytes, ...]:
        """The bytes of every kind of launch; layers of a kind that move the same stand together."""
        entry = LaunchBytes("entry", None, {"qkv_load": self._exact(*self._qkv)})
        head = LaunchBytes(
            "head", None, {"lm_head_load": self._exact(*self._lm_head, self.head_in_flight_bytes)}
        )
        found: list[LaunchBytes] = []
        for layer in range(self.layers):
            one = self.layer(layer)
            same = next((at for at, of in enumerate(found) if _alike(of, one)), None)
            if same is None:
                found.append(one)
            else:
                found[same] = LaunchBytes(
                    one.kind, (*(found[same].layers or ()), layer), one.jobs, one.unknown
                )
        guessing: tuple[LaunchBytes, ...] = ()
        if self.draft is not None:
            head_late = self._late(self.head_in_flight_bytes, StageLayout("bf16", *self._lm_head).stage_bytes)
            blocks = self.blocks if self.packed else None
            guessing = DraftBytes(self.draft, self.config, self.tp, blocks, head_late).launches()
        return (*guessing, entry, *found, head)

    def layer(self, layer: int) -> LaunchBytes:
        """The bytes of one layer's launch, which ends with the projection of the next one that runs."""
        unknown: dict[str, str] = {}
        jobs = self._dense() | self._messages()
        if layer + 1 < self.layers:
            jobs["qkv_load"] = self._exact(*self._qkv)
        experts = self._experts(self.config.expert_format(layer))
        jobs |= experts
        unknown |= {name: _NOT_KNOWN for name in ("gemm1_load", "gemm2_load") if name not in experts}
        if self.packed and self.position is not None:
            jobs["attention_compute"] = JobBytes.exact(self._kv_bytes(layer, self.position))
        else:
            names = ("attention_load_k", "attention_load_v", "attention_load_window")
            unknown |= dict.fromkeys(("attention_compute",) if self.packed else names, _MOVING)
        return LaunchBytes(self.config.layer_kind(layer), (layer,), jobs, unknown)

    def _dense(self) -> Bytes:
        config, tp = self.config, self.tp
        hidden, pooled = config.hidden_size, config.moe_hidden_size // tp
        columns = config.num_attention_heads // tp * config.head_dim
        return {
            "o_proj_load": self._exact(hidden, columns),
            "pooler_load": self._exact(pooled, hidden),
            "router_load": JobBytes.exact(
                config.num_local_experts // tp * hidden * _FP32, self._late(IN_FLIGHT_BYTES, 4 * MAX_STAGE_K)
            ),
            "unpooler_load": self._exact(hidden, pooled),
        }

    def _messages(self) -> Bytes:
        config, tp = self.config, self.tp
        pooled, pairs = config.moe_hidden_size // tp, TOKENS * config.num_experts_per_tok
        logits = TOKENS * config.num_local_experts // tp * _FP32
        features = pairs * config.moe_intermediate_size // tp * _BF16
        outputs = pairs * pooled * _BF16
        if self.packed and self.stop4 == "sumsq":
            squares = pairs * (pooled // _EXPERT_TILE_ROWS) * _FP32
            gemm2 = outputs + tp * squares
        else:
            gemm2 = tp * outputs
        sums = tp * TOKENS * config.hidden_size * _BF16
        sent = {
            "o_proj_send": sums,
            "router_send": tp * (TOKENS * pooled * _BF16 + logits),
            "gemm1_send": tp * features,
            "gemm2_send": gemm2,
            "unpooler_send": sums,
        }
        if not self.packed:
            sent["attention_send"] = TOKENS * config.num_attention_heads // tp * config.head_dim * _BF16
        return {name: JobBytes.exact(number, number if self.packed else 0) for name, number in sent.items()}

    def _experts(self, form: ExpertFormat) -> Bytes:
        if self.pool is None:
            return {}
        config = self.config
        draws = Draws(self.pool, TOKENS, config.num_experts_per_tok)
        items, low, high = draws.items, *draws.distinct_range
        basis = (
            f"{TOKENS} tokens that each take {config.num_experts_per_tok} of {self.pool} experts at random: "
            f"{low} to {high} work items in 99 % of launches"
        )
        rows, inner = config.moe_intermediate_size // self.tp, config.moe_intermediate_size
        shapes = {
            "gemm1_load": (2 * rows, config.moe_hidden_size),
            "gemm2_load": (config.moe_hidden_size // self.tp, inner),
        }
        limit = STREAM_IN_FLIGHT_BYTES if form == "bf16" else IN_FLIGHT_BYTES
        found = {}
        for name, (of_rows, k) in shapes.items():
            one = self._nbytes(form, of_rows, k)
            late = min(self._late(limit, StageLayout(form, of_rows, k).stage_bytes), low * one)
            found[name] = JobBytes(round(items * one), low * one, high * one, late, basis)
        return found

    def _late(self, limit: int, stage_bytes: int) -> int:
        """What may be on its way in all blocks at once."""
        return self.blocks * (limit + stage_bytes) if self.packed else 0

    def _kv_bytes(self, layer: int, position: int) -> int:
        config, end = self.config, position + TOKENS
        reach = end if config.is_global(layer) else config.sliding_window
        first = (position + 1 - reach) // _KEY_RUN if position + 1 > reach else 0
        rows = (-(-end // _KEY_RUN) - first) * _KEY_RUN
        return 2 * config.num_key_value_heads // self.tp * rows * config.head_dim * _BF16

    @property
    def _qkv(self) -> tuple[int, int]:
        heads = (self.config.num_attention_heads + self.config.num_key_value_heads) // self.tp
        return 2 * heads * self.config.head_dim, self.config.hidden_size

    @property
    def _lm_head(self) -> tuple[int, int]:
        return self.config.vocab_size // self.tp, self.config.hidden_size

    def _exact(self, rows: int, k: int, in_flight_bytes: int = IN_FLIGHT_BYTES) -> JobBytes:
        layout = StageLayout("bf16", rows, k)
        return JobBytes.exact(self._nbytes("bf16", rows, k), self._late(in_flight_bytes, layout.stage_bytes))

    def _nbytes(self, form: ExpertFormat, rows: int, k: int) -> int:
        if self.packed:
            return StageLayout(form, rows, k).nbytes
        return rows * (k * _BF16 if form == "bf16" else k // _CODES_OF_BYTE + k // _CODES_OF_SCALE)


def _alike(one: LaunchBytes, other: LaunchBytes) -> bool:
    return (one.kind, one.jobs, one.unknown) == (other.kind, other.jobs, other.unknown)


def bytes_of_older_run(manifest: Mapping[str, Any]) -> RunBytes:
    """The same for a run of the built-in model that was recorded before runs kept their bytes.

    They are worked out from the model that the manifest describes. The position of a slice's steps is that of
    the command line, ``--context`` or its default. Gives a note for a run that describes no such model.
    """
    model, build, device = (manifest.get(name) or {} for name in ("model", "build", "device"))
    names = MuseConfig.__dataclass_fields__
    try:
        config = MuseConfig.from_json({name: model[name] for name in names})
        config.validate(build["tp"])
        packed = device["kind"] == "cuda"
        of = ModelBytes(
            config=config,
            tp=build["tp"],
            layers=int(model.get("layers_run", config.num_hidden_layers)),
            blocks=max(int(entry["blocks"]) for entry in manifest["ranks"]),
            packed=packed,
            stop4=str(build.get("stop4", "sumsq")),
            position=_position(config, manifest.get("command") or []),
            pool=model.get("expert_pool"),
            head_in_flight_bytes=IN_FLIGHT_BYTES,  # as all products had then
        )
        launches = of.launches()
    except (KeyError, TypeError, ValueError, UsageError):
        return RunBytes(note="the run neither says how many bytes its jobs move nor which model it ran")
    return RunBytes(launches, "bytes are worked out from the model that the run describes")


def _position(config: MuseConfig, command: Sequence[str]) -> int | None:
    """Where a slice's steps begin; None for another model, or another program than ``musetrace record``."""
    words = [str(word) for word in command]
    if config.slice_tp is None or "record" not in words or config.name not in words:
        return None
    if "--context" in words[:-1]:
        return int(words[words.index("--context") + 1])
    return min(DEFAULT_CONTEXT, config.max_position_embeddings - TOKENS)
