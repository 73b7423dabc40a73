"""A device that holds some ranks of a model, on one GPU: what it refuses while the others are not there."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.gpu.layer_case import layer_request, mini_shape

pytestmark = pytest.mark.gpu

HANDLE_BYTES = 128  # two of CUDA's, 64 bytes each


def test_handles_are_those_of_the_ranks_held(cuda: ModuleType) -> None:
    device = cuda.MuseDevice(mini_shape(4, 8), first_rank=1, held=2)
    assert device.ranks == 2
    handles = device.handles()
    assert [len(handle) for handle in handles] == [HANDLE_BYTES] * 2
    copies = {handle[at : at + HANDLE_BYTES // 2] for handle in handles for at in (0, HANDLE_BYTES // 2)}
    assert len(copies) == 4, "copies share an allocation"
    device.withdraw_handles()


def test_a_launch_before_all_ranks_are_connected_is_refused(cuda: ModuleType) -> None:
    device = cuda.MuseDevice(mini_shape(2, 8), held=1)
    for request in (("entry", 0, 0, 0), layer_request(0), ("head", 0, 0, 0)):
        with pytest.raises(RuntimeError, match="ranks of other processes are not connected"):
            device.launch(request, "off")
    with pytest.raises(RuntimeError, match="ranks of other processes are not connected"):
        device.capture([layer_request(0)], "off")


@pytest.mark.parametrize(
    ("handles", "message"),
    [
        ([bytes(HANDLE_BYTES)], "handles of 2 ranks are needed, not of 1"),
        ([b"", b""], "the handles of rank 0 have 0 bytes, not 128"),
    ],
)
def test_handles_of_another_form_are_refused(cuda: ModuleType, handles: list[bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.MuseDevice(mini_shape(2, 8), held=1).connect(handles)


def test_memory_that_cannot_be_mapped_is_named(cuda: ModuleType) -> None:
    device = cuda.MuseDevice(mini_shape(2, 8), held=1)
    with pytest.raises(RuntimeError, match=r"mapping the exchange of rank 1 \(cudaIpcOpenMemHandle\): "):
        device.connect([bytes(HANDLE_BYTES)] * 2)
    with pytest.raises(RuntimeError, match="not connected"):
        device.launch(layer_request(0), "off")


def test_only_the_ranks_held_must_run_together(cuda: ModuleType) -> None:
    cuda.MuseDevice(mini_shape(4, 66), first_rank=2, held=2)
    with pytest.raises(ValueError, match="198 blocks do not fit this GPU, which holds 132 at once"):
        cuda.MuseDevice(mini_shape(4, 66), held=3)


@pytest.mark.parametrize(("first_rank", "held"), [(3, 2), (4, 1), (0, 5)])
def test_ranks_that_the_model_has_not_are_refused(cuda: ModuleType, first_rank: int, held: int) -> None:
    with pytest.raises(
        ValueError, match=f"there are no ranks {first_rank} to {first_rank + held - 1} to hold"
    ):
        cuda.MuseDevice(mini_shape(4, 8), first_rank=first_rank, held=held)
