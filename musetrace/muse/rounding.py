"""Where the reference rounds.

===============================================  ========================================================
value                                            precision under ``Rounding.BF16``
===============================================  ========================================================
residual stream                                  fp32
embedding, after its weightless norm             fp32
input of qkv and gate (centred norm)             bf16
q, k                                             fp32 through norm, q scale, rope; bf16 once behind them
v, gate before its sigmoid                       bf16
attention scores, softmax, sum over keys         fp32, from bf16 q, k and v
per-head norm x sigmoid(gate)                    fp32, then bf16: the input of o_proj
o_proj                                           each rank's partial bf16; their sum, in rank order, fp32
norm behind attention, residual gate             fp32
X, the input of router and pooler                bf16
router logits, scores, weights                   fp32 from bf16 X and fp32 weights
pooled                                           bf16
input of the experts (centred norm)              bf16
gate and up of an expert                         fp32 accumulator x fp32 expert scale
silu(gate) x up                                  fp32, then bf16
down of an expert                                fp32 accumulator x fp32 expert scale, then bf16
(1 + w) x down                                   bf16
norm behind an expert x routing weight           fp32; summed in ascending expert id, then bf16
unpooler                                         each rank's partial bf16; their sum, in rank order, fp32
(1 + w) x unpooled                               bf16
norm behind the experts, residual gate           fp32
final norm                                       bf16
logits, multiplier, soft cap                     fp32
===============================================  ========================================================

Under ``Rounding.NONE`` all of these stay fp32. Sums of products and of squares, and the softmax, are taken in
fp64 and rounded to fp32 once, in both modes. So the reference does not depend on the order of a sum, and a
kernel's distance from it is the kernel's own rounding. A bf16 value near an edge may still fall on the other
side, and a near tie of the router may go the other way: compare layer by layer, each on the kernel's own
input.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor


class Rounding(Enum):
    """Which values are rounded to bf16: those of the table above, or none."""

    NONE = "none"
    BF16 = "bf16"

    def to_bf16(self, value: Tensor) -> Tensor:
        """The fp32 tensor itself, or rounded to bf16 values (still in fp32 storage)."""
        return value if self is Rounding.NONE else value.to(torch.bfloat16).float()


def linear(inputs: Tensor, weight: Tensor) -> Tensor:
    """``inputs [..., K] @ weight[N, K].T`` as fp32 [..., N], accumulated in fp64."""
    return (inputs.double() @ weight.double().mT).float()


def ordered_sum(partials: list[Tensor]) -> Tensor:
    """Fp32 sum in the order of the list."""
    total = partials[0]
    for partial in partials[1:]:
        total = total + partial
    return total


def linear_over_ranks(inputs: Tensor, weight: Tensor, tp: int, rounding: Rounding) -> Tensor:
    """A projection split along K over ``tp`` ranks, fp32 [..., N]; each partial is rounded before the sum."""
    shares = zip(inputs.chunk(tp, dim=-1), weight.chunk(tp, dim=-1), strict=True)
    return ordered_sum([rounding.to_bf16(linear(share, columns)) for share, columns in shares])
