"""The CPU device against the torch reference, layer by layer on the reference's own inputs.

Both round at the same places (musetrace.muse.rounding); what is left is the order of fp32 sums, which may
push a value over a bf16 edge. Tolerances are in units of the output's rms.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from musetrace.errors import DeviceError, UsageError
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cpu_device import TOKENS, CpuDevice, LaunchTimeoutError
from musetrace.muse.reference import KvCache, Rounding, VerifyResult, verify
from musetrace.muse.weights import ModelWeights, synthesize

CAPACITY = 160
# 96 > the sliding window of 64, so the window cuts.
POSITION = 96


# Sliding and global layers with bf16 and with NVFP4 experts.
LAYERS = 6


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def model(layers: int) -> ModelWeights:
    return synthesize(replace(preset("mini"), num_hidden_layers=layers), seed=3)


@pytest.fixture(scope="module")
def weights() -> ModelWeights:
    return model(LAYERS)


@pytest.fixture(scope="module")
def short_weights() -> ModelWeights:
    """Three layers: sliding bf16, sliding NVFP4, global bf16."""
    return model(3)


@cache
def reference_of(tp: int) -> tuple[VerifyResult, KvCache]:
    return reference(model(LAYERS), tp)


def reference(weights: ModelWeights, tp: int) -> tuple[VerifyResult, KvCache]:
    cache = KvCache.empty(weights.config, CAPACITY)
    ids = torch.from_numpy(
        np.random.default_rng(5).integers(weights.config.vocab_size, size=POSITION + TOKENS)
    )
    verify(weights, ids[:POSITION], 0, cache, Rounding.BF16, tp)
    return verify(weights, ids[POSITION:], POSITION, cache, Rounding.BF16, tp), cache


def heads_of(tensor: torch.Tensor, rank: int, tp: int, dim: int) -> np.ndarray:
    return tensor.chunk(tp, dim=dim)[rank].numpy()


def put_layer(device: CpuDevice, expected: VerifyResult, cache: KvCache, layer: int) -> None:
    """The reference's input of a layer into the device."""
    device.set_residual(expected.hidden_states[layer].numpy())
    projected = expected.layers[layer].projected
    for rank in range(device.tp):
        q, gate = (
            heads_of(part, rank, device.tp, 1).reshape(TOKENS, -1) for part in (projected.q, projected.gate)
        )
        device.set_projection(rank, q, gate)
        k, v = (heads_of(part[layer].nan_to_num(), rank, device.tp, 0) for part in (cache.k, cache.v))
        device.set_kv(rank, layer, k, v)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("blocks", [1, 3])
def test_each_layer_equals_the_reference(weights: ModelWeights, tp: int, blocks: int) -> None:
    config = weights.config
    expected, cache = reference_of(tp)
    device = CpuDevice(weights, tp=tp, blocks=blocks, capacity=CAPACITY)
    for layer in range(config.num_hidden_layers):
        put_layer(device, expected, cache, layer)
        device.wait(device.launch("layer", layer, POSITION))
        want = expected.hidden_states[layer + 1].numpy()
        for rank in range(tp):
            got = device.residual(rank)
            assert relative_error(got, want) < 2e-3, f"layer {layer} rank {rank}"
            np.testing.assert_array_equal(got, device.residual(0), err_msg="ranks disagree")
        if layer + 1 < config.num_hidden_layers:
            check_next_projection(device, expected, layer + 1)


def check_next_projection(device: CpuDevice, expected: VerifyResult, layer: int) -> None:
    """q, gate, k and v that the launch left for the next layer."""
    projected = expected.layers[layer].projected
    for rank in range(device.tp):
        q, gate = device.projection(rank)
        k, v = (part[:, POSITION : POSITION + TOKENS] for part in device.kv(rank, layer))
        pairs = [
            (q, projected.q),
            (gate, projected.gate),
            (k.swapaxes(0, 1), projected.k),
            (v.swapaxes(0, 1), projected.v),
        ]
        for got, whole in pairs:
            want = heads_of(whole, rank, device.tp, 1)
            assert relative_error(got.reshape(want.shape), want) < 5e-3, f"layer {layer} rank {rank}"


