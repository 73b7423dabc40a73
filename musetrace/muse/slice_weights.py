"""Synthetic weights of one rank, made on the GPU in the kernel's own layout.

For a model that is too large to be made whole: the 65.7 GB of a rank of eight take a second. Values are
seeded and sane (activations stay near 1), not those of a model. A pool of experts in each layer is favoured
by the router's bias, so that tokens of a pass share experts as those of one text do.

Matrices are a rank's own part of the model's. Norms, residual gates and the router's bias are the same on all
ranks, so that these agree on what they exchange.
"""

from __future__ import annotations

import torch
from torch import Tensor

from musetrace.muse.config import MuseConfig
from musetrace.muse.norms import residual_gate
from musetrace.muse.packing_codes import PRODUCT_EXPONENT
from musetrace.muse.packing_layout import StageLayout
from musetrace.muse.seeded_generator import seeded_generator

# Experts that the router chooses from in a layer: 16 tokens that each take 8 of 53 at random touch 49.0
# (measured over 62 layers: 44 to 53, 48.8 in the mean).
DEFAULT_POOL = 53

# Scale bytes 80 to 87 are scales of 1 to 1.875, 1.44 in the mean; random codes of e2m1 have an rms of 2.87.
_SCALE_BYTE = 80
_CODE_RMS = 1.44 * 2.87

# At once, while bf16 numbers are made: 1 GB.
_FP32_NUMBERS = 1 << 28


def random_layer(
    config: MuseConfig,
    tp: int,
    layer: int,
    seed: int,
    device: torch.device,
    pool: int = DEFAULT_POOL,
    rank: int = 0,
) -> dict[str, Tensor]:
    """A rank's layer; the names are those of ``cuda_weights.upload_layer``.

    Args:
        tp: ranks that share the model.
        pool: experts that the router's bias favours.
        rank: whose.
    """
    own = _Source(seeded_generator(device, seed, "layer", layer, rank), device)
    return _rank_matrices(own, config, tp, layer) | _shared_vectors(config, layer, seed, device, pool)


def _rank_matrices(source: _Source, config: MuseConfig, tp: int, layer: int) -> dict[str, Tensor]:
    """Packed matrices uint8 or bf16, the router's rows fp32, and the factors of a rank's experts."""
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
    }
    for name, rows, k in (("gate_up", 2 * features, moe), ("down", moe // tp, config.moe_intermediate_size)):
        stack = source.nvfp4(experts, rows, k) if quantised else source.bf16(experts * rows, k)
        factor = 2.0**-PRODUCT_EXPONENT * k**-0.5 / _CODE_RMS if quantised else 1.0
        tensors[name] = stack
        tensors[f"{name}_factor"] = torch.full((experts,), factor, device=source.device)
    return tensors


def _shared_vectors(
    config: MuseConfig, layer: int, seed: int, device: torch.device, pool: int
) -> dict[str, Tensor]:
    """What all ranks have alike, fp32."""
    source = _Source(seeded_generator(device, seed, "layer", layer), device)
    hidden, moe = config.hidden_size, config.moe_hidden_size
    tensors = {"router_bias": source.favoured(config.num_local_experts, pool)}
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


def random_head(
    config: MuseConfig, tp: int, seed: int, device: torch.device, rank: int = 0
) -> dict[str, Tensor]:
    """A rank's head; the names are those of ``cuda_weights.upload_head``."""
    own = _Source(seeded_generator(device, seed, "head", rank), device)
    shared = _Source(seeded_generator(device, seed, "head"), device)
    rows = StageLayout("bf16", config.vocab_size // tp, config.hidden_size).padded_rows
    return {
        "lm_head": own.bf16(rows, config.hidden_size),
        "final_norm": 1 + 0.1 * shared.normal(config.hidden_size),
    }


class _Source:
    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self._generator, self.device = generator, device

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, device=self.device)

    def bf16(self, rows: int, k: int) -> Tensor:
        """Random numbers of one distribution: in which place of the packed matrix they stand is all one."""
        matrix = torch.empty(rows, k, dtype=torch.bfloat16, device=self.device)
        # In parts, for a part is in fp32 first.
        for part in torch.split(matrix, max(1, _FP32_NUMBERS // k)):
            part.copy_(self.normal(*part.shape) * k**-0.5)
        return matrix

    def nvfp4(self, experts: int, rows: int, k: int) -> Tensor:
        layout = StageLayout("nvfp4", rows, k)
        packed = torch.empty(experts, layout.nbytes, dtype=torch.uint8, device=self.device)
        packed.random_(generator=self._generator)
        units = packed.view(-1, layout.unit_bytes)
        units[:, layout.code_bytes :] &= 7
        units[:, layout.code_bytes :] |= _SCALE_BYTE
        return packed

    def favoured(self, experts: int, pool: int) -> Tensor:
        """Scores lie between 0 and 1, so a bias of 1 puts the pool before all others."""
        bias = torch.zeros(experts, device=self.device)
        bias[torch.randperm(experts, generator=self._generator, device=self.device)[:pool]] = 1.0
        return bias
