"""Packed weights on a real GPU: each code under each scale is exact, a packed matrix multiplies as itself."""

from __future__ import annotations

import numpy as np
import pytest

from musetrace.muse.packing import pack_bf16, pack_nvfp4
from musetrace.muse.packing_codes import words_of_bytes

pytestmark = pytest.mark.gpu

UNDO = 2.0**51  # what the device's products lack
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
TOKENS = 8


def scale_values(scale_byte):  # type: ignore[no-untyped-def]
    """What a scale byte stands for on the device, times 2**75: every one of the 256."""
    byte = np.asarray(scale_byte, np.int64)
    return 2.0 ** ((byte >> 3) - 10 + 75) * (1 + (byte & 7) / 8)


def bf16_bits(values):  # type: ignore[no-untyped-def]
    """Bit patterns of values that are bf16 numbers."""
    single = np.asarray(values, np.float64).astype(np.float32)
    assert (single == values).all()
    bits = single.view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    return (bits >> 16).astype(np.uint16)


def words_of(nibbles):  # type: ignore[no-untyped-def]
    """Words of nibbles [..., register, half]."""
    pairs = (nibbles[..., 0] | nibbles[..., 1] << 4).astype(np.uint8)
    return words_of_bytes(tuple(np.moveaxis(pairs, -1, 0)))


def expected_bits(nibbles, scale_bytes):  # type: ignore[no-untyped-def]
    """[..., fragment, register, half] of nibbles of that shape and scale bytes [..., fragment, row half]."""
    scales = scale_values(scale_bytes)[..., [0, 1, 0, 1]]  # registers 0 and 2 are row g
    return bf16_bits(E2M1[nibbles] * 2.0**-126 * scales[..., None])