@pytest.mark.parametrize("tp", [1, 4])
def test_entry_and_head_equal_the_reference(weights: ModelWeights, tp: int) -> None:
    expected, _ = reference_of(tp)
    device = CpuDevice(weights, tp=tp, blocks=2, capacity=CAPACITY)
    device.set_residual(expected.hidden_states[0].numpy())
    device.wait(device.launch("entry", 0, POSITION))
    check_next_projection(device, expected, 0)
    device.set_residual(expected.hidden_states[-1].numpy())
    device.wait(device.launch("head", weights.config.num_hidden_layers, POSITION))
    assert relative_error(device.logits(), expected.logits.numpy()) < 2e-3


def run_pass(device: CpuDevice, residual: np.ndarray, stamps: str, address: int = 0) -> list[np.ndarray]:
    """A whole pass at position 0; everything it leaves behind."""
    device.set_residual(residual)
    tickets = [device.launch("entry", 0, 0, stamps, address, 1)]
    for layer in range(device.config.num_hidden_layers):
        tickets.append(device.launch("layer", layer, 0, stamps, address, 1))
    tickets.append(device.launch("head", device.config.num_hidden_layers, 0, stamps, address, 1))
    device.wait(tickets[-1])
    kv = [
        part for layer in range(device.config.num_hidden_layers) for part in device.kv(device.tp - 1, layer)
    ]
    return [device.logits(), device.residual(0), *kv]


def test_100_repeats_and_all_stamp_builds_are_bit_identical(short_weights: ModelWeights) -> None:
    device = CpuDevice(short_weights, tp=2, blocks=2, capacity=16)
    residual = np.random.default_rng(1).standard_normal((TOKENS, 512), dtype=np.float32)
    buffer = np.zeros(1 << 16, dtype=np.uint8)
    address = buffer.ctypes.data + -buffer.ctypes.data % 128
    first = run_pass(device, residual, "off")
    for repeat in range(100):
        stamps = ("off", "store", "register")[repeat % 3]
        again = run_pass(device, residual, stamps, 0 if stamps == "off" else address)
        for got, want in zip(again, first, strict=True):
            assert got.tobytes() == want.tobytes(), f"repeat {repeat} with stamps {stamps} differs"
    assert buffer.any()


def test_other_input_gives_other_output(short_weights: ModelWeights) -> None:
    device = CpuDevice(short_weights, tp=2, blocks=2, capacity=16)
    residuals = np.random.default_rng(2).standard_normal((2, TOKENS, 512), dtype=np.float32)
    assert not np.array_equal(*(run_pass(device, residual, "off")[0] for residual in residuals))


def test_lost_arrival_is_named_and_the_device_survives(short_weights: ModelWeights) -> None:
    device = CpuDevice(short_weights, tp=2, blocks=1, capacity=16, budget_ns=400_000_000)
    residual = np.random.default_rng(1).standard_normal((TOKENS, 512), dtype=np.float32)
    good = run_pass(device, residual, "off")
    names = [job.name for job in JobTable.built_in().jobs]
    device.set_delay(1, names.index("unpooler_send"), 2_000_000_000)
    with pytest.raises(
        LaunchTimeoutError, match=r"in stop5_wait_ranks for unpooler_send \(0 of \d+ arrived\)"
    ) as caught:
        run_pass(device, residual, "off")
    assert caught.value.report["waited_ns"] >= 400_000_000
    device.set_delay(1, names.index("unpooler_send"), 0)
    assert run_pass(device, residual, "off")[0].tobytes() == good[0].tobytes()


def test_what_cannot_run_is_refused_before_a_launch(short_weights: ModelWeights) -> None:
    with pytest.raises(UsageError, match="use another --tp"):
        CpuDevice(short_weights, tp=3, blocks=2, capacity=16)
    with pytest.raises(UsageError, match="fewer blocks"):
        CpuDevice(short_weights, tp=2, blocks=513, capacity=16)
    device = CpuDevice(short_weights, tp=1, blocks=1, capacity=32)
    with pytest.raises(DeviceError, match="the KV cache is full"):
        device.launch("layer", 0, 17)
