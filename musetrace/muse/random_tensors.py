"""Random tensors of synthetic models.

A tensor depends on (seed, layer, name) alone, an expert matrix on its number too. Values come from random
integers by additions and multiplications only, so they have the same bits on every machine.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from musetrace.muse import nvfp4
from musetrace.muse.config import MuseConfig
from musetrace.muse.nvfp4 import Nvfp4Tensor

# The even ones of the four 16-bit quarters of a random word.
_EVEN_QUARTERS = 0x0000_FFFF_0000_FFFF


@dataclass(frozen=True)
class RandomTensors:
    """Random tensors of one place.

    Attributes:
        seed: of the model.
        layer: which place: a layer's number, None for what stands outside of the layers, or a name.
    """

    seed: int
    layer: int | str | None

    def normal(self, name: str, shape: tuple[int, ...], std: float, part: int = 0) -> Tensor:
        """Fp32, near-normal: a sum of four 16-bit numbers, with the same bits on every machine."""
        key = f"{self.seed}/{self.layer}/{name}/{part}".encode()
        generator = np.random.Philox(key=int.from_bytes(hashlib.sha256(key).digest()[:16], "big"))
        words = generator.random_raw(math.prod(shape))
        pairs = (words & _EVEN_QUARTERS) + (words >> 16 & _EVEN_QUARTERS)
        total = (pairs & 0xFFFF_FFFF) + (pairs >> 32)
        # Four numbers below 2**16 have mean 2 (2**16 - 1) and variance 4 / 12 (2**32 - 1).
        centred = torch.from_numpy(total.astype(np.int64) - 2 * (2**16 - 1)).float()
        return (centred * (std * math.sqrt(3 / (2**32 - 1)))).reshape(shape)

    def bf16(self, name: str, shape: tuple[int, ...], std: float) -> Tensor:
        """As :meth:`normal`, rounded to bf16."""
        return self.normal(name, shape, std).bfloat16()

    def norm(self, name: str, width: int) -> Tensor:
        """Fp32 [width]: a norm's w, such that ``1 + w`` is exact in bf16."""
        # normal() stays within 3.47 standard deviations: 1 + w is above 0.5, so w has no more bits than it.
        return (1 + self.normal(name, (width,), 0.14)).bfloat16().float() - 1

    def residual_gate(self, name: str, config: MuseConfig) -> Tensor:
        """Fp32 [H]: parameter of a residual gate."""
        # A branch weighs about an eighth, as in a trained deep model. With gates around zero, random layers
        # amplify a rounding error 5 to 10 times each, and no two correct programs agree after a few of them.
        weights = self.normal(name, (config.hidden_size,), 0.7) - 2
        # A few channels so far open that the floor under alpha matters.
        weights[::256] += 12
        return weights * config.residual_gate_temperature

    def experts(self, name: str, shape: tuple[int, int, int], quantised: bool) -> Tensor | Nvfp4Tensor:
        """One expert at a time, so that only one is ever in fp32."""
        matrices = (self._expert(name, shape[1:], expert) for expert in range(shape[0]))
        if not quantised:
            return torch.stack([matrix.bfloat16() for matrix in matrices])
        parts = [nvfp4.quantize(matrix) for matrix in matrices]
        return Nvfp4Tensor(
            codes=torch.stack([part.codes for part in parts]),
            scales=torch.stack([part.scales for part in parts]),
            global_scale=torch.stack([part.global_scale for part in parts]),
        )

    def _expert(self, name: str, shape: tuple[int, int], expert: int) -> Tensor:
        # Experts differ in size, so that taking the scale of another one is seen.
        size = 0.5 + (expert * 5 % 8) / 4
        return self.normal(name, shape, size / math.sqrt(shape[1]), part=expert)
