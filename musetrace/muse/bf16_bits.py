"""bf16 as numpy has it: bit patterns in uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_bf16_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Bit patterns of values rounded to bf16; uint16, contiguous, of the same shape."""
    tensor = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(torch.bfloat16)
    return np.asarray(tensor.view(torch.uint16).numpy())


def from_bf16_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The values of bit patterns, float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
