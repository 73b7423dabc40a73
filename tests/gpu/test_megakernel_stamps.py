"""What the layer kernel's launches stamp, on a real GPU."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from musetrace import _core
from tests.gpu import layer_case
from tests.gpu.layer_case import Request, Setup, make_setup, put, random_step, run

pytestmark = pytest.mark.gpu

POSITION = 300
WIDEN_BACK_NS = _core.abi.WIDEN_BACK_NS
EPOCH, EPOCH_OF_STEP = 7, 1000
LONGEST_NS = 1_000_000_000  # far above a launch, far below a wrap of the low 32 bits
SLOT_BYTES = {"store": 8, "register": 4}
# Rows of a block's second tile of GEMM 1: with many blocks, none has a second one.
ONLY_WITH_MORE_TILES = {"gemm1_load_rows"}
OPS_ELSEWHERE = {"entry", "lm_head"}
JOBS = {
    "entry": {"exchange_reset", "entry_wait_ranks", "entry_sum", "entry_wait_rows", "entry_norm"}
    | {"qkv_load", "qkv_wait_input", "qkv_wait_weights", "qkv_compute", "qkv_wait_slices", "qkv_rope"},
    "head": {"lm_head_load", "lm_head_load_input", "lm_head_wait_weights", "lm_head_compute"},
    "layer": {job.name for job in layer_case.job_table().jobs if job.op not in OPS_ELSEWHERE},
}
# With 16 blocks, every block of `mini` at TP 1 has a part of every job.
ALL_BUSY = (1, 16)


@pytest.fixture(scope="module", params=[ALL_BUSY, (1, 132), (2, 66), (4, 33)], ids=str)
def setup(cuda: ModuleType, request: pytest.FixtureRequest) -> Setup:
    return make_setup(cuda, *request.param)


def stamped(setup: Setup, kind: str, build: str) -> NDArray[np.uint8]:
    """The stamp regions [rank, bytes] of a launch."""
    step = random_step(setup.weights, 1, POSITION, seed=1)
    region = layer_case.stamp_region(setup, SLOT_BYTES.get(build, 8))
    put(setup, step)
    setup.device.set_state(POSITION, EPOCH_OF_STEP)
    before: list[Request] = [layer_case.layer_request(1)] if kind == "head" else []
    run(setup, [*before, (kind, 1, region.data_ptr(), EPOCH)], build)
    return region.cpu().numpy().reshape(setup.tp, -1)


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("build", SLOT_BYTES)
def test_every_block_has_a_header(setup: Setup, kind: str, build: str) -> None:
    layout = layer_case.layout_of(setup, SLOT_BYTES[build])
    headers = np.concatenate([layout.headers(region) for region in stamped(setup, kind, build)])
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    assert (headers["epoch"] == EPOCH + EPOCH_OF_STEP).all()
    assert (headers["overflow"] == 0).all()
    assert (headers["sm"] < sms).all()
    assert len(set(headers["sm"].tolist())) == setup.tp * setup.blocks  # a block fills its SM
    assert int(headers["time_ns"].max() - headers["time_ns"].min()) < LONGEST_NS


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("build", SLOT_BYTES)
def test_jobs_are_stamped_at_both_ends(setup: Setup, kind: str, build: str) -> None:
    layout, table = layer_case.layout_of(setup, SLOT_BYTES[build]), layer_case.job_table()
    used = table.pair_jobs >= 0
    seen = set()
    for region in stamped(setup, kind, build):
        slots = layout.stamps(region).reshape(setup.blocks, -1, 2)
        assert not slots[:, ~used].any()
        begin, end = slots[..., 0], slots[..., 1]
        assert ((begin != 0) == (end != 0)).all()
        done = begin != 0
        since = since_header(layout.headers(region)["time_ns"][:, None, None], slots)
        assert (since[..., 0] <= since[..., 1])[done].all()
        assert (np.abs(since)[done] < LONGEST_NS).all()
        seen |= {table.job_name(job) for job in table.pair_jobs[done.any(axis=0)]}
        if (setup.tp, setup.blocks) == ALL_BUSY:
            of_kind = np.array([table.job_name(job) in JOBS[kind] for job in table.pair_jobs])
            assert (done == (used & of_kind)).all()
    assert seen <= JOBS[kind]
    assert JOBS[kind] - seen <= ONLY_WITH_MORE_TILES


def since_header(header_ns: NDArray[np.uint64], slots: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """Stamps as ns since their block's header; the loader starts before the header is written."""
    bits = 8 * slots.dtype.itemsize
    back = np.uint64(WIDEN_BACK_NS)
    offset = slots.astype(np.uint64) - header_ns + back
    return (offset & np.uint64(2**bits - 1)).astype(np.int64) - WIDEN_BACK_NS


def test_what_is_not_recorded_writes_nothing(setup: Setup) -> None:
    assert not stamped(setup, "layer", "off").any()
    assert not stamped(setup, "layer", "delays").any()
    assert not stamped(setup, "layer", "absent").any()
