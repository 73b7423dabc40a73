"""Packed weights: each element lies where the matrix instruction wants it and comes out as what it was.

The oracles are the fragment layout of the PTX ISA, walked lane by lane in plain Python, tables of the number
formats made by arithmetic, and the device's instruction sequence (``csrc/megakernel/fragment.h``) in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from musetrace.errors import UsageError
from musetrace.muse import MuseConfig, preset
from musetrace.muse.packed_layer import PackedExperts, pack_layer
from musetrace.muse.packing import (
    gate_up_rows,
    gate_up_tiles,
    pack_bf16,
    pack_nvfp4,
    unpack_bf16,
    unpack_nvfp4,
)
from musetrace.muse.packing_codes import scale_bytes, words_of_bytes
from musetrace.muse.packing_layout import StageLayout
from musetrace.muse.sharding import RankLayer, shard_layer
from musetrace.muse.weights import synthesize_layer

UNDO = 2.0**51  # what the device's products lack

E2M1 = [
    (1 - code // 8 * 2) * value for code in range(16) for value in [[0, 0.5, 1, 1.5, 2, 3, 4, 6][code % 8]]
]
E2M1[8] = -0.0


def e4m3(pattern: int) -> float:
    exponent, mantissa = pattern >> 3, pattern & 7
    return mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def values_of(bf16_bits: NDArray[np.uint32]) -> NDArray[np.float64]:
    return (bf16_bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def extracted(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Bf16 bits [..., register, half] before the scales: the device's masks and shifts."""
    w = words.astype(np.uint32)
    registers = [
        w & 0x81C081C0,
        (w << np.uint32(6)) & 0x81C081C0,
        (w >> np.uint32(4) | w << np.uint32(28)) & 0x81C081C0,
        (w << np.uint32(2)) & 0x80C080C0 | (w >> np.uint32(6)) & 0x01000100,
    ]
    return np.stack([np.stack((r & 0xFFFF, r >> np.uint32(16)), -1) for r in registers], -2)


