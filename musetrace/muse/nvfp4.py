"""NVFP4, the 4-bit format of the experts.

Codes are e2m1, with one e4m3 scale per 16 of them along K, and one fp32 scale per matrix. A weight is
``e2m1(code) * e4m3(scale) * global_scale``. The product of the first two has at most 6 significant bits, so
it is exact in bf16; a matrix instruction takes that product, and the accumulator is multiplied by the global
scale.

What :func:`quantize` picks, so that a quantised matrix quantises to itself:

* global scale: ``max|w| / (6 * 448)`` rounded up to 8 significant bits, so ``code * scale * global`` is exact
  in fp32;
* block scale: ``max|block| / 6 / global`` rounded to e4m3, never below the smallest normal number. A
  subnormal scale has so few bits that the largest code of its block may not be 6, and the block would not
  quantise to itself;
* codes: ``w / (scale * global)`` rounded to the nearest e2m1, beyond +-6 to +-6.

Ties go to the even code everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musetrace.errors import UsageError

BLOCK_SIZE = 16
E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_MIN_NORMAL = 2.0**-6
E4M3_NAN = 0x7F
GLOBAL_SCALE_BITS = 8

# Far below any weight; keeps the smallest product of a code and its scales a normal fp32 number.
MIN_GLOBAL_SCALE = 2.0**-100
# Above it, the largest quantised value may overflow fp32.
MAX_WEIGHT = 2.0**126


def e2m1_values(device: torch.device | str = "cpu") -> Tensor:
    """The value of each of the 16 codes (sign, two exponent bits of bias 1, one mantissa bit), fp32."""
    magnitudes = [_minifloat(code, exponent_bits=2, mantissa_bits=1, bias=1) for code in range(8)]
    return torch.tensor(magnitudes + [-value for value in magnitudes], dtype=torch.float32, device=device)


def e4m3_values(device: torch.device | str = "cpu") -> Tensor:
    """The value of each of the 256 e4m3 bit patterns (no infinities; 0x7F and 0xFF are NaN), fp32."""
    magnitudes = [_minifloat(code, exponent_bits=4, mantissa_bits=3, bias=7) for code in range(E4M3_NAN)]
    magnitudes.append(float("nan"))
    return torch.tensor(magnitudes + [-value for value in magnitudes], dtype=torch.float32, device=device)


def _minifloat(code: int, *, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    if exponent == 0:
        return float(mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float((1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias))


@dataclass(frozen=True)
class Nvfp4Tensor:
    """Quantised matrices.

    Attributes:
        codes: uint8 [..., rows, K/2]; the low nibble is the even k.
        scales: uint8 [..., rows, K/16], e4m3 bit patterns.
        global_scale: fp32 [...], one per matrix.
    """

    codes: Tensor
    scales: Tensor
    global_scale: Tensor

    def dequantize(self) -> Tensor:
        """Fp32 [..., rows, K]: the weights themselves."""
        return dequantize(self.codes, self.scales, self.global_scale)

    def dequantize_unscaled(self) -> Tensor:
        """Fp32 [..., rows, K]: the weights without the global scale; exact in bf16."""
        return dequantize_unscaled(self.codes, self.scales)


def quantize(weight: Tensor) -> Nvfp4Tensor:
    """Quantise matrices.

    Args:
        weight: fp32 [..., rows, K], K a multiple of 16.

    Raises:
        UsageError: K does not fit, or a weight is not finite or beyond 2**126.
    """
    if weight.dim() < 2 or weight.shape[-1] % BLOCK_SIZE or weight.numel() == 0:
        raise UsageError(
            f"NVFP4 needs matrices with K a multiple of {BLOCK_SIZE}, not of shape {list(weight.shape)}"
        )
    weight = weight.float()
    largest = weight.abs().amax(dim=(-2, -1))
    if not bool((largest <= MAX_WEIGHT).all()):
        raise UsageError(
            f"NVFP4 needs finite weights of at most {MAX_WEIGHT:g} in size; check the checkpoint"
        )
    global_scale = _global_scale(largest)
    blocks = weight.reshape(*weight.shape[:-1], -1, BLOCK_SIZE) / global_scale[..., None, None, None]
    scales = _nearest(
        _positive_e4m3(weight), (blocks.abs().amax(dim=-1) / E2M1_MAX).clamp(min=E4M3_MIN_NORMAL)
    )
    scaled = blocks / e4m3_values(weight.device)[scales][..., None]
    magnitudes = _nearest(e2m1_values(weight.device)[:8], scaled.abs())
    # There is one zero: what rounds to it from below gets no sign, or it would not quantise to itself.
    codes = (magnitudes + 8 * ((scaled < 0) & (magnitudes > 0))).flatten(-2).to(torch.uint8)
    return Nvfp4Tensor(codes[..., 0::2] | codes[..., 1::2] << 4, scales.to(torch.uint8), global_scale)


def dequantize_unscaled(codes: Tensor, scales: Tensor) -> Tensor:
    """``e2m1 * e4m3`` as fp32 [..., rows, K]; exact in bf16. Arguments as in :class:`Nvfp4Tensor`."""
    nibbles = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    values = e2m1_values(codes.device)[nibbles.int()].reshape(*scales.shape, BLOCK_SIZE)
    return (values * e4m3_values(codes.device)[scales.int()][..., None]).flatten(-2)


def dequantize(codes: Tensor, scales: Tensor, global_scale: Tensor) -> Tensor:
    """``e2m1 * e4m3 * global_scale`` as fp32 [..., rows, K]. Arguments as in :class:`Nvfp4Tensor`."""
    return dequantize_unscaled(codes, scales) * global_scale[..., None, None]


def _global_scale(largest: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(largest.double() / (E2M1_MAX * E4M3_MAX))
    rounded_up = torch.ceil(mantissa * 2**GLOBAL_SCALE_BITS)
    return torch.ldexp(rounded_up, exponent - GLOBAL_SCALE_BITS).clamp(min=MIN_GLOBAL_SCALE).float()


def _positive_e4m3(like: Tensor) -> Tensor:
    return e4m3_values(like.device)[:E4M3_NAN]


def _nearest(table: Tensor, values: Tensor) -> Tensor:
    """Index of the nearest entry of an ascending table; a tie goes to the even index."""
    midpoints = (table[1:] + table[:-1]) / 2
    below = torch.bucketize(values, midpoints)
    tie = values == midpoints[below.clamp(max=len(midpoints) - 1)]
    return below + (tie & (below % 2 == 1)).long()
