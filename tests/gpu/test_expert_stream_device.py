"""The expert stream on a real GPU: right, the same every time, and ended when bytes never come."""

from __future__ import annotations

import numpy as np
import pytest

from musetrace import _core
from musetrace.job_table import JobTable
from musetrace.muse.packing import pack_nvfp4

pytestmark = pytest.mark.gpu

STAGE_BYTES, STAGE_K, TILE_ROWS, TOKENS = 18_432, 512, 64, 8
IN_FLIGHT = 48 * 1024
UNDO = 2.0**51  # what the device's sums lack
POISON = 0xA5A5A5A5
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
MULTIPLY = [("multiply", moves, IN_FLIGHT) for moves in (False, True)]
# Blocks, stages of each, K: less and more than the ring of 8, whole row blocks and a part of one.
SHAPES = [(1, 1, 512), (3, 2, 1024), (2, 7, 512), (2, 9, 1536), (3, 8, 4096), (1, 71, 4096), (132, 2, 1024)]


def random_weights(blocks, stages, k, scales):  # type: ignore[no-untyped-def]
    """Weights fp64 [block, row block, 64, K], zero where it is not streamed, and the packed stages."""
    rng = np.random.default_rng(blocks * 10_000 + stages * 10 + k)
    row_blocks = -(-stages * STAGE_K // k)
    rows = blocks * row_blocks * TILE_ROWS
    nibbles = rng.integers(0, 16, (rows, k), np.uint8)
    patterns = rng.choice(scales, (rows, k // 16)).astype(np.uint8)
    exponent, mantissa = patterns >> 3, patterns & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.int64) - 7)
    values = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    weights = (E2M1[nibbles] * np.repeat(values, 16, axis=1)).reshape(blocks, row_blocks, TILE_ROWS, k)
    last = stages * STAGE_K - (row_blocks - 1) * k
    weights[:, -1, :, last:] = 0
    packed = pack_nvfp4(nibbles[:, 0::2] | nibbles[:, 1::2] << 4, patterns)
    streamed = packed.reshape(blocks, -1)[:, : stages * STAGE_BYTES]
    return weights, np.ascontiguousarray(streamed).ravel()


def bf16_bits(values):  # type: ignore[no-untyped-def]
    bits = values.astype(np.float32).view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    assert (values.astype(np.float32) == values).all()
    return (bits >> 16).astype(np.uint16)


def random_tokens(k):  # type: ignore[no-untyped-def]
    single = np.random.default_rng(k).standard_normal((TOKENS, k)).astype(np.float32)
    return (single.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def products_of(words):  # type: ignore[no-untyped-def]
    """fp64 [block, 64, 8] of the sums of the consumer threads [block, 256, 8]."""
    sums = words.view(np.float32).astype(np.float64) * UNDO
    # [block, row group, K group, g, t, unit, row half, token half]
    sums = sums.reshape(len(words), 2, 4, 8, 4, 2, 2, 2).sum(axis=2)
    return sums.transpose(0, 1, 4, 5, 2, 3, 6).reshape(len(words), TILE_ROWS, TOKENS)


def run(cuda, variant, packed, tokens, blocks, **arguments):  # type: ignore[no-untyped-def]
    """Words [repeat, block, 256, 8] of a run in which nobody timed out."""
    words, report = cuda.expert_product(variant, packed, bf16_bits(tokens), blocks, **arguments)
    assert report == bytes(48)
    return words


def check_products(words, weights, tokens, exact):  # type: ignore[no-untyped-def]
    expected = np.einsum("brmk,tk->bmt", weights, tokens, optimize=True)
    size = np.einsum("brmk,tk->bmt", abs(weights), abs(tokens), optimize=True)
    steps = weights.shape[1] * weights.shape[3] // 16
    bound = 0.0 if exact else 2.0**-21 * (steps + 8) * size
    error = abs(products_of(words) - expected)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"block, row, token {worst}: off by {error[worst]} of {expected[worst]}"


@pytest.mark.parametrize("variant", MULTIPLY)
@pytest.mark.parametrize(("blocks", "stages", "k"), SHAPES)
def test_product_of_whole_numbers_is_exact(cuda, variant, blocks, stages, k):  # type: ignore[no-untyped-def]
    scales = np.array([0x00, 0x30, 0x38, 0x40])  # 0, 0.5, 1, 2
    weights, packed = random_weights(blocks, stages, k, scales)
    tokens = np.random.default_rng(k).integers(-4, 5, (TOKENS, k)).astype(np.float64)
    check_products(run(cuda, variant, packed, tokens, blocks)[0], weights, tokens, exact=True)


@pytest.mark.parametrize("variant", MULTIPLY)
@pytest.mark.parametrize(("blocks", "stages", "k"), SHAPES)
def test_product_under_all_scales(cuda, variant, blocks, stages, k):  # type: ignore[no-untyped-def]
    weights, packed = random_weights(blocks, stages, k, np.arange(0x7F))
    tokens = random_tokens(k)
    check_products(run(cuda, variant, packed, tokens, blocks)[0], weights, tokens, exact=False)


@pytest.mark.parametrize("moves", [False, True])
def test_dequantised_registers(cuda, moves):  # type: ignore[no-untyped-def]
    weights, packed = random_weights(
        3, 9, 1536, np.arange(1, 0x7F)
    )  # under a scale of 0 only the sign is left
    words = run(cuda, ("dequant", moves, IN_FLIGHT), packed, random_tokens(1536), 3)[0]
    # Row = row group, unit, row half, g; k = stage, K group, step, k half, t, pair.
    bits = bf16_bits(weights * 2.0**-51).reshape(3, 3, 2, 2, 2, 8, 3, 4, 8, 2, 4, 2)
    mixed = np.bitwise_xor.reduce(bits, axis=(1, 6, 8))  # row block, stage, step
    # Thread = row group, K group, g, t; word = unit, k half, row half.
    expected = mixed.transpose(0, 1, 5, 4, 7, 2, 6, 3, 8)
    assert (words.view(np.uint16).ravel() == expected.ravel()).all()


@pytest.mark.parametrize("in_flight", [0, 18_432, IN_FLIGHT, 2**32 - 1])
@pytest.mark.parametrize("moves", [False, True])
def test_any_limit_of_bytes_in_flight(cuda, moves, in_flight):  # type: ignore[no-untyped-def]
    packed = np.random.default_rng(3).integers(0, 256, 132 * 33 * STAGE_BYTES, np.uint8)
    tokens = random_tokens(4096)
    assert (run(cuda, ("stream", moves, in_flight), packed, tokens, 132) == 33).all()
    words = run(cuda, ("multiply", moves, in_flight), packed, tokens, 132)
    assert (words == run(cuda, ("multiply", False, IN_FLIGHT), packed, tokens, 132)).all()
    assert (words != POISON).any(axis=3).all()


@pytest.mark.parametrize("variant", MULTIPLY)
def test_a_hundred_repeats_are_the_same_bit_for_bit(cuda, variant):  # type: ignore[no-untyped-def]
    packed = np.random.default_rng(4).integers(0, 256, 132 * 17 * STAGE_BYTES, np.uint8)
    words = run(cuda, variant, packed, random_tokens(4096), 132, repeats=100)
    assert (words == words[0]).all()
    assert len(np.unique(words[0])) > 100_000


@pytest.mark.parametrize("work", ["stream", "dequant", "multiply"])
@pytest.mark.parametrize("lost_stage", [0, 11])
def test_a_loader_that_never_delivers_is_reported(cuda, work, lost_stage):  # type: ignore[no-untyped-def]
    weights, packed = random_weights(5, 16, 4096, np.arange(0x7F))
    tokens, budget_ns = random_tokens(4096), 5_000_000
    words, bytes_of_report = cuda.expert_product(
        (work, True, IN_FLIGHT), packed, bf16_bits(tokens), 5, lost_stage=lost_stage, budget_ns=budget_ns
    )
    report = np.frombuffer(bytes_of_report, _core.abi.wait_report_dtype)[0]
    assert report["claimed"] == 1
    assert report["abort"] == 1
    assert report["rank"] == 0
    assert report["block"] == 4
    assert 4 <= report["warp"] < 12
    assert JobTable.built_in().job_name(int(report["site"])) == "gemm1_wait_weights"
    assert (report["want"], report["got"]) == (1, 0)
    # Waits within a block have twice the budget.
    assert 2 * budget_ns < report["waited_ns"] < 2 * budget_ns + 100_000_000
    assert (words[0, 4] == POISON).all()
    assert (words[0, :4] != POISON).any(axis=2).all()
    again = run(cuda, ("multiply", True, IN_FLIGHT), packed, tokens, 5)
    check_products(again[0], weights, tokens, exact=False)


def test_what_does_not_fit_is_refused(cuda):  # type: ignore[no-untyped-def]
    variant, tokens = ("multiply", True, IN_FLIGHT), np.zeros((TOKENS, STAGE_K), np.uint16)
    with pytest.raises(ValueError, match="cannot have 5000 blocks"):
        cuda.expert_product(variant, np.zeros(5000 * STAGE_BYTES, np.uint8), tokens, 5000)
    with pytest.raises(ValueError, match="no whole stages"):
        cuda.expert_product(variant, np.zeros(STAGE_BYTES - 1, np.uint8), tokens, 1)
    with pytest.raises(ValueError, match="multiple of 512"):
        cuda.expert_product(variant, np.zeros(STAGE_BYTES, np.uint8), tokens[:, :256].copy(), 1)
    with pytest.raises(ValueError, match="choose stream"):
        cuda.expert_product(("all", True, IN_FLIGHT), np.zeros(STAGE_BYTES, np.uint8), tokens, 1)


def test_timing_spills_nothing(cuda):  # type: ignore[no-untyped-def]
    variants = [
        (work, moves, IN_FLIGHT) for work in ("stream", "dequant", "multiply") for moves in (False, True)
    ]
    timings = cuda.expert_times(variants, blocks=132, stages=9, launches=2, rounds=2)
    assert [(t["work"], t["move_registers"], t["in_flight_bytes"]) for t in timings] == variants
    for timing in timings:
        assert timing["local_bytes"] == 0
        assert timing["samples"] == 4
        assert 0 < timing["us_p10"] <= timing["us_p50"] <= timing["us_p90"]
        assert timing["tb_per_s"] == pytest.approx(132 * 9 * STAGE_BYTES / timing["us_p50"] * 1e-6)
