"""The norms of the decoder and the residual gate. All are fp32 in and out, and norm the last dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from musetrace.muse.rounding import Rounding

# A constant of the public model, without a name in its configuration.
RESIDUAL_GATE_FLOOR = 1e-3


def rms_norm(value: Tensor, eps: float) -> Tensor:
    """Weightless: ``value / sqrt(mean(value ** 2) + eps)``."""
    mean_square = value.double().square().mean(dim=-1, keepdim=True).float()
    return value * torch.rsqrt(mean_square + eps)


def centred_norm(value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``rms_norm(value) * (1 + weight)``."""
    return rms_norm(value, eps) * (1 + weight)


def input_scaled_norm(value: Tensor, weight: Tensor, eps: float, rounding: Rounding) -> Tensor:
    """Scales first: ``rms_norm(value * (1 + weight))``, with the product rounded before the norm."""
    return rms_norm(rounding.to_bf16(value * (1 + weight)), eps)


def residual_gate(gate: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The factors (alpha, beta), fp32 [H], of ``alpha * residual + beta * branch``; alpha^2 + beta^2 is 1."""
    weight = gate / temperature
    beta = torch.sigmoid(weight)
    alpha = torch.sqrt(torch.clamp(torch.sigmoid(-weight) * (1 + beta), min=RESIDUAL_GATE_FLOOR))
    return alpha, beta
