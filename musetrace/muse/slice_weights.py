"""Synthetic weights of one rank, made on the GPU in the kernel's own layout.

For a model that is too large to be made whole: the 65.7 GB of a rank of eight take a second. Values are
seeded and sane (activations stay near 1), not those of a model. A pool of experts in each layer is favoured
by the router's bias, so that tokens of a pass share experts as those of one text do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import residual_gate
from musetrace.muse.packing_codes import PRODUCT_EXPONENT
from musetrace.muse.packing_layout import StageLayout

# Experts that the router chooses from in a layer: 16 tokens that each take 8 of 53 at random touch 49.0
# (measured over 62 layers: 44 to 53, 48.8 in the mean).
DEFAULT_POOL = 53

# Scale bytes 80 to 87 are scales of 1 to 1.875, 1.44 in the mean; random codes of e2m1 have an rms of 2.87.
_SCALE_BYTE = 80
_CODE_RMS = 1.44 * 2.87


def random_layer(
    config: MuseConfig, tp: int, layer: int, seed: int, device: torch.device, pool: int = DEFAULT_POOL
) -> dict[str, Tensor]:
    """A rank's layer; the names are those of ``cuda_weights.upload_layer``.

    Args:
        tp: ranks that share the model.
        pool: experts that the router's bias favours.
    """
    source = _Source(torch.Generator(device).manual_seed(seed * 1000 + layer), device)
    heads = (config.num_attention_heads + config.num_key_value_heads) // tp
    hidden, moe, experts = config.hidden_size, config.moe_hidden_size, config.num_local_experts
    columns = config.num_attention_heads // tp * config.head_dim
    features = config.moe_intermediate_size // tp
    quantised = config.expert_format(layer) == "nvfp4"
    tensors = {
        "qkvg": source.bf16(2 * heads * config.head_dim, hidden),
        "o": source.bf16(hidden, columns),
        "pooler": source.bf16(moe // tp, hidden),
        "unpooler": source.bf16(hidden, moe // tp),
        "router": source.normal(experts // tp, hidden) * hidden**-0.5,
        "router_bias": source.favoured(experts, pool),
    }
    for name, rows, k in (("gate_up", 2 * features, moe), ("down", moe // tp, config.moe_intermediate_size)):
        stack = source.nvfp4(experts, rows, k) if quantised else source.bf16(experts * rows, k)
        factor = 2.0**-PRODUCT_EXPONENT * k**-0.5 / _CODE_RMS if quantised else 1.0
        tensors[name] = stack
        tensors[f"{name}_factor"] = torch.full((experts,), factor, device=device)
    for name in ("input_norm", "pre_ffn_norm", "post_ffn_norm"):
        tensors[name] = 1 + 0.1 * source.normal(hidden)
    for name in ("pre_expert_norm", "post_expert_norm"):
        tensors[name] = 1 + 0.1 * source.normal(moe)
    for name in ("attn", "ffn"):
        # A branch weighs about an eighth, as in a trained deep model.
        weights = (0.7 * source.normal(hidden) - 2) * config.residual_gate_temperature
        alpha, beta = residual_gate(weights, config.residual_gate_temperature)
        tensors[f"{name}_alpha"], tensors[f"{name}_beta"] = alpha.contiguous(), beta.contiguous()
    return tensors


def random_head(config: MuseConfig, tp: int, seed: int, device: torch.device) -> dict[str, Tensor]:
    """A rank's head; the names are those of ``cuda_weights.upload_head``."""
    source = _Source(torch.Generator(device).manual_seed(seed * 1000 + 999), device)
    return {
        "lm_head": source.bf16(
            StageLayout("bf16", config.vocab_size // tp, config.hidden_size).padded_rows, config.hidden_size
        ),
        "final_norm": 1 + 0.1 * source.normal(config.hidden_size),
    }


class _Source:
    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self._generator, self._device = generator, device

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, device=self._device)

    def bf16(self, rows: int, k: int) -> Tensor:
        """Random numbers of one distribution: in which place of the packed matrix they stand is all one."""
        parts = [
            (self.normal(count, k) * k**-0.5).bfloat16() for count in _parts(rows, max(1, (1 << 28) // k))
        ]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def nvfp4(self, experts: int, rows: int, k: int) -> Tensor:
        layout = StageLayout("nvfp4", rows, k)
        packed = torch.empty(experts, layout.nbytes, dtype=torch.uint8, device=self._device)
        packed.random_(generator=self._generator)
        units = packed.view(-1, layout.unit_bytes)
        units[:, layout.code_bytes :] &= 7
        units[:, layout.code_bytes :] |= _SCALE_BYTE
        return packed

    def favoured(self, experts: int, pool: int) -> Tensor:
        """Scores lie between 0 and 1, so a bias of 1 puts the pool before all others."""
        bias = torch.zeros(experts, device=self._device)
        bias[torch.randperm(experts, generator=self._generator, device=self._device)[:pool]] = 1.0
        return bias


def _parts(total: int, most: int) -> list[int]:
    return [min(most, total - start) for start in range(0, total, most)]
