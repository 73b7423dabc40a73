"""Weights in the order in which the kernels read them: fragments of ``mma.sync.m16n8k16``, weights as A.

The fragments of a unit lie in order of K and lane by lane; NVFP4 units end in their scales. See
``csrc/megakernel/fragment.h`` for the picture and ``packing_layout`` for the sizes. Rows that fill the last
row block are zero. Packing is a permutation, and exact both ways, but for one thing: under a scale of 0 a
code keeps only its sign. Needs numpy alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from musetrace.errors import UsageError
from musetrace.muse.packing_codes import (
    REGISTERS,
    Bytes,
    bytes_of_words,
    scale_bytes,
    scales_of_bytes,
    without_codes_of_zero,
    words_of_bytes,
)
from musetrace.muse.packing_layout import FRAGMENT_K, TILE_ROWS, StageLayout

GROUPS = 8  # of four lanes
QUADS = 4
# What one 16-byte load of a lane covers.
CODE_LOAD_FRAGMENTS = 4
SCALE_LOAD_FRAGMENTS = 8

Value = TypeVar("Value", bound=np.generic)


def pack_bf16(bits: NDArray[np.uint16]) -> Bytes:
    """Pack one matrix.

    Args:
        bits: bf16 bit patterns [rows, K].

    Returns:
        uint8 [nbytes] of ``StageLayout("bf16", rows, K)``.
    """
    layout = StageLayout("bf16", *_matrix_shape(bits, np.uint16, 1))
    pairs = np.ascontiguousarray(_padded(bits, layout)).view(np.uint32)
    # A register is a pair (k, k + 1) of one row. [block, row half, g, stage, fragment, k half, t]
    steps = layout.stage_k // FRAGMENT_K
    pairs = pairs.reshape(layout.row_blocks, 2, GROUPS, layout.k_stages, steps, 2, QUADS)
    return pairs.transpose(0, 3, 4, 2, 6, 5, 1).ravel().view(np.uint8)


def unpack_bf16(packed: Bytes, rows: int, k: int) -> NDArray[np.uint16]:
    """Inverse of :func:`pack_bf16`.

    Raises:
        UsageError: ``packed`` has not the size of such a matrix.
    """
    layout = StageLayout("bf16", rows, k)
    _check_packed(packed, layout)
    shape = (layout.row_blocks, layout.k_stages, layout.stage_k // FRAGMENT_K, GROUPS, QUADS, 2, 2)
    pairs = np.ascontiguousarray(packed).view(np.uint32).reshape(shape).transpose(0, 6, 3, 1, 2, 5, 4)
    return np.ascontiguousarray(pairs).view(np.uint16).reshape(layout.padded_rows, k)[:rows]


def pack_nvfp4(codes: Bytes, scales: Bytes) -> Bytes:
    """Pack one matrix.

    Args:
        codes: uint8 [rows, K / 2], the low nibble is the even k.
        scales: uint8 [rows, K / 16], e4m3 bit patterns.

    Returns:
        uint8 [nbytes] of ``StageLayout("nvfp4", rows, K)``.

    Raises:
        UsageError: the shapes do not fit, or a scale is negative or not a number.
    """
    layout = StageLayout("nvfp4", *_matrix_shape(codes, np.uint8, 2))
    if scales.dtype != np.uint8 or scales.shape != (layout.rows, layout.k // FRAGMENT_K):
        raise UsageError(
            f"codes of {layout.rows} x {layout.k} need uint8 scales of {layout.rows} x "
            f"{layout.k // FRAGMENT_K}, not {scales.dtype} of {list(scales.shape)}"
        )
    units = np.empty((layout.row_blocks, layout.k_stages, layout.units, layout.unit_bytes), np.uint8)
    kept = without_codes_of_zero(codes, scales)
    units[..., : layout.code_bytes] = _packed_codes(_padded(kept, layout), layout)
    units[..., layout.code_bytes :] = _packed_scales(_padded(scale_bytes(scales), layout), layout)
    return units.reshape(-1)


def unpack_nvfp4(packed: Bytes, rows: int, k: int) -> tuple[Bytes, Bytes]:
    """Codes and scales as :func:`pack_nvfp4` takes them; of a code under a scale of 0 only the sign is left.

    Raises:
        UsageError: ``packed`` has not the size of such a matrix, or a scale byte that no scale gives.
    """
    layout = StageLayout("nvfp4", rows, k)
    _check_packed(packed, layout)
    units = packed.reshape(layout.row_blocks, layout.k_stages, layout.units, layout.unit_bytes)
    words = np.ascontiguousarray(units[..., : layout.code_bytes]).view(np.uint32)
    registers = bytes_of_words(words.reshape(*words.shape[:3], -1, GROUPS, QUADS, CODE_LOAD_FRAGMENTS))
    # [h, r] in front of [block, stage, unit, load, g, t, fragment].
    codes = np.stack(registers).reshape(2, 2, *registers[0].shape).transpose(2, 4, 1, 6, 3, 5, 8, 0, 7)
    scales = units[..., layout.code_bytes :]
    scales = scales.reshape(*scales.shape[:3], -1, GROUPS, SCALE_LOAD_FRAGMENTS, 2)
    scales = scales.transpose(0, 2, 6, 4, 1, 3, 5)
    return (
        codes.reshape(layout.padded_rows, k // 2)[:rows],
        scales_of_bytes(scales.reshape(layout.padded_rows, k // FRAGMENT_K)[:rows]),
    )


def gate_up_tiles(rows: NDArray[Value]) -> NDArray[Value]:
    """Rows 2 j and 2 j + 1 (gate and up of feature j) to tiles of 8 gate rows, then their 8 up rows.

    A lane then has gate and up of one feature in sums 0, 1 and 2, 3, and SwiGLU needs no shuffle.

    Args:
        rows: [..., rows, columns], any dtype, rows a multiple of 16.

    Raises:
        UsageError: the rows do not fill tiles.
    """
    if rows.shape[-2] % TILE_ROWS:
        raise UsageError(
            f"{rows.shape[-2]} gate and up rows do not fill tiles of {TILE_ROWS}; use another --tp"
        )
    return rows.reshape(*rows.shape[:-2], -1, GROUPS, 2, rows.shape[-1]).swapaxes(-3, -2).reshape(rows.shape)


def gate_up_rows(tiles: NDArray[Value]) -> NDArray[Value]:
    """Inverse of :func:`gate_up_tiles`."""
    shape = tiles.shape
    return tiles.reshape(*shape[:-2], -1, 2, GROUPS, shape[-1]).swapaxes(-3, -2).reshape(shape)


def _packed_codes(codes: Bytes, layout: StageLayout) -> Bytes:
    # [block, unit, r, g, stage, load, fragment, h, t]
    loads = layout.stage_k // FRAGMENT_K // CODE_LOAD_FRAGMENTS
    shape = (
        layout.row_blocks,
        layout.units,
        2,
        GROUPS,
        layout.k_stages,
        loads,
        CODE_LOAD_FRAGMENTS,
        2,
        QUADS,
    )
    # [h, r, block, stage, unit, load, g, t, fragment]
    ordered = codes.reshape(shape).transpose(7, 2, 0, 4, 1, 5, 3, 8, 6).reshape(REGISTERS, -1)
    words = words_of_bytes((ordered[0], ordered[1], ordered[2], ordered[3]))
    return words.view(np.uint8).reshape(layout.row_blocks, layout.k_stages, layout.units, layout.code_bytes)


def _packed_scales(encoded: Bytes, layout: StageLayout) -> Bytes:
    # [block, unit, r, g, stage, load, fragment]
    loads = layout.stage_k // FRAGMENT_K // SCALE_LOAD_FRAGMENTS
    shape = (layout.row_blocks, layout.units, 2, GROUPS, layout.k_stages, loads, SCALE_LOAD_FRAGMENTS)
    ordered = encoded.reshape(shape).transpose(0, 4, 1, 5, 3, 6, 2)
    return ordered.reshape(layout.row_blocks, layout.k_stages, layout.units, -1)


def _matrix_shape(values: NDArray[Any], dtype: type, values_of_element: int) -> tuple[int, int]:
    if values.ndim != 2 or values.dtype != dtype:
        raise UsageError(
            f"packing takes one {np.dtype(dtype)} matrix, not {values.dtype} of {list(values.shape)}"
        )
    return values.shape[0], values.shape[1] * values_of_element


def _padded(values: NDArray[Any], layout: StageLayout) -> NDArray[Any]:
    missing = layout.padded_rows - values.shape[0]
    return np.pad(values, ((0, missing), (0, 0))) if missing else values


def _check_packed(packed: Bytes, layout: StageLayout) -> None:
    if packed.dtype != np.uint8 or packed.shape != (layout.nbytes,):
        raise UsageError(
            f"a packed {layout.format} matrix of {layout.rows} x {layout.k} has {layout.nbytes} bytes, not "
            f"{packed.dtype} of {list(packed.shape)}; pack it again"
        )