def test_every_code_under_every_scale_byte_in_every_place(cuda):  # type: ignore[no-untyped-def]
    code, byte = (grid.ravel() for grid in np.meshgrid(np.arange(16), np.arange(256)))
    place = np.arange(16).reshape(2, 4, 2)  # fragment, register, half
    nibbles = (code[:, None, None, None] + 5 * place + place // 8) & 15
    scale_bytes = (byte[:, None] + np.array([0, 85, 170, 201])).reshape(-1, 2, 2) & 255
    # Each place has met each code under each byte.
    for fragment, register, half in np.ndindex(2, 4, 2):
        met = nibbles[:, fragment, register, half] * 256 + scale_bytes[:, fragment, register % 2]
        assert len(np.unique(met)) == 16 * 256
    scale_words = scale_bytes.reshape(-1, 4).astype(np.uint8).view(np.uint32).ravel()
    got = cuda.dequant_words(words_of(nibbles), scale_words)
    wrong = np.argwhere(got != expected_bits(nibbles, scale_bytes))
    assert got.shape == nibbles.shape
    assert len(wrong) == 0, (
        f"{len(wrong)} of {got.size} differ, first (case, fragment, register, half) {wrong[0]}"
    )


def test_random_words(cuda):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(7)
    nibbles = rng.integers(0, 16, (200_000, 2, 4, 2))
    scale_bytes = rng.integers(0, 256, (200_000, 2, 2))
    scale_words = scale_bytes.reshape(-1, 4).astype(np.uint8).view(np.uint32).ravel()
    got = cuda.dequant_words(words_of(nibbles), scale_words)
    assert (got == expected_bits(nibbles, scale_bytes)).all()


def check_sums(sums, weights, tokens, exact):  # type: ignore[no-untyped-def]
    rows, k = weights.shape
    assert sums.shape[0] >= rows
    assert sums.shape[1] == TOKENS
    assert not sums[rows:].any()
    expected = weights @ tokens.T
    # The matrix unit cuts what it adds to about 24 bits of the largest term. The bound is generous: products
    # of whole numbers, which have none, show an element in a wrong place.
    bound = 0.0 if exact else 2.0**-21 * (k // 16 + 8) * (abs(weights) @ abs(tokens.T))
    error = abs(sums[:rows].astype(np.float64) - expected)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"row, token {worst}: {sums[worst]} for {expected[worst]}"


BF16_SHAPES = [(16, 16), (16, 512), (48, 1024), (40, 64), (256, 8192)]
NVFP4_SHAPES = [(64, 128), (64, 512), (70, 256), (128, 4096)]


@pytest.mark.parametrize(("rows", "k"), BF16_SHAPES)
def test_bf16_product_of_whole_numbers_is_exact(cuda, rows, k):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(rows * k)
    weights = rng.integers(-8, 9, (rows, k)).astype(np.float64)
    tokens = rng.integers(-4, 5, (TOKENS, k)).astype(np.float64)
    sums = cuda.packed_product("bf16", pack_bf16(bf16_bits(weights)), bf16_bits(tokens))
    check_sums(sums, weights, tokens, exact=True)


@pytest.mark.parametrize(("rows", "k"), NVFP4_SHAPES)
def test_nvfp4_product_of_whole_numbers_is_exact(cuda, rows, k):  # type: ignore[no-untyped-def]
    weights, packed = nvfp4_matrix(rows, k, scales=np.array([0x00, 0x30, 0x38, 0x40]))  # 0, 0.5, 1, 2
    tokens = np.random.default_rng(k).integers(-4, 5, (TOKENS, k)).astype(np.float64)
    sums = cuda.packed_product("nvfp4", packed, bf16_bits(tokens)) * np.float32(UNDO)
    check_sums(sums, weights, tokens, exact=True)


@pytest.mark.parametrize(("rows", "k"), BF16_SHAPES)
def test_bf16_product(cuda, rows, k):  # type: ignore[no-untyped-def]
    weights, tokens = random_bf16(rows, k, 1), random_bf16(TOKENS, k, 2)
    sums = cuda.packed_product("bf16", pack_bf16(bf16_bits(weights)), bf16_bits(tokens))
    check_sums(sums, weights, tokens, exact=False)


@pytest.mark.parametrize(("rows", "k"), NVFP4_SHAPES)
def test_nvfp4_product_under_all_scales(cuda, rows, k):  # type: ignore[no-untyped-def]
    weights, packed = nvfp4_matrix(rows, k, scales=np.arange(0x7F))
    tokens = random_bf16(TOKENS, k, 3)
    sums = cuda.packed_product("nvfp4", packed, bf16_bits(tokens)) * np.float32(UNDO)
    check_sums(sums, weights, tokens, exact=False)


def test_sizes_that_do_not_fit_are_refused(cuda):  # type: ignore[no-untyped-def]
    tokens = np.zeros((TOKENS, 512), np.uint16)
    with pytest.raises(ValueError, match="no nvfp4 matrix"):
        cuda.packed_product("nvfp4", np.zeros(18_431, np.uint8), tokens)
    with pytest.raises(ValueError, match="no bf16 matrix"):
        cuda.packed_product("bf16", np.zeros(16_384, np.uint8), np.zeros((TOKENS, 520), np.uint16))
    with pytest.raises(ValueError, match="choose bf16 or nvfp4"):
        cuda.packed_product("int8", np.zeros(16_384, np.uint8), tokens)
    with pytest.raises(ValueError, match="words must be"):
        cuda.dequant_words(np.zeros((4, 2), np.uint32), np.zeros(3, np.uint32))


def random_bf16(rows, k, seed):  # type: ignore[no-untyped-def]
    single = np.random.default_rng(seed).standard_normal((rows, k)).astype(np.float32)
    return (single.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def nvfp4_matrix(rows, k, scales):  # type: ignore[no-untyped-def]
    """Weights without their global scale, fp64 [rows, k], and packed."""
    rng = np.random.default_rng(rows + k)
    nibbles = rng.integers(0, 16, (rows, k))
    patterns = rng.choice(scales, (rows, k // 16)).astype(np.uint8)
    exponent, mantissa = patterns >> 3, patterns & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.int64) - 7)
    values = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    codes = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    return E2M1[nibbles] * np.repeat(values, 16, axis=1), pack_nvfp4(codes, patterns)
