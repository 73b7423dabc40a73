"""One rank's layer as the kernels stream it: every matrix packed, experts one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musetrace.errors import UsageError
from musetrace.muse.packing import gate_up_tiles, pack_bf16, pack_nvfp4
from musetrace.muse.packing_codes import CODES_OF_BYTE, PRODUCT_EXPONENT, Bytes
from musetrace.muse.packing_layout import StageLayout
from musetrace.muse.sharding import RankLayer

Number = TypeVar("Number", bound=np.generic)
Reorder = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class PackedMatrix:
    """One matrix.

    Attributes:
        layout: of the matrix.
        data: uint8 [layout.nbytes].
    """

    layout: StageLayout
    data: Bytes


@dataclass(frozen=True)
class PackedExperts:
    """A stack of matrices of one shape.

    Attributes:
        layout: of one matrix.
        data: uint8 [experts, layout.nbytes].
        factor: fp32 [experts], multiplies an accumulator: the global scale times 2**51 for NVFP4 (products on
            the device carry 2**-51), 1 for bf16.
    """

    layout: StageLayout
    data: Bytes
    factor: NDArray[np.float32]


@dataclass(frozen=True)
class PackedLayer:
    """The matrices of a :class:`RankLayer`; its vectors are used as they are.

    Attributes:
        qkvg, o, pooler, unpooler: as in RankLayer.
        router: fp32 [E / tp, H], row-major.
        gate_up: tiles of 8 gate rows and the 8 up rows of the same features, see ``packing.gate_up_tiles``.
        down: as in RankLayer.
    """

    qkvg: PackedMatrix
    o: PackedMatrix
    pooler: PackedMatrix
    router: NDArray[np.float32]
    gate_up: PackedExperts
    down: PackedExperts
    unpooler: PackedMatrix

    @property
    def dense_bytes(self) -> int:
        """Bytes that every token streams, router included."""
        matrices = (self.qkvg, self.o, self.pooler, self.unpooler)
        return sum(matrix.layout.nbytes for matrix in matrices) + self.router.nbytes

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert."""
        return self.gate_up.layout.nbytes + self.down.layout.nbytes


def pack_layer(layer: RankLayer) -> PackedLayer:
    """Pack a layer; one expert at a time, so that little more than the result is held.

    Raises:
        UsageError: a size does not fit the tiles, or a scale is out of range.
    """
    return PackedLayer(
        qkvg=_packed(layer.qkvg),
        o=_packed(layer.o),
        pooler=_packed(layer.pooler),
        router=_numbers(layer.router, np.float32),
        gate_up=_packed_experts(
            layer.gate_up, layer.gate_up_codes, layer.gate_up_scales, layer.gate_up_global, gate_up_tiles
        ),
        down=_packed_experts(layer.down, layer.down_codes, layer.down_scales, layer.down_global, None),
        unpooler=_packed(layer.unpooler),
    )


def _numbers(tensor: Tensor, dtype: type[Number]) -> NDArray[Number]:
    array: NDArray[Number] = tensor.numpy()
    return array.view(dtype)


def _bits(tensor: Tensor) -> NDArray[np.uint16]:
    # numpy has no bf16.
    return _numbers(tensor.view(torch.int16), np.uint16)


def _packed(matrix: Tensor) -> PackedMatrix:
    bits = _bits(matrix)
    return PackedMatrix(StageLayout("bf16", *bits.shape), pack_bf16(bits))


def _packed_experts(
    bf16: Tensor | None,
    codes: Tensor | None,
    scales: Tensor | None,
    global_scale: Tensor | None,
    reorder: Reorder | None,
) -> PackedExperts:
    if bf16 is not None:
        return _packed_bf16_experts(_bits(bf16), reorder)
    if codes is None or scales is None or global_scale is None:
        raise UsageError("a layer has neither bf16 nor NVFP4 experts; shard it again")
    return _packed_nvfp4_experts(
        _numbers(codes, np.uint8), _numbers(scales, np.uint8), _factors(global_scale), reorder
    )


def _packed_bf16_experts(experts: NDArray[np.uint16], reorder: Reorder | None) -> PackedExperts:
    layout = StageLayout("bf16", *experts.shape[1:])
    data = np.empty((len(experts), layout.nbytes), np.uint8)
    for packed, matrix in zip(data, experts, strict=True):
        packed[:] = pack_bf16(matrix if reorder is None else reorder(matrix))
    return PackedExperts(layout, data, np.ones(len(experts), np.float32))


def _packed_nvfp4_experts(
    codes: Bytes, scales: Bytes, factor: NDArray[np.float32], reorder: Reorder | None
) -> PackedExperts:
    layout = StageLayout("nvfp4", codes.shape[1], codes.shape[2] * CODES_OF_BYTE)
    data = np.empty((len(codes), layout.nbytes), np.uint8)
    for packed, *matrix in zip(data, codes, scales, strict=True):
        packed[:] = pack_nvfp4(*(part if reorder is None else reorder(part) for part in matrix))
    return PackedExperts(layout, data, factor)


def _factors(global_scale: Tensor) -> NDArray[np.float32]:
    factors = np.ldexp(_numbers(global_scale, np.float32).astype(np.float64), -PRODUCT_EXPONENT)
    if not bool((factors <= np.finfo(np.float32).max).all()):
        raise UsageError(
            f"the global scale of an expert, {float(global_scale.max()):g}, is too large for a kernel; "
            "check the checkpoint"
        )
    return factors.astype(np.float32)