def scaled(codes: NDArray[np.uint32], scale: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Products of bf16 bits and scale bytes, after a check that each is a bf16 number."""
    products = values_of(codes) * values_of((scale.astype(np.uint32) << 4) + 0x6000)
    assert (products.astype(np.float32).view(np.uint32) & 0xFFFF == 0).all()
    assert (products == products.astype(np.float32)).all()
    return products


def fragment() -> Iterator[tuple[int, int, int, int]]:
    """(lane, element a_i, row, column) of an A fragment, by the formulas of the PTX ISA for m16n8k16."""
    for lane in range(32):
        group, in_group = lane >> 2, lane % 4
        for i in range(8):
            row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
            column = in_group * 2 + (i & 1) if i < 4 else in_group * 2 + (i & 1) + 8
            yield lane, i, row, column


def random_nvfp4(rows: int, k: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (rows, k // 2), dtype=np.uint8)
    return codes, rng.integers(1, 0x7F, (rows, k // 16), dtype=np.uint8)


def dequantized(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float64]:
    nibbles = np.stack((codes & 15, codes >> 4), -1).reshape(len(codes), -1)
    table = np.array([e4m3(pattern) for pattern in range(0x7F)])
    return np.array(E2M1)[nibbles] * np.repeat(table[scales], 16, axis=-1)


# Numbers


def test_every_code_under_every_scale_comes_out_exact_in_every_place() -> None:
    code, scale, place = np.meshgrid(np.arange(16), np.arange(1, 0x7F), np.arange(8), indexing="ij")
    nibbles = np.where(np.arange(8) == place[..., None], code[..., None], ~code[..., None] & 15)
    pairs = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8)
    words = words_of_bytes((pairs[..., 0], pairs[..., 1], pairs[..., 2], pairs[..., 3]))
    bits = extracted(words).reshape(*words.shape, 8)
    taken = np.take_along_axis(bits, place[..., None], -1)[..., 0]
    values = scaled(taken, scale_bytes(scale.astype(np.uint8))) * UNDO
    expected = np.array(E2M1)[code] * np.array([e4m3(pattern) for pattern in range(0x7F)])[scale]
    assert values.size == 16 * 126 * 8
    assert (values.view(np.uint64) == expected.view(np.uint64)).all()  # signs of zeros too


def test_scale_bytes_are_those_of_the_formula() -> None:
    for pattern in range(1, 0x7F):
        mantissa, exponent = np.frexp(e4m3(pattern))  # in [0.5, 1)
        byte = (int(exponent) - 1 + 10) * 8 + int((2 * mantissa - 1) * 8)
        assert int(scale_bytes(np.array([pattern], np.uint8))[0]) == byte <= 150
    assert scale_bytes(np.zeros(1, np.uint8)).tolist() == [0]


def test_a_scale_of_zero_gives_signed_zeros() -> None:
    codes, scales = random_nvfp4(64, 128, 1)
    scales[3, 2] = scales[40, :] = 0
    back, back_scales = unpack_nvfp4(pack_nvfp4(codes, scales), 64, 128)
    assert (back_scales == scales).all()
    expected = dequantized(codes, scales)
    assert (dequantized(back, back_scales).view(np.uint64) == expected.view(np.uint64)).all()
    lanes = nvfp4_as_lanes_see_it(pack_nvfp4(codes, scales), 64, 128)
    assert (lanes.view(np.uint64) == expected.view(np.uint64)).all()


# Places


@pytest.mark.parametrize(("rows", "k"), [(16, 16), (32, 64), (40, 512), (16, 1024)])
def test_bf16_lies_as_the_instruction_wants_it(rows: int, k: int) -> None:
    bits = np.random.default_rng(k).integers(1, 2**16, (rows, k), dtype=np.uint16)
    padded = np.zeros((-(-rows // 16) * 16, k), np.uint16)
    padded[:rows] = bits
    stage = min(k, 512)
    expected = []
    for tile in range(0, len(padded), 16):
        for first in range(0, k, stage):
            for step in range(first, first + stage, 16):
                expected += [padded[tile + row, step + column] for _, _, row, column in fragment()]
    assert pack_bf16(bits).view(np.uint16).tolist() == expected


def nvfp4_as_lanes_see_it(packed: NDArray[np.uint8], rows: int, k: int) -> NDArray[np.float64]:
    """The matrix put together from what every lane loads, by offsets that are written out here."""
    stage_k = min(k, 512)
    unit_bytes = 16 * stage_k // 2 + stage_k
    matrix = np.full((-(-rows // 64) * 64, k), np.nan)
    units = packed.reshape(-1, k // stage_k, 4, unit_bytes)
    for block, stage, unit in np.ndindex(units.shape[:3]):
        data = units[block, stage, unit]
        for step in range(stage_k // 16):
            words = np.zeros(32, np.uint32)
            scales = np.zeros((32, 2), np.uint8)
            for lane in range(32):
                at = step // 4 * 512 + lane * 16 + step % 4 * 4
                words[lane] = int.from_bytes(data[at : at + 4].tobytes(), "little")
                at = stage_k * 8 + step // 8 * 128 + lane // 4 * 16 + step % 8 * 2
                scales[lane] = data[at : at + 2]
            bits = extracted(words)
            for lane, i, row, column in fragment():
                # Two elements in a register; registers 1 and 3 are of row g + 8.
                scale = scales[lane, i // 2 % 2]
                value = scaled(bits[lane, i // 2, i % 2], np.asarray(scale))
                matrix[block * 64 + unit * 16 + row, stage * stage_k + step * 16 + column] = value * UNDO
    return matrix[:rows]


@pytest.mark.parametrize(("rows", "k"), [(64, 128), (70, 256), (16, 1024)])
def test_nvfp4_lies_as_the_instruction_wants_it(rows: int, k: int) -> None:
    codes, scales = random_nvfp4(rows, k, seed=k)
    lanes = nvfp4_as_lanes_see_it(pack_nvfp4(codes, scales), rows, k)
    assert (lanes.view(np.uint64) == dequantized(codes, scales).view(np.uint64)).all()


@given(tiles=st.integers(1, 4), columns=st.integers(1, 3))
def test_gate_and_up_of_a_feature_are_rows_g_and_g_plus_8(tiles: int, columns: int) -> None:
    features = 8 * tiles
    gate, up = np.arange(features), 1000 + np.arange(features)
    rows = np.repeat(np.stack((gate, up), 1).reshape(-1, 1), columns, 1)
    tiled = gate_up_tiles(rows)
    for feature in range(features):
        first = feature // 8 * 16 + feature % 8
        assert (tiled[first] == feature).all()
        assert (tiled[first + 8] == 1000 + feature).all()
    assert (gate_up_rows(tiled) == rows).all()
    assert (gate_up_tiles(np.stack((rows, rows + 1)))[1] == tiled + 1).all()


# Round trips


@given(rows=st.integers(1, 70), fragments=st.integers(1, 32) | st.just(96), seed=st.integers(0, 2**32 - 1))
def test_bf16_round_trip(rows: int, fragments: int, seed: int) -> None:
    k = 16 * fragments
    bits = np.random.default_rng(seed).integers(0, 2**16, (rows, k), dtype=np.uint16)
    packed = pack_bf16(bits)
    assert packed.shape == (StageLayout("bf16", rows, k).nbytes,)
    assert (unpack_bf16(packed, rows, k) == bits).all()
    filled = StageLayout("bf16", rows, k).padded_rows
    assert not unpack_bf16(packed, filled, k)[rows:].any()


@given(rows=st.integers(1, 130), loads=st.integers(1, 4) | st.just(8), seed=st.integers(0, 2**32 - 1))
def test_nvfp4_round_trip(rows: int, loads: int, seed: int) -> None:
    k = 128 * loads
    codes, scales = random_nvfp4(rows, k, seed)
    packed = pack_nvfp4(codes, scales)
    assert packed.shape == (StageLayout("nvfp4", rows, k).nbytes,)
    back_codes, back_scales = unpack_nvfp4(packed, rows, k)
    assert (back_codes == codes).all()
    assert (back_scales == scales).all()
    filled_codes, filled_scales = unpack_nvfp4(packed, StageLayout("nvfp4", rows, k).padded_rows, k)
    assert not filled_codes[rows:].any()
    assert not filled_scales[rows:].any()


def test_packing_reads_views_that_are_not_contiguous() -> None:
    bits = np.random.default_rng(0).integers(0, 2**16, (64, 32), dtype=np.uint16)
    assert (pack_bf16(bits.T) == pack_bf16(np.ascontiguousarray(bits.T))).all()
    codes, scales = random_nvfp4(128, 256, 0)
    assert (pack_nvfp4(codes[::2], scales[::2]) == pack_nvfp4(codes[::2].copy(), scales[::2].copy())).all()
    twice = np.repeat(pack_nvfp4(codes, scales), 2)[::2]
    assert (unpack_nvfp4(twice, 128, 256)[0] == codes).all()


# Sizes


def test_stages_have_the_bytes_that_the_ring_is_cut_for() -> None:
    assert StageLayout("bf16", 16, 512).stage_bytes == 16 * 512 * 2 == 16_384
    assert StageLayout("nvfp4", 64, 512).stage_bytes == 64 * 512 * 9 // 16 == 18_432
    assert StageLayout("nvfp4", 64, 4096).nbytes == 8 * 18_432
    layout = StageLayout("nvfp4", 1024, 4096)
    assert layout.stage_offset(3, 5) == (3 * 8 + 5) * 18_432
    assert layout.stage_offset(15, 7) + layout.stage_bytes == layout.nbytes


def test_a_slice_of_the_public_model_has_the_bytes_of_the_arithmetic() -> None:
    dense = {
        "qkvg": ((16 + 2 + 2 + 16) * 64, 8192, 37_748_736),
        "o": (8192, 1024, 16_777_216),
        "pooler": (512, 8192, 8_388_608),
        "unpooler": (8192, 512, 8_388_608),
    }
    for rows, k, nbytes in dense.values():
        layout = StageLayout("bf16", rows, k)
        assert layout.nbytes == rows * k * 2 == nbytes
        assert layout.row_blocks * layout.k_stages % 128 == 0  # as many stages for each of 128 blocks
    gate_up, down = StageLayout("nvfp4", 1024, 4096).nbytes, StageLayout("nvfp4", 512, 4096).nbytes
    assert (gate_up, down) == (2_359_296, 1_179_648)
    assert gate_up + down == 3 * 4096 * 4096 * 9 // 16 // 8 == 3_538_944
    bf16 = StageLayout("bf16", 1024, 4096).nbytes + StageLayout("bf16", 512, 4096).nbytes
    assert bf16 == 3 * 4096 * 4096 * 2 // 8
    layers = 62 * (sum(nbytes for _, _, nbytes in dense.values()) + 32 * 8192 * 4)
    experts = 256 * (60 * (gate_up + down) + 2 * bf16)
    lm_head = StageLayout("bf16", 202_048 // 8, 8192)
    assert lm_head.nbytes == (202_048 // 8 + 8) * 8192 * 2  # half a tile of zero rows
    assert round((layers + experts + lm_head.nbytes) / 1e9, 1) == 65.7


# Layers


@pytest.fixture(scope="module")
def mini() -> MuseConfig:
    return preset("mini")


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_packed_layer_is_the_shard(mini: MuseConfig, layer: int, tp: int) -> None:
    shard = shard_layer(synthesize_layer(mini, 5, layer), mini, tp - 1, tp)
    packed = pack_layer(shard)
    for name in ("qkvg", "o", "pooler", "unpooler"):
        matrix, tensor = getattr(packed, name), getattr(shard, name)
        assert (unpack_bf16(matrix.data, *tensor.shape) == bits_of(tensor)).all()
    assert (packed.router == shard.router.numpy()).all()
    for name in ("gate_up", "down"):
        check_experts(getattr(packed, name), shard, name)
    values = sum(t.numel() for t in (shard.qkvg, shard.o, shard.pooler, shard.unpooler))
    assert packed.dense_bytes == 2 * values + 4 * shard.router.numel()
    weights = 3 * mini.moe_hidden_size * mini.moe_intermediate_size // tp
    assert packed.expert_bytes == (2 * weights if layer == 0 else weights * 9 // 16)


def bits_of(tensor: torch.Tensor) -> NDArray[np.uint16]:
    bits: NDArray[np.uint16] = tensor.view(torch.int16).numpy().view(np.uint16)
    return bits


def check_experts(packed: PackedExperts, shard: RankLayer, name: str) -> None:
    bf16 = getattr(shard, name)
    rows, k = packed.layout.rows, packed.layout.k
    for expert, data in enumerate(packed.data):
        if bf16 is not None:
            parts, expected = (unpack_bf16(data, rows, k),), (bits_of(bf16)[expert],)
            assert packed.factor[expert] == 1
        else:
            parts = unpack_nvfp4(data, rows, k)
            expected = tuple(getattr(shard, f"{name}_{part}")[expert].numpy() for part in ("codes", "scales"))
            assert packed.factor[expert] == float(getattr(shard, f"{name}_global")[expert]) * UNDO
        for part, wanted in zip(parts, expected, strict=True):
            order = tile_order(rows) if name == "gate_up" else range(rows)
            assert (part == wanted[order]).all()


def tile_order(rows: int) -> list[int]:
    """For each packed row the row of the shard, where row 2 j is gate j and row 2 j + 1 is up j."""
    features = range(rows // 2)
    return [2 * j + up for tile in range(0, rows // 2, 8) for up in (0, 1) for j in features[tile : tile + 8]]


# Agreement with the compiled part


def test_the_compiled_sequence_is_the_one_of_this_test() -> None:
    cuda = pytest.importorskip("musetrace._cuda", reason="built without nvcc")
    words = np.random.default_rng(3).integers(0, 2**32, 5000, dtype=np.uint32)
    bits = extracted(words)
    assert (cuda.extract_codes(words) == bits[..., 0] | bits[..., 1] << np.uint32(16)).all()


@pytest.mark.parametrize("k", [128, 256, 512, 4096])
@pytest.mark.parametrize("format", ["bf16", "nvfp4"])
def test_python_and_the_compiler_agree_on_sizes(format: str, k: int) -> None:
    cuda = pytest.importorskip("musetrace._cuda", reason="built without nvcc")
    layout = StageLayout(format, 64, k)  # type: ignore[arg-type]
    compiled = cuda.packed_layout(format, k)
    assert 2.0 ** -compiled.pop("product_exponent") == UNDO
    assert compiled == {name: getattr(layout, name) for name in compiled}
    assert len(compiled) == 4


# Refusals


@pytest.mark.parametrize(
    ("format", "rows", "k"),
    [
        ("bf16", 16, 8),
        ("bf16", 16, 528),
        ("bf16", 0, 16),
        ("nvfp4", 64, 64),
        ("nvfp4", 64, 640),
        ("nvfp4", 64, 0),
    ],
)
def test_sizes_that_do_not_fit_are_refused(format: str, rows: int, k: int) -> None:
    with pytest.raises(UsageError, match=f"{rows} x {k}"):
        StageLayout(format, rows, k)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [0x7F, 0x80, 0x81, 0xFF])
def test_scales_that_are_no_scales_are_refused(pattern: int) -> None:
    codes, scales = random_nvfp4(64, 128, 0)
    scales[63, 7] = pattern
    with pytest.raises(UsageError, match="block scale"):
        pack_nvfp4(codes, scales)


def test_arrays_that_do_not_fit_are_refused() -> None:
    codes, scales = random_nvfp4(64, 128, 0)
    with pytest.raises(UsageError, match="scales of 64 x 8"):
        pack_nvfp4(codes, scales[:, :4])
    with pytest.raises(UsageError, match="uint16 matrix"):
        pack_bf16(np.zeros((16, 16), np.float32))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="uint8 matrix"):
        pack_nvfp4(codes[None], scales[None])
    with pytest.raises(UsageError, match="do not fill tiles"):
        gate_up_tiles(codes[:24])


def test_damaged_packed_weights_are_refused() -> None:
    packed = pack_nvfp4(*random_nvfp4(64, 128, 0))
    with pytest.raises(UsageError, match="4608 bytes"):
        unpack_nvfp4(packed[:-1], 64, 128)
    packed[-1] = 9  # 2**-9 with a mantissa, which no e4m3 number has
    with pytest.raises(UsageError, match="scale byte"):
        unpack_nvfp4(packed, 64, 128)
    with pytest.raises(UsageError, match="512 bytes"):
        unpack_bf16(np.zeros(511, np.uint8), 16, 16)


def test_a_global_scale_beyond_fp32_is_refused(mini: MuseConfig) -> None:
    shard = shard_layer(synthesize_layer(mini, 5, 1), mini, 0, 4)
    assert shard.down_global is not None
    shard.down_global[2] = 2.0**80
    with pytest.raises(UsageError, match="global scale"):
        pack_layer(shard)
