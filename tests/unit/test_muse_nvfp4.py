"""NVFP4: the number formats against torch and plain tables, and what quantisation promises."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musetrace.errors import UsageError
from musetrace.muse import nvfp4

# OCP Microscaling Formats specification 1.0, table 5: the magnitudes of e2m1.
E2M1_MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]

MATRICES = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 3).map(lambda blocks: 16 * blocks)),
    elements=st.floats(-(2.0**100), 2.0**100, width=32) | st.floats(-1, 1, width=32),
)


def test_e2m1_values() -> None:
    expected = E2M1_MAGNITUDES + [-value for value in E2M1_MAGNITUDES]
    assert nvfp4.e2m1_values().tolist() == expected


def test_e4m3_values() -> None:
    patterns = torch.arange(256, dtype=torch.uint8)
    expected = patterns.view(torch.float8_e4m3fn).float()
    assert torch.equal(nvfp4.e4m3_values().nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    assert nvfp4.e4m3_values().isnan().nonzero().flatten().tolist() == [0x7F, 0xFF]


def test_every_product_of_code_and_scale_is_exact_in_bf16() -> None:
    scales = nvfp4.e4m3_values()
    products = nvfp4.e2m1_values().double()[:, None] * scales[~scales.isnan()].double()
    assert products.shape == (16, 254)
    assert torch.equal(products.to(torch.bfloat16).double(), products)


def test_dequantize_reads_every_code_with_every_scale() -> None:
    # Row s holds the 16 codes in order, low nibble first, under scale pattern s.
    codes = torch.tensor([low | (low + 1) << 4 for low in range(0, 16, 2)], dtype=torch.uint8).repeat(256, 1)
    scales = torch.arange(256, dtype=torch.uint8)[:, None]
    values = nvfp4.dequantize_unscaled(codes, scales)
    signed = E2M1_MAGNITUDES + [-value for value in E2M1_MAGNITUDES]
    expected = torch.tensor(signed) * scales.view(torch.float8_e4m3fn).float()
    assert torch.equal(values.nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    scaled = nvfp4.dequantize(codes, scales, torch.tensor(0.75))
    assert torch.equal(scaled.nan_to_num(nan=1e9), (expected * 0.75).nan_to_num(nan=1e9))


def test_each_matrix_has_its_own_global_scale() -> None:
    weight = torch.full((3, 1, 16), 6.0) * torch.tensor([1.0, 2.0, 8.0])[:, None, None]
    quantised = nvfp4.quantize(weight)
    assert quantised.codes.shape == (3, 1, 8)
    assert quantised.scales.shape == (3, 1, 1)
    assert quantised.global_scale.shape == (3,)
    assert (quantised.global_scale / quantised.global_scale[0]).tolist() == [1.0, 2.0, 8.0]
    for index in range(3):
        alone = nvfp4.quantize(weight[index])
        assert torch.equal(alone.codes, quantised.codes[index])
        assert torch.equal(alone.global_scale, quantised.global_scale[index])


def test_values_of_the_format_survive() -> None:
    """All codes of a block, with block scales that e4m3 holds, come back as they were."""
    block = torch.tensor(E2M1_MAGNITUDES + [-value for value in E2M1_MAGNITUDES])
    weight = torch.cat([block * 448, block * 0.0625, block * 240])[None] * 2.0**-7
    assert torch.equal(nvfp4.quantize(weight).dequantize(), weight)


def test_ties_go_to_the_even_code() -> None:
    # The 6 makes the scales 448 and 1/448 of it, so that codes are read off directly.
    halves = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    weight = torch.tensor([[*halves, *(-value for value in halves), 6.0, 0.0]])
    expected = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert nvfp4.quantize(weight * 448).dequantize_unscaled()[0, :14].tolist() == [
        448 * value for value in [*expected, *(-value for value in expected)]
    ]


def nearest_code_error(value: float, step: float) -> float:
    return min(abs(value - sign * magnitude * step) for sign in (1, -1) for magnitude in E2M1_MAGNITUDES)


@settings(deadline=None)
@given(matrix=MATRICES)
def test_codes_are_the_nearest(matrix: npt.NDArray[np.float32]) -> None:
    quantised = nvfp4.quantize(torch.from_numpy(matrix))
    values = quantised.dequantize().double().numpy()
    scales = quantised.scales.view(torch.float8_e4m3fn).double() * quantised.global_scale.double()
    for (row, column), value in np.ndenumerate(matrix.astype(np.float64)):
        step = float(scales[row, column // 16])
        error = abs(value - values[row, column])
        # The division by the scale rounds to fp32: beside a midpoint, either neighbour may be taken.
        assert error <= nearest_code_error(value, step) + 1e-6 * step


@settings(deadline=None)
@given(matrix=MATRICES)
def test_error_bound(matrix: npt.NDArray[np.float32]) -> None:
    """At most half the widest gap of e2m1 (4 to 6), or what a scale rounded down cuts off above 6."""
    quantised = nvfp4.quantize(torch.from_numpy(matrix))
    errors = np.abs(quantised.dequantize().double().numpy() - matrix.astype(np.float64))
    largest = np.abs(matrix.astype(np.float64)).reshape(len(matrix), -1, 16).max(axis=-1)
    # A scale is within 1/16 of a sixth of the largest value, or it is the smallest one that is used.
    bound = np.maximum(largest / 6 * (1 + 1 / 16), 2.0**-6 * float(quantised.global_scale)) * (1 + 1e-6)
    assert (errors.reshape(*bound.shape, 16) <= bound[..., None]).all()
    # The global scale is the smallest of 8 significant bits (those of bf16) that reaches all values.
    exact = max(float(largest.max()) / (6 * 448), 2.0**-100)
    assert exact <= float(quantised.global_scale) <= exact * (1 + 2.0**-7)
    assert torch.equal(quantised.global_scale.bfloat16().float(), quantised.global_scale)
    # A loose global scale would make every scale coarse: the largest value of all keeps 5 % of itself.
    if np.abs(matrix).max() > 2.0**-80:
        row, column = np.unravel_index(np.abs(matrix).argmax(), matrix.shape)
        assert errors[row, column] <= 0.05 * abs(float(matrix[row, column]))


@settings(deadline=None)
@given(matrix=MATRICES)
def test_quantising_again_changes_nothing(matrix: npt.NDArray[np.float32]) -> None:
    once = nvfp4.quantize(torch.from_numpy(matrix))
    again = nvfp4.quantize(once.dequantize())
    assert torch.equal(once.codes, again.codes)
    assert torch.equal(once.scales, again.scales)
    assert torch.equal(once.global_scale, again.global_scale)


@settings(deadline=None)
@given(matrix=MATRICES)
def test_the_product_of_the_three_is_exact(matrix: npt.NDArray[np.float32]) -> None:
    """So the dequantised fp32 weights are the model, whatever the order of the factors."""
    quantised = nvfp4.quantize(torch.from_numpy(matrix))
    exact = quantised.dequantize_unscaled().double() * quantised.global_scale.double()
    assert torch.equal(quantised.dequantize().double(), exact)


def test_zero_quantises_to_zero() -> None:
    weight = torch.zeros(2, 2, 32)
    weight[1, 0, 5] = -1e-20
    quantised = nvfp4.quantize(weight)
    assert torch.equal(quantised.dequantize()[0], weight[0])
    assert quantised.dequantize()[1, 0, 5] < 0
    assert not quantised.codes[0].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_weights_that_no_scale_holds_are_refused(value: float) -> None:
    weight = torch.ones(2, 16)
    weight[1, 3] = value
    with pytest.raises(UsageError, match="finite"):
        nvfp4.quantize(weight)


@pytest.mark.parametrize("shape", [(4, 8), (4, 17), (16,), (0, 16)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="multiple of 16"):
        nvfp4.quantize(torch.ones(shape))


def test_scales_are_rounded_as_torch_rounds() -> None:
    """Block scales against torch's own conversion to e4m3, over all of the normal range."""
    largest = torch.logspace(-4, 0, 4001).reshape(-1, 1)
    largest[0] = 1.0
    weight = largest.repeat(1, 16)
    quantised = nvfp4.quantize(weight)
    wanted = (weight[:, :1] / quantised.global_scale / 6).to(torch.float8_e4m3fn)
    normal = wanted.float()[:, 0] >= 2.0**-6
    assert normal.sum() > 3000
    assert torch.equal(quantised.scales[normal], wanted.view(torch.uint8)[normal])
    assert (quantised.scales[~normal] == 0x08).all()


def test_all_pairs_of_nibbles_pack_low_first() -> None:
    values = E2M1_MAGNITUDES + [-value for value in E2M1_MAGNITUDES[1:]]
    for first, second in itertools.product(values, repeat=2):
        # The last two keep the scale of the block at 1 and the sign bits of both nibbles in use.
        block = torch.tensor([first, second] + [0.0] * 12 + [6.0, -6.0]) * 448
        quantised = nvfp4.quantize(block[None])
        byte = int(quantised.codes[0, 0])
        signed = nvfp4.e2m1_values().tolist()
        assert (signed[byte & 15], signed[byte >> 4]) == (first, second)
        assert int(quantised.codes[0, 7]) == 7 | 15 << 4
