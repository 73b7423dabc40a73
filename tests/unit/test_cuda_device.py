"""The GPU device's Python side, around a compiled device that runs nothing."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from musetrace.errors import DeviceError, UsageError
from musetrace.muse.config import preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.cuda_model import RandomRanks
from musetrace.muse.device import LaunchTimeoutError
from musetrace.muse.peer_requirements import RankShare
from tests.unit import fake_cuda

LAYERS = 3


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return fake_cuda.install(monkeypatch)


def device(module: ModuleType, tp: int = 2, slice_tp: int | None = None) -> CudaDevice:
    config = replace(preset("mini"), slice_tp=slice_tp)
    return CudaDevice(module, config, tp=tp, blocks=2, capacity=64, layers=LAYERS)


def bf16_numbers(*shape: int) -> np.ndarray:
    """Numbers that bf16 holds exactly, all different."""
    count = int(np.prod(shape))
    assert count <= 1 << 15
    values = (np.arange(count, dtype=np.uint32) + 0x3F80) << 16
    return values.view(np.float32).reshape(shape)


def test_every_layer_gets_its_addresses_and_its_kind(module: ModuleType) -> None:
    cuda = device(module, tp=2, slice_tp=2)
    cuda.load(RandomRanks(cuda.config, 2, 0, torch.device("cpu")))
    made = module.made[0]
    assert (made.loopback, made.ranks, cuda.ranks) == (True, 1, 1)
    assert set(made.layers) == {(0, 0), (0, 1), (0, 2)}
    # Of mini's eight layers the fourth and the last are global, the first and the last are bf16.
    assert [facts[1:] for facts in made.layers.values()] == [(False, True), (False, False), (False, False)]
    kept = {tensor.data_ptr() for tensors in cuda._tensors for tensor in tensors.values()}
    for addresses, _, _ in made.layers.values():
        assert set(addresses.values()) <= kept
    assert set(made.heads[0]) == {"lm_head", "final_norm"}
    assert "rope" in made.log


def test_a_process_loads_the_weights_of_its_own_ranks(module: ModuleType) -> None:
    asked: list[tuple[int, int | None]] = []

    class Asked:
        def layer(self, rank: int, layer: int) -> dict[str, torch.Tensor]:
            asked.append((rank, layer))
            return {}

        def head(self, rank: int) -> dict[str, torch.Tensor]:
            asked.append((rank, None))
            return {}

    share = RankShare(first_rank=2, held=2)
    cuda = CudaDevice(module, preset("mini"), tp=4, blocks=2, capacity=64, layers=1, share=share)
    cuda.load(Asked())
    made = module.made[0]
    assert (made.first_rank, made.held, cuda.ranks) == (2, 2, 2)
    assert asked == [(2, 0), (2, None), (3, 0), (3, None)]
    assert set(made.layers) == {(0, 0), (1, 0)}
    with pytest.raises(DeviceError, match="not connected"):
        cuda.launch("entry", 0, 0)


def test_values_go_in_and_come_out_as_float32_with_v_by_dimension(module: ModuleType) -> None:
    cuda = device(module)
    made = module.made[0]
    k, v = bf16_numbers(1, 64, 64), bf16_numbers(1, 64, 64) * 2
    cuda.set_kv(1, 2, k, v)
    assert made.stored["v", 1, 2].shape == (1, 64, 64)
    assert (made.stored["v", 1, 2][0, 5] == (v[0, :, 5].copy().view(np.uint32) >> 16)).all()
    got_k, got_v = cuda.kv(1, 2)
    assert (got_k == k).all()
    assert (got_v == v).all()
    q, gate = bf16_numbers(16, 64), bf16_numbers(16, 64) * 4
    cuda.set_projection(1, q, gate)
    assert all((got == put).all() for got, put in zip(cuda.projection(1), (q, gate), strict=True))
    residual = np.random.default_rng(0).standard_normal((16, 512))
    cuda.set_residual(residual)
    for rank in (0, 1):
        assert (cuda.residual(rank) == residual.astype(np.float32)).all()
    assert cuda.logits().shape == (16, cuda.config.vocab_size)


def test_the_step_s_state_is_set_once_for_a_step(module: ModuleType) -> None:
    cuda = device(module)
    for position in (16, 16, 32):
        cuda.launch("entry", 0, position)
    graph = cuda.capture([("layer", 1, 0, 0)], "off")
    cuda.replay(graph, 32, 9)
    cuda.launch("layer", 1, 32)
    states = [entry for entry in module.made[0].log if entry[0] == "state"]
    assert states == [("state", 16, 0), ("state", 32, 0), ("state", 32, 9), ("state", 32, 0)]


def test_a_wait_that_ran_out_of_time_is_a_sentence_over_the_hopper_jobs(module: ModuleType) -> None:
    cuda = device(module)
    cuda.set_lost_block(3)
    tickets = [cuda.launch("layer", layer, 0) for layer in range(2)]
    with pytest.raises(LaunchTimeoutError) as caught:
        cuda.wait(tickets[0])
    # Job 12 of csrc/include/musetrace/abi/muse_hopper_jobs.h.
    assert "rank 1 block 3 warp 4 waited 0.2 s in stop1_wait_ranks for o_proj_send (0 of 1 arrived)" in str(
        caught.value
    )
    assert caught.value.report == fake_cuda.REPORT
    cuda.wait(tickets[1])  # ended with the other one
    cuda.set_lost_block(None)
    cuda.wait(cuda.launch("layer", 0, 0))


def test_what_the_compiled_device_refuses_is_one_line(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = device(module)
    with pytest.raises(DeviceError, match="the KV cache is full: position 49"):
        cuda.launch("entry", 0, 49)
    with pytest.raises(UsageError, match="tensor-parallel|cannot be shared"):
        device(module, tp=3)

    def broken() -> None:
        raise RuntimeError("an illegal memory access\nwas encountered")

    monkeypatch.setattr(module.made[0], "synchronize", broken)
    with pytest.raises(DeviceError, match="an illegal memory access was encountered; see nvidia-smi"):
        cuda.wait(cuda.launch("entry", 0, 0))


def test_what_a_recorder_gets_to_know(module: ModuleType) -> None:
    source = device(module, tp=2, slice_tp=2).stamp_source("store", {"name": "m"}, {"tp": 2})
    assert (source.job_table.name, source.ranks, source.blocks, source.slot_bytes) == ("muse_hopper", 1, 2, 8)
    assert (source.device["kind"], source.device["name"], source.device["sms"]) == (
        "cuda",
        "NVIDIA H200",
        132,
    )
    assert source.device["virtual_ranks"] == "loopback"
    assert (source.clock_name, source.tick_ns, source.buffers) == ("globaltimer", 32, 64)
    assert source.build == {"tp": 2, "registers": 168, "spilled_bytes": 0}
    assert device(module).stamp_source("off", {}, {}).device["virtual_ranks"] == 2


def test_pinned_buffers_are_aligned_cleared_and_have_a_region() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from musetrace.muse.cuda_stamps import StampCopies

    copies = StampCopies(torch.cuda.Stream().cuda_stream, torch.device("cuda"))
    for size_bytes in (128, 155_264):
        memory = copies.allocate(size_bytes)
        assert memory.ctypes.data % 128 == 0
        assert memory.nbytes == size_bytes
        assert not memory.any()
        region = copies.region_of(memory.ctypes.data)
        region.fill_(7)
        torch.cuda.synchronize()
        copies.fetch(region, [memory.ctypes.data]).synchronize()
        assert (memory == 7).all()
        assert not region.any()
