"""What every device is to the passes that run on it: launches go in, in order, and are waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.errors import DeviceError
from musetrace.job_table import JobTable, wait_sentence
from musetrace.muse.config import MuseConfig
from musetrace.muse.draft.config import DraftConfig
from musetrace.record.source import StampSource

# Tokens of one verify pass.
TOKENS: int = _core.cpu.TOKENS
# As a pass's position: that of the step's state on the device.
FROM_STATE = 0xFFFF_FFFF


class Device(Protocol):
    """Ranks of a model that run together.

    ``tp`` ranks share the model, ``ranks`` of them are held here, each on ``blocks`` blocks, with
    ``capacity`` positions in the KV cache. ``launches_in_flight`` is how many may be queued before one is
    waited for.
    """

    config: MuseConfig
    tp: int
    ranks: int
    blocks: int
    capacity: int
    launches_in_flight: int

    def set_residual(self, residual: npt.NDArray[np.float32]) -> None:
        """The residual stream float32[16, hidden] of the next launch, on every rank."""

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits float32[16, vocab] of the last ``head`` launch; of a slice, its rank's part of them."""

    def launch(
        self, kind: str, layer: int, position: int, stamps: str = "off", address: int = 0, epoch: int = 0
    ) -> int:
        """Queue a launch and return its ticket.

        Args:
            kind: ``entry`` (first layer's projections of the residual stream), ``layer``, or ``head``.
            layer: for ``layer``: which.
            position: of the first of the 16 tokens.
            stamps: ``register``, ``store`` or ``off``.
            address: of the lent buffer that the stamps go to; 0 when the launch is not recorded.
            epoch: of the launch, written into every block header.

        Raises:
            DeviceError: the KV cache has no room for the tokens, or the device refused.
        """

    def wait(self, ticket: int) -> None:
        """Until the launch has ended.

        Raises:
            LaunchTimeoutError: a wait in it ran out of time; the device is usable afterwards.
        """

    def stamps_ready(self, ticket: int) -> Callable[[], None]:
        """For a recorded launch, once: what waits, in any thread, until its stamps are in the lent buffer.

        A launch that was given up has ended too: what it stamped is worth keeping.
        """

    def stamp_source(self, stamps: str, model: dict[str, Any], build: dict[str, Any]) -> StampSource:
        """What a recorder must know; ``model`` and ``build`` are passed on, with the device's own facts."""


class LaunchTimeoutError(DeviceError):
    """A wait inside a launch ran out of time; ``report`` is the wait report as a dict of ints."""

    def __init__(self, report: dict[str, int], table: JobTable) -> None:
        self.report = report
        sentence = wait_sentence(report, table)
        super().__init__(f"a launch was given up: {sentence}; the device is usable, run the step again")


def shape_of(config: MuseConfig, tp: int, blocks: int, capacity: int, layers: int) -> dict[str, float]:
    """The sizes of a model as the compiled devices take them (``csrc/muse/shape.h``); heads are a rank's."""
    return {
        "ranks": tp,
        "blocks": blocks,
        "layers": layers,
        "hidden": config.hidden_size,
        "q_heads": config.num_attention_heads // tp,
        "kv_heads": config.num_key_value_heads // tp,
        "head_dim": config.head_dim,
        "moe_hidden": config.moe_hidden_size,
        "intermediate": config.moe_intermediate_size,
        "experts": config.num_local_experts,
        "top_k": config.num_experts_per_tok,
        "vocab": config.vocab_size // tp,
        "capacity": capacity,
        "window": config.sliding_window,
        "rms_eps": config.rms_norm_eps,
        "post_eps": config.post_norm_eps,
        "qk_scale": config.qk_scale_factor,
        "output_multiplier": config.output_multiplier,
        "softcap": config.final_logit_softcapping,
        "routed_scale": config.routed_scaling_factor,
        "rope_theta": config.rope_theta,
    }


def draft_shape_of(draft: DraftConfig, tp: int) -> dict[str, Any]:
    """The sizes of a draft as the compiled devices take them (``csrc/muse/draft_shape.h``)."""
    return {
        "layers": draft.num_hidden_layers,
        "q_heads": draft.num_attention_heads // tp,
        "kv_heads": draft.num_key_value_heads // tp,
        "head_dim": draft.head_dim,
        "intermediate": draft.intermediate_size // tp,
        "window": draft.sliding_window,
        "mask_token": draft.mask_token_id,
        "targets": list(draft.target_layer_ids),
        "rms_eps": draft.rms_norm_eps,
        "rope_theta": draft.rope_theta,
    }
